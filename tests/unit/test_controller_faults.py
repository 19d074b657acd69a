"""What a report means, who answers it, and how long the budget lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.budget import (
    Budget,
    Granted,
    Spent,
    held,
    next_run,
    reset,
    spend_phase2,
    spend_run,
    stable_at,
)
from controller.model.classification import software_fault
from controller.model.fault import ENGINE_DEAD, ENGINE_UNHEALTHY, Fault, FaultLevel
from controller.model.instance import Hold, Holder, abandon, delete, hold, observe
from controller.model.judgement import Judgement, Underway, judge_report
from controller.model.relaunch import exchange
from controller.model.relaunch.run import Run, RunStep
from controller.model.selection import ENGINE_RELAUNCH, RELAUNCH_SWITCH, Choices
from controller.model.settings import InstanceSettings, RelaunchSettings
from supervisor.wire import EngineHealth, ErrorCode, FaultCategory, Recovery, SoftwareFaultMsg
from tests.unit.controller_gang import SETTINGS, Drive, fresh_budget, seen, serving

ON = Choices(frozenset({RELAUNCH_SWITCH}))
OFF = Choices(frozenset())
INSTANCE = serving(epoch=4)
REPORTER = INSTANCE.members[1].key


def report(health: EngineHealth = EngineHealth.DEAD, **changes: object) -> Fault:
    fields: dict[str, Any] = {
        "exception_type": "EngineDead",
        "exception_message": "killed by SIGKILL",
        "engine_id": 1,
        "engine_status": health,
        "pod_ip": "10.0.0.2",
        "epoch": 4,
        "boot_id": "boot-1-1",
        "pid": 4711,
    }
    return software_fault(SoftwareFaultMsg(**(fields | changes)), REPORTER)


def judged(fault: Fault, **changes: Any) -> Judgement:
    fields: dict[str, Any] = {
        "instance": INSTANCE,
        "underway": None,
        "handled": frozenset(),
        "budget": fresh_budget(INSTANCE),
        "settings": SETTINGS,
        "choices": ON,
    }
    return judge_report(fault, **(fields | changes))


def relaunching(run: Run) -> Underway:
    return Underway(ENGINE_RELAUNCH, FaultLevel.L2, run)


# --- classification -----------------------------------------------------------------------------


def test_dead_and_unhealthy_are_software_faults_of_level_two() -> None:
    dead, unhealthy = report(), report(EngineHealth.UNHEALTHY)
    assert (dead.code, unhealthy.code) == (ENGINE_DEAD, ENGINE_UNHEALTHY) == (0x1000001, 0x1000002)
    assert dead.level is unhealthy.level is FaultLevel.L2
    assert dead.category is FaultCategory.SOFTWARE
    assert report(EngineHealth.HEALTHY).level is FaultLevel.HEALTHY
    assert report(exception_type="unhealthy:Liveness").probe_derived


# --- the answer -----------------------------------------------------------------------------------------------


def test_a_death_opens_a_run_and_its_reporter_may_freeze() -> None:
    judgement = judged(report())
    assert judgement == Judgement(Recovery.ENGINE_RELAUNCH, judgement.reason, opens=ENGINE_RELAUNCH)


def test_with_the_switch_off_nobody_freezes() -> None:
    assert judged(report(), choices=OFF).recovery is Recovery.NONE


def test_with_the_budget_spent_nobody_freezes_and_phase_two_follows() -> None:
    judgement = judged(report(), budget=replace(fresh_budget(INSTANCE), runs=3))
    assert (judgement.recovery, judgement.opens) == (Recovery.NONE, ENGINE_RELAUNCH)


@pytest.mark.parametrize(
    "changes",
    [
        {"instance": delete(INSTANCE, "terminated", 1.0)},
        {"instance": hold(INSTANCE, Hold(Holder.BUDGET, "its budget is spent"))},
        {"instance": abandon(INSTANCE, 0.0)},
        {"instance": replace(INSTANCE, epoch=5)},
        {"instance": replace(INSTANCE, members=INSTANCE.members[:1])},
        {"handled": frozenset({report().identity})},
        {"instance": observe(INSTANCE, REPORTER, seen(INSTANCE, REPORTER, 1.0, leaving=True))},
    ],
    ids=["deleted", "held", "given up", "replaced since", "no member", "again", "draining"],
)
def test_what_no_run_will_repair_opens_none_and_freezes_nobody(changes: dict[str, object]) -> None:
    judgement = judged(report(), **changes)
    assert judgement == Judgement(Recovery.NONE, judgement.reason)
    assert judgement.reason


def test_who_was_sick_and_recovered_may_be_sick_again() -> None:
    sick = report(exception_type="unhealthy:canary")
    assert judged(sick, handled=frozenset({sick.identity})).opens == ENGINE_RELAUNCH


@pytest.mark.parametrize(
    "told, probe_derived, canary",
    [("engine_dead", False, False), ("unhealthy:liveness", True, False), ("unhealthy:canary", True, True)],
)
def test_what_a_report_says_of_who_found_it(told: str, probe_derived: bool, canary: bool) -> None:
    fault = report(exception_type=told)
    assert (fault.probe_derived, fault.canary) == (probe_derived, canary)


def test_a_report_of_another_boot_is_nobodys() -> None:
    assert judged(report(boot_id="boot-1-0")).recovery is Recovery.NONE


def test_while_another_strategy_runs_the_report_waits() -> None:
    judgement = judged(report(), underway=Underway("uce_recovery", FaultLevel.L2))
    assert judgement == Judgement(Recovery.PENDING, judgement.reason, to_inbox=True)


@pytest.mark.parametrize("step", [RunStep.PROBE, RunStep.PREPARE, RunStep.START, RunStep.AWAIT])
def test_F15_a_report_of_the_old_epoch_is_absorbed_by_the_run(step: RunStep) -> None:
    run = Drive.open(INSTANCE).to(step).run
    judgement = judged(report(epoch=4), underway=relaunching(run))
    assert judgement == Judgement(Recovery.ENGINE_RELAUNCH, judgement.reason, to_inbox=True)


@pytest.mark.parametrize("runs, recovery", [(0, Recovery.ENGINE_RELAUNCH), (2, Recovery.NONE)])
def test_a_death_in_the_runs_own_epoch_counts_on_the_next_run(runs: int, recovery: Recovery) -> None:
    budget = replace(fresh_budget(INSTANCE), runs=runs)
    run = Drive.open(INSTANCE, budget=budget).to(RunStep.AWAIT).run
    judgement = judged(report(epoch=5), underway=relaunching(run))
    assert judgement == Judgement(recovery, judgement.reason, to_inbox=True)


def test_nobody_freezes_for_a_run_that_lets_the_containers_restart() -> None:
    drive = Drive.open(INSTANCE).to(RunStep.PREPARE)
    drive.refuse(0, ErrorCode.FAILED)
    assert judged(report(), underway=relaunching(drive.run)).recovery is Recovery.NONE


def test_a_death_while_a_run_is_closing_is_judged_when_it_has_closed() -> None:
    drive = Drive.open(INSTANCE).to(RunStep.AWAIT)
    drive.step(exchange.Fault(drive.key(1), drive.run.epoch, "engine 1: exited"))
    assert drive.run.step is RunStep.CLOSED, "a new run follows"
    judgement = judged(report(), underway=relaunching(drive.run))
    assert judgement == Judgement(Recovery.PENDING, judgement.reason)


# --- budget ---------------------------------------------------------------------------------------------------


def test_the_first_run_starts_at_once_and_the_back_off_doubles_to_its_maximum() -> None:
    settings = replace(SETTINGS, engine_relaunch_max_attempts=8)
    budget, waits = fresh_budget(INSTANCE), []
    for _ in range(8):
        granted = next_run(budget, settings)
        assert isinstance(granted, Granted)
        waits.append(granted.backoff_sec)
        budget = spend_run(budget, f"run-{budget.runs}")
    assert waits == [0, 30, 60, 120, 240, 480, 600, 600]
    assert isinstance(next_run(budget, settings), Spent)


def test_three_runs_then_phase_two_then_held() -> None:
    budget = fresh_budget(INSTANCE)
    for _ in range(3):
        budget = spend_run(budget, f"run-{budget.runs}")
    for _ in range(3):
        assert held(budget, SETTINGS) is None
        budget = spend_phase2(budget, f"run-{budget.phase2s}")
    assert held(budget, SETTINGS) is not None
    whole = reset(budget)
    assert (whole, held(whole, SETTINGS)) == (fresh_budget(INSTANCE), None)


@given(runs=st.integers(0, 10_000), attempts=st.integers(1, 20_000))
def test_the_back_off_is_bounded(runs: int, attempts: int) -> None:
    settings = replace(SETTINGS, engine_relaunch_max_attempts=attempts)
    allowed = next_run(Budget(fresh_budget(INSTANCE).key, runs=runs), settings)
    assert isinstance(allowed, Spent) == (runs >= attempts)
    if isinstance(allowed, Granted):
        assert 0 <= allowed.backoff_sec <= settings.engine_relaunch_backoff_max_sec


def test_it_is_whole_again_after_a_stable_period() -> None:
    assert stable_at(100.0, SETTINGS) == 700.0


# --- defaults -------------------------------------------------------------------------------------------------


@pytest.mark.seed("S24")
def test_S24_defaults_of_the_decisions() -> None:
    settings = RelaunchSettings()
    assert settings.enable_engine_relaunch
    assert settings.engine_relaunch_complete_timeout_sec == 600
    assert settings.engine_relaunch_poll_interval_sec == 5
    assert settings.engine_relaunch_dispatch_retries == 3
    assert settings.engine_relaunch_nm_unreachable_threshold == 3
    assert settings.engine_relaunch_prepare_timeout_sec == 120
    assert settings.engine_relaunch_max_attempts == 3
    assert settings.engine_relaunch_stable_sec == 600
    assert (settings.engine_relaunch_backoff_sec, settings.engine_relaunch_backoff_max_sec) == (30, 600)
    assert InstanceSettings().fresh_sec == 9
    assert InstanceSettings().heartbeat_timeout_active_sec == 10
    assert InstanceSettings().heartbeat_timeout_inactive_sec == 300


# --- a device is gone -----------------------------------------------------------------------------------------

GONE = report(category=FaultCategory.HARDWARE)


def test_for_a_device_that_is_gone_nobody_freezes_and_phase_two_follows() -> None:
    judgement = judged(GONE)
    assert GONE.category is FaultCategory.HARDWARE
    assert (judgement.recovery, judgement.opens) == (Recovery.NONE, ENGINE_RELAUNCH)
    assert judged(GONE, choices=OFF).opens is None
    assert judged(GONE, handled=frozenset({GONE.identity})).opens is None


def test_told_while_a_run_is_open_it_is_that_run_s_business() -> None:
    drive = Drive.open(INSTANCE).to(RunStep.PREPARE)
    judgement = judged(GONE, underway=relaunching(drive.run))
    assert judgement == Judgement(Recovery.NONE, judgement.reason, to_inbox=True)
