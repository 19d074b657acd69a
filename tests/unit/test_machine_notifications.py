"""What a unit says of itself by sd_notify(3), and what its machine makes of it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from supervisor.unit import events as ev
from supervisor.unit.events import Commands
from supervisor.unit.machine import TABLE, nothing
from supervisor.unit.model import (
    LivenessAction,
    RestartPolicy,
    RestartSettings,
    ServiceType,
    StopSettings,
)
from supervisor.unit.restart import CleanExits, Result
from supervisor.unit.state import Rules
from supervisor.unit.states import SubState
from tests.unit.test_machine import KILLED, STOP, Life

STOPS = StopSettings(timeout_sec=30.0, relaunch_timeout_sec=3.0)
NEVER_AGAIN = RestartSettings(policy=RestartPolicy.NO)
HANDS_OVER = ev.HandedOver(77, 1234)


def loading(rules: Rules | None = None) -> Life:
    life = Life(rules)
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(10, awaits_ready=True))
    return life


def stopping(rules: Rules | None = None) -> Life:
    life = Life(rules or Rules(stop=STOPS)).up()
    assert life.see(ev.StoppingByItself()) == ()
    assert life.sub_state() is SubState.STOPPING
    return life


def heard_in(event: type[ev.Event]) -> set[SubState]:
    return {sub_state for sub_state, row in TABLE.items() if row[event] is not nothing}


STARTED = {SubState.LOADING, SubState.RESTORING, SubState.START_POST, SubState.READY, SubState.UNHEALTHY}


def test_where_each_of_them_is_heard() -> None:
    assert heard_in(ev.HandedOver) == heard_in(ev.ErrorReported) == STARTED | {SubState.STOPPING}
    assert heard_in(ev.WatchdogChanged) == heard_in(ev.WatchdogTriggered) == STARTED
    assert heard_in(ev.StoppingByItself) == STARTED - {SubState.RESTORING}


# --- MAINPID ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("life", [loading(), Life().up()], ids=["loading", "ready"])
def test_the_process_that_was_handed_over_to_is_the_main_one(life: Life) -> None:
    sub_state = life.state.sub_state
    (follow,) = life.see(HANDS_OVER)
    assert isinstance(follow, ev.FollowMain)
    assert (follow.pid, follow.started_ticks) == (77, 1234)
    assert (life.state.pid, life.state.sub_state) == (77, sub_state)


def test_who_names_itself_changes_nothing() -> None:
    life = Life().up()
    before = life.state
    assert life.see(ev.HandedOver(10, 1)) == ()
    assert life.state == before


def test_its_exit_is_the_units_and_stands_in_the_record() -> None:
    life = Life().up()
    life.see(HANDS_OVER, ev.Exited(3, None))
    recorded, *_ = life.see(ev.TreeGone(ev.Exited(3, None)))
    assert isinstance(recorded, ev.RecordEnding)
    assert (recorded.ending.pid, recorded.ending.code, recorded.ending.result) == (77, 3, Result.EXIT_CODE)


def test_the_next_invocation_begins_with_its_own_process() -> None:
    life = Life().up()
    life.see(HANDS_OVER, ev.WatchdogChanged(5.0), ev.ErrorReported("E"), KILLED, ev.TreeGone(KILLED))
    assert (life.state.main_pid, life.state.watchdog_sec, life.state.error) == (None, None, None)
    life.see(ev.DependenciesMet(), ev.Spawned(11, awaits_ready=False))
    assert life.state.pid == 11


@pytest.mark.parametrize(
    "clean, result",
    [
        (CleanExits.DAEMON, Result.PROTOCOL),
        (CleanExits.COMMAND, Result.PROTOCOL),
        (CleanExits.NEVER, Result.PROTOCOL),
        (CleanExits.ALWAYS, Result.SUCCESS),
    ],
)
def test_an_end_that_nobody_knows_is_no_success(clean: CleanExits, result: Result) -> None:
    """A crash that counts as a clean exit would not be restarted under Restart=on-failure."""
    life = Life(Rules(clean_exits=clean, restart=NEVER_AGAIN)).up()
    life.see(HANDS_OVER, ev.Exited(None, None), ev.TreeGone(ev.Exited(None, None)))
    assert life.state.last_ending is not None
    assert life.state.last_ending.result is result
    assert "nobody knows how" in life.state.last_ending.cause


# --- STOPPING --------------------------------------------------------------------------------------------------


def test_a_unit_that_stops_by_itself_is_not_ready_and_has_the_time_of_a_stop() -> None:
    life = stopping()
    assert (life.state.ready, life.state.deadline) == (False, life.now + 30.0)
    assert life.state.reason == "it stops by itself (STOPPING=1)"


@pytest.mark.parametrize(
    "how, result, sub_state",
    [
        (ev.Exited(0, None), Result.SUCCESS, SubState.DEAD),
        (ev.Exited(None, "SIGTERM"), Result.SUCCESS, SubState.DEAD),
        (ev.Exited(4, None), Result.EXIT_CODE, SubState.FAILED),
        (KILLED, Result.SIGNAL, SubState.FAILED),
    ],
)
def test_its_exit_is_judged_as_any(how: ev.Exited, result: Result, sub_state: SubState) -> None:
    life = stopping(Rules(stop=STOPS, restart=NEVER_AGAIN))
    life.wait(7.0)
    (ladder,) = life.see(how)
    assert isinstance(ladder, ev.StopTree)
    assert ladder.grace_sec == 3.0
    life.see(ev.TreeGone(how))
    assert life.sub_state() is sub_state
    assert life.state.last_ending is not None
    assert life.state.last_ending.result is result
    assert "after it said that it stops" in life.state.last_ending.cause


def test_the_restart_policy_decides_what_follows() -> None:
    life = stopping(Rules(stop=STOPS, restart=RestartSettings(policy=RestartPolicy.ALWAYS)))
    life.see(ev.Exited(0, None))
    actions = life.see(ev.TreeGone(ev.Exited(0, None)))
    assert isinstance(actions[-1], ev.AwaitDependencies)


def test_the_health_it_had_counts_up_to_the_moment_it_said_so() -> None:
    life = Life(Rules(stop=STOPS)).up()
    life.wait(100.0)
    life.see(ev.StoppingByItself())
    life.wait(20.0)
    life.see(ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.state.last_ending is not None
    assert life.state.last_ending.healthy_sec == 100.0


@pytest.mark.parametrize(
    "event",
    [
        ev.LivenessFailed("liveness", "timed out"),
        ev.NotReady("503"),
        ev.CriticalProcessDied("worker is gone"),
        ev.WatchBroke("internal error"),
        ev.Ready(),
        ev.KeptAlive(),
        ev.WatchdogTriggered(),
        ev.TimeoutExtended(1000.0),
        ev.StoppingByItself(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_no_verdict_counts_meanwhile(event: ev.Event) -> None:
    life = stopping()
    before = life.state
    assert life.see(event) == ()
    assert life.state == before


def test_what_does_not_end_in_time_is_killed_and_has_failed() -> None:
    life = stopping(Rules(stop=STOPS, restart=NEVER_AGAIN))
    (ladder,) = life.deadline()
    assert isinstance(ladder, ev.StopTree)
    assert ladder.grace_sec == 0.0
    life.see(ev.TreeGone(KILLED))
    assert life.state.last_ending is not None
    assert life.state.last_ending.result is Result.TIMEOUT
    assert life.sub_state() is SubState.FAILED


def test_a_stop_that_is_asked_for_joins_it() -> None:
    life = stopping()
    life.wait(10.0)
    assert life.see(STOP) == ()
    assert life.sub_state() is SubState.STOPPING
    life.wait(5.0)
    (ladder,) = life.see(ev.Exited(4, None))
    assert isinstance(ladder, ev.StopTree)
    assert ladder.grace_sec == 15.0
    life.see(ev.TreeGone(ev.Exited(4, None)))
    assert (life.state.sub_state, life.state.stopped_by) == (SubState.DEAD, "operator")


def test_a_stop_in_a_hurry_does_not_wait_for_it() -> None:
    life = stopping()
    (ladder,) = life.see(ev.Stop("operator", "now", 1.0))
    assert isinstance(ladder, ev.StopTree)
    assert (ladder.grace_sec, life.state.sub_state) == (1.0, SubState.STOP_TERM)


def test_a_start_that_is_asked_for_follows_it() -> None:
    life = stopping()
    life.see(ev.Start("operator"), ev.Exited(0, None))
    actions = life.see(ev.TreeGone(ev.Exited(0, None)))
    assert isinstance(actions[-1], ev.AwaitDependencies)


def test_it_may_hand_over_while_it_stops() -> None:
    life = stopping()
    life.see(HANDS_OVER)
    assert (life.state.pid, life.state.sub_state) == (77, SubState.STOPPING)


def test_who_stops_before_it_was_ready_has_failed_whatever_its_code() -> None:
    life = loading(Rules(stop=STOPS, restart=NEVER_AGAIN))
    life.see(ev.StoppingByItself(), ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.sub_state() is SubState.FAILED
    assert "before it was ready" in life.state.reason


def test_a_oneshot_that_stops_does_what_it_was_started_for() -> None:
    life = Life(Rules(type=ServiceType.ONESHOT))
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(10, awaits_ready=False), ev.StoppingByItself())
    assert life.sub_state() is SubState.LOADING
    life.see(ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.state.completed


def test_exec_stop_is_not_run_beside_it_and_exec_stop_post_is_run_after_it() -> None:
    life = stopping(Rules(stop=STOPS, commands=frozenset({Commands.STOP, Commands.STOP_POST})))
    life.see(ev.Exited(0, None))
    *_, post = life.see(ev.TreeGone(ev.Exited(0, None)))
    assert isinstance(post, ev.RunCommands)
    assert post.which is Commands.STOP_POST


def test_an_engine_that_stops_by_itself_is_dead_when_it_has_ended_and_not_before() -> None:
    life = stopping(Rules(stop=STOPS, restart=NEVER_AGAIN, clean_exits=CleanExits.NEVER))
    assert (life.state.pid, life.state.fault) == (10, None)
    life.see(ev.Exited(0, None))
    assert life.state.fault is not None
    assert life.state.fault.result is Result.EXIT_CODE


# --- WATCHDOG_USEC, WATCHDOG=trigger ---------------------------------------------------------------------------

WATCHED = Rules(watchdog_sec=10.0, watchdog_signal="SIGQUIT", stop=replace(STOPS, abort_timeout_sec=20.0))


def test_the_watchdog_can_be_given_another_time() -> None:
    life = Life(WATCHED).up()
    life.see(ev.WatchdogChanged(60.0))
    assert life.state.deadline == life.now + 60.0
    life.wait(50.0)
    life.see(ev.KeptAlive())
    assert life.state.deadline == life.now + 60.0
    (ladder,) = life.deadline()
    assert "within 60 s" in ladder.reason


def test_the_watchdog_can_be_begun_and_ended() -> None:
    life = Life(Rules()).up()
    assert life.state.deadline == math.inf
    life.see(ev.WatchdogChanged(5.0))
    assert life.state.deadline == life.now + 5.0
    life.see(ev.WatchdogChanged(math.inf))
    assert life.state.deadline == math.inf


def test_what_is_asked_for_while_it_loads_holds_once_it_is_active() -> None:
    life = loading(WATCHED)
    deadline = life.state.deadline
    life.see(ev.WatchdogChanged(3.0))
    assert life.state.deadline == deadline
    life.see(ev.Ready())
    assert life.state.deadline == life.now + 3.0


@pytest.mark.parametrize("life", [loading(WATCHED), Life(WATCHED).up()], ids=["loading", "ready"])
def test_a_watchdog_that_is_triggered_ends_the_unit_as_one_that_runs_out(life: Life) -> None:
    (ladder,) = life.see(ev.WatchdogTriggered())
    assert isinstance(ladder, ev.StopTree)
    assert (ladder.signal, ladder.grace_sec) == ("SIGQUIT", 20.0)
    assert life.state.fault is not None
    assert life.state.fault.result is Result.WATCHDOG


def test_a_triggered_watchdog_is_no_liveness_probe() -> None:
    life = Life(replace(WATCHED, liveness_action=LivenessAction.REPORT)).up()
    life.see(ev.WatchdogTriggered())
    assert life.sub_state() is SubState.STOP_TERM


def test_a_restore_that_triggers_its_watchdog_is_followed_by_a_cold_start() -> None:
    life = loading(replace(WATCHED, restores=True))
    assert life.sub_state() is SubState.RESTORING
    life.see(ev.WatchdogTriggered())
    assert life.state.falls_back


# --- ERRNO, BUSERROR -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [False, True])
def test_what_it_reported_stands_in_the_cause(stops: bool) -> None:
    life = Life(Rules(restart=NEVER_AGAIN)).up()
    life.see(ev.ErrorReported("ENOENT (No such file or directory)"))
    assert life.sub_state() is SubState.READY
    if stops:
        life.see(ev.StoppingByItself())
    life.see(ev.Exited(2, None), ev.TreeGone(ev.Exited(2, None)))
    assert life.state.last_ending is not None
    assert life.state.last_ending.cause.endswith("; it reported ENOENT (No such file or directory)")
