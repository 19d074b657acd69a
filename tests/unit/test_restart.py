"""The restart rule: every policy against every way of ending, back-off, start limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.unit import restart
from supervisor.unit.model import RestartPolicy, RestartSettings, StartLimitAction
from supervisor.unit.restart import (
    CleanExits,
    Ending,
    GiveUp,
    Restart,
    RestartHistory,
    Result,
    Stay,
    backoff,
    decide,
    result_of_exit,
)

ENDINGS = {
    "clean": Ending(Result.SUCCESS, "exited with code 0", code=0),
    "code": Ending(Result.EXIT_CODE, "exited with code 1", code=1),
    "signal": Ending(Result.SIGNAL, "killed by SIGKILL", signal="SIGKILL"),
    "core": Ending(Result.CORE_DUMP, "killed by SIGSEGV, core dumped", signal="SIGSEGV", core_dumped=True),
    "timeout": Ending(Result.TIMEOUT, "not started within 90 s"),
    "watchdog": Ending(Result.WATCHDOG, "no keep-alive", signal="SIGABRT"),
    "protocol": Ending(Result.PROTOCOL, "VLLM::Worker_TP1 (12) is gone"),
}

# systemd.service(5), table 1 "Exit causes and the effect of the Restart= settings"
RESTARTED = {
    RestartPolicy.NO: set(),
    RestartPolicy.ALWAYS: set(ENDINGS),
    RestartPolicy.ON_SUCCESS: {"clean"},
    RestartPolicy.ON_FAILURE: set(ENDINGS) - {"clean"},
    RestartPolicy.ON_ABNORMAL: {"signal", "core", "timeout", "watchdog", "protocol"},
    RestartPolicy.ON_ABORT: {"signal", "core"},
    RestartPolicy.ON_WATCHDOG: {"watchdog"},
}


@pytest.mark.parametrize("policy", RestartPolicy)
@pytest.mark.parametrize("name", ENDINGS)
def test_every_policy_meets_every_ending(policy: RestartPolicy, name: str) -> None:
    decision = decide(RestartSettings(policy=policy), RestartHistory(), ENDINGS[name], now=100.0, jitter=0.0)
    if name in RESTARTED[policy]:
        assert isinstance(decision, Restart)
        assert decision.at == 100.0
    else:
        assert isinstance(decision, Stay)
        assert decision.failed == (name != "clean")
    assert ENDINGS[name].cause in decision.reason


@pytest.mark.parametrize("policy", RestartPolicy)
@pytest.mark.parametrize("name", ENDINGS)
def test_an_exit_that_was_asked_for_is_never_restarted_and_never_a_failure(policy: RestartPolicy, name: str) -> None:
    ending = replace(ENDINGS[name], asked_by="operator")
    decision = decide(RestartSettings(policy=policy), RestartHistory(), ending, now=0.0, jitter=0.0)
    assert decision == Stay(False, RestartHistory(), "stopped by operator")


@pytest.mark.parametrize(
    "settings, ending, restarted",
    [
        (RestartSettings(prevent_exit_status=(1,)), ENDINGS["code"], False),
        (RestartSettings(prevent_exit_status=("SIGKILL",)), ENDINGS["signal"], False),
        (RestartSettings(policy=RestartPolicy.NO, force_exit_status=(0,)), ENDINGS["clean"], True),
        (RestartSettings(force_exit_status=(1,), prevent_exit_status=(1,)), ENDINGS["code"], False),
        (RestartSettings(prevent_exit_status=(127,)), Ending(Result.EXIT_CODE, "cannot execute", code=127), False),
        (RestartSettings(), Ending(Result.EXIT_CODE, "cannot execute", code=127), True),
    ],
)
def test_listed_exit_statuses_overrule_the_policy(settings: RestartSettings, ending: Ending, restarted: bool) -> None:
    assert isinstance(decide(settings, RestartHistory(), ending, 0.0, 0.0), Restart) == restarted


@pytest.mark.parametrize(
    "clean, code, signal, expected",
    [
        (CleanExits.DAEMON, 0, None, Result.SUCCESS),
        (CleanExits.DAEMON, 3, None, Result.SUCCESS),
        (CleanExits.DAEMON, 1, None, Result.EXIT_CODE),
        (CleanExits.DAEMON, None, "SIGTERM", Result.SUCCESS),
        (CleanExits.DAEMON, None, "SIGUSR1", Result.SUCCESS),
        (CleanExits.DAEMON, None, "SIGKILL", Result.SIGNAL),
        (CleanExits.COMMAND, None, "SIGTERM", Result.SIGNAL),
        (CleanExits.COMMAND, 0, None, Result.SUCCESS),
        (CleanExits.NEVER, 0, None, Result.EXIT_CODE),
        (CleanExits.NEVER, None, "SIGTERM", Result.SIGNAL),
    ],
)
def test_which_exits_are_clean(clean: CleanExits, code: int | None, signal: str | None, expected: Result) -> None:
    settings = RestartSettings(success_exit_status=(0, 3, "SIGUSR1"))
    assert result_of_exit(settings, clean, code, signal, core_dumped=False) == expected


def test_a_core_dump_is_told_apart_from_other_signals() -> None:
    result = result_of_exit(RestartSettings(), CleanExits.DAEMON, None, "SIGSEGV", core_dumped=True)
    assert result is Result.CORE_DUMP


def test_the_first_restart_is_immediate_and_back_off_grows_from_the_second_to_the_cap() -> None:
    settings = RestartSettings(delay_sec=0.1, steps=3, max_delay_sec=100.0, limit_burst=0)
    history, waits = RestartHistory(), []
    for _ in range(7):
        decision = decide(settings, history, ENDINGS["code"], now=0.0, jitter=0.0)
        assert isinstance(decision, Restart)
        waits.append(decision.at)
        history = decision.history
    assert waits == pytest.approx([0.0, 0.1, 1.0, 10.0, 100.0, 100.0, 100.0])


def test_health_long_enough_makes_the_next_restart_immediate_again() -> None:
    settings = RestartSettings(reset_sec=60.0)
    tired = RestartHistory(restarts_in_a_row=4)
    soon = decide(settings, tired, replace(ENDINGS["code"], healthy_sec=59.9), now=0.0, jitter=0.0)
    late = decide(settings, tired, replace(ENDINGS["code"], healthy_sec=60.0), now=0.0, jitter=0.0)
    assert isinstance(soon, Restart)
    assert soon.at > 0.0
    assert late == Restart(0.0, RestartHistory(restarts_in_a_row=1), late.reason)


@pytest.mark.parametrize(
    "settings",
    [
        RestartSettings(delay_sec=2.0, steps=0),
        RestartSettings(delay_sec=2.0, max_delay_sec=1.0),
        RestartSettings(delay_sec=2.0, max_delay_sec=2.0),
    ],
)
def test_without_steps_the_back_off_is_constant(settings: RestartSettings) -> None:
    assert [backoff(settings, count, 0.0) for count in (0, 1, 5, 50)] == [0.0, 2.0, 2.0, 2.0]


@given(
    delay=st.floats(0, 100),
    steps=st.integers(0, 20),
    longest=st.floats(0, 1000),
    spread=st.floats(0, 1),
    chance=st.floats(0, 1, exclude_max=True),
    count=st.integers(0, 10_000),
)
@example(delay=4e-306, steps=2, longest=770.0, spread=0.0, chance=0.0, count=2)
def test_back_off_is_finite_bounded_and_never_shrinks(
    delay: float, steps: int, longest: float, spread: float, chance: float, count: int
) -> None:
    settings = RestartSettings(delay_sec=delay, steps=steps, max_delay_sec=longest, jitter=spread)
    seconds = backoff(settings, count, chance)
    assert math.isfinite(seconds)
    assert 0.0 <= seconds <= max(delay, longest) * (1 + spread) * (1 + 1e-9)
    assert backoff(settings, count + 1, 0.0) >= backoff(settings, count, 0.0) * (1 - 1e-9)


def crash_until_it_gives_up(settings: RestartSettings, start_takes: float, most: int = 100) -> tuple[int, float]:
    """Starts made, and when it gave up; infinity if it did not."""
    history, now = RestartHistory(), 0.0
    for starts in range(1, most):
        history = restart.started(settings, history, now)
        now += start_takes
        history = restart.start_took(history, start_takes)
        match decide(settings, history, ENDINGS["code"], now, jitter=0.0):
            case Restart(at, history, _):
                now = at
            case GiveUp(_, reason, _):
                assert f"{settings.limit_burst} starts" in reason
                return starts, now
            case other:
                raise AssertionError(other)
    return most, math.inf


@pytest.mark.parametrize("start_takes", [0.0, 1.0, 60.0, 180.0, 1800.0, 3600.0])
def test_the_automatic_start_limit_binds_however_long_a_start_takes(start_takes: float) -> None:
    starts, _ = crash_until_it_gives_up(RestartSettings(), start_takes)
    assert starts == 5


def test_a_fixed_interval_that_a_slow_loader_never_fills_does_not_bind() -> None:
    _, gave_up_at = crash_until_it_gives_up(RestartSettings(limit_interval_sec=10.0), start_takes=180.0)
    assert gave_up_at == math.inf


@pytest.mark.parametrize("settings", [RestartSettings(limit_burst=0), RestartSettings(limit_interval_sec=0.0)])
def test_a_start_limit_can_be_switched_off(settings: RestartSettings) -> None:
    assert crash_until_it_gives_up(settings, start_takes=0.0)[1] == math.inf


def test_giving_up_names_the_action_for_the_arbiter() -> None:
    settings = RestartSettings(limit_burst=1, limit_action=StartLimitAction.EXIT)
    history = restart.started(settings, RestartHistory(), 0.0)
    decision = decide(settings, history, ENDINGS["code"], now=1.0, jitter=0.0)
    assert isinstance(decision, GiveUp)
    assert decision.action is StartLimitAction.EXIT


def test_a_unit_that_is_not_to_be_restarted_never_hits_the_start_limit() -> None:
    settings = RestartSettings(policy=RestartPolicy.NO, limit_burst=1)
    history = restart.started(settings, RestartHistory(), 0.0)
    assert isinstance(decide(settings, history, ENDINGS["code"], now=1.0, jitter=0.0), Stay)


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(0, 20))
def test_the_history_stays_small(times: list[float], burst: int) -> None:
    settings = RestartSettings(limit_burst=burst)
    history = RestartHistory()
    for now in times:
        history = restart.started(settings, history, now)
    assert len(history.starts) <= max(1, burst)


def test_being_forgiven_forgets_all_but_how_long_a_start_takes() -> None:
    history = RestartHistory(starts=(1.0, 2.0), restarts_in_a_row=3, longest_start_sec=120.0)
    assert restart.forgiven(history) == RestartHistory(longest_start_sec=120.0)


def test_a_device_that_is_gone_ends_all_attempts_in_place() -> None:
    settings = RestartSettings(policy=RestartPolicy.ON_FAILURE, limit_action=StartLimitAction.EXIT)
    ending = Ending(Result.HARDWARE, "hardware: gone")
    decision = decide(settings, RestartHistory(), ending, now=1.0, jitter=0.0)
    assert isinstance(decision, GiveUp)
    assert (decision.action, decision.reason) == (StartLimitAction.EXIT, "hardware: gone; not tried again in place")
