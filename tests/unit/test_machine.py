"""The unit machine: its table is complete, and the ways through it that matter are right."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from msgspec.structs import replace

from supervisor.unit import events as ev
from supervisor.unit.events import Action, Commands, Event
from supervisor.unit.machine import TABLE, nothing, step
from supervisor.unit.model import (
    Command,
    Engine,
    LivenessAction,
    Probes,
    RestartPolicy,
    RestartSettings,
    Service,
    ServiceType,
    StartLimitAction,
    StartSettings,
    StopSettings,
    Unit,
)
from supervisor.unit.restart import CleanExits, Result
from supervisor.unit.start_clock import ProgressKind
from supervisor.unit.state import Rules, UnitState, rules_of
from supervisor.unit.states import AT_REST, RUN_STATE, RunState, SubState

EVENTS: tuple[type[Event], ...] = get_args(Event)
KILLED = ev.Exited(None, "SIGKILL")


class Life:
    """One unit, driven by hand."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.state = UnitState()
        self.now = 1000.0
        self.log: list[str] = []

    def sub_state(self) -> SubState:
        """The present one. No attribute, which mypy would believe to be what it was last asserted to be."""
        return self.state.sub_state

    def see(self, *happened: Event) -> tuple[Action, ...]:
        """Let it all happen now; the actions of the last are returned."""
        actions: tuple[Action, ...] = ()
        for event in happened:
            self.state, actions = step(self.rules, self.state, event, self.now, jitter=0.0)
            self.log.append(self.state.sub_state)
        return actions

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def deadline(self) -> tuple[Action, ...]:
        assert self.state.deadline < math.inf
        self.now = max(self.now, self.state.deadline)
        return self.see(ev.Tick())

    def up(self) -> Life:
        self.see(ev.Start("test"), ev.DependenciesMet(), ev.Spawned(10, awaits_ready=False))
        assert self.sub_state() is SubState.READY
        return self


STOP = ev.Stop("operator", "maintenance")


def test_every_cell_of_the_table_is_written_down() -> None:
    assert set(TABLE) == set(SubState) == set(RUN_STATE)
    for sub_state, row in TABLE.items():
        assert set(row) == set(EVENTS), sub_state


def test_nobody_but_the_shell_of_a_later_state_reaches_a_unit_at_rest() -> None:
    for sub_state in AT_REST:
        heard = {event for event, handler in TABLE[sub_state].items() if handler is not nothing}
        late = {ev.Exited, ev.TreeGone} if sub_state is SubState.UNKILLABLE else set()
        assert heard <= {ev.Start, ev.Stop, ev.Restart, ev.ResetFailed} | late


def test_a_tick_before_its_time_does_nothing() -> None:
    life = Life()
    life.see(ev.Start("test"), ev.DependenciesMet())
    before = life.state
    assert life.see(ev.Tick()) == ()
    assert life.state == before


# --- up --------------------------------------------------------------------------------------------------------


def test_a_plain_service_is_active_once_it_is_executed() -> None:
    life = Life()
    assert life.see(ev.Start("boot")) == (ev.AwaitDependencies("asked by boot"),)
    assert life.state.state is RunState.ACTIVATING
    assert life.see(ev.DependenciesMet()) == (ev.Spawn("asked by boot"),)
    assert life.see(ev.Spawned(42, awaits_ready=False)) == ()
    assert (life.state.state, life.state.sub_state, life.state.pid) == (RunState.ACTIVE, SubState.READY, 42)
    assert (life.state.ready_once, life.state.invocation, life.state.started) == (True, 1, 1)


def test_with_a_probe_it_is_loading_until_the_probe_passes() -> None:
    life = Life()
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(42, awaits_ready=True))
    assert life.sub_state() is SubState.LOADING
    assert not life.state.ready_once
    life.wait(30.0)
    life.see(ev.Ready())
    assert life.sub_state() is SubState.READY
    assert life.state.history.longest_start_sec == 30.0


def test_commands_run_in_their_places() -> None:
    life = Life(Rules(commands=frozenset(Commands)))
    life.see(ev.Start("boot"))
    assert life.see(ev.DependenciesMet()) == (ev.RunCommands(Commands.START_PRE, "asked by boot"),)
    assert life.see(ev.CommandsDone()) == (ev.Spawn("asked by boot"),)
    (post,) = life.see(ev.Spawned(1, awaits_ready=False))
    assert isinstance(post, ev.RunCommands)
    assert post.which is Commands.START_POST
    assert life.see(ev.CommandsDone()) == ()
    (stop,) = life.see(STOP)
    assert isinstance(stop, ev.RunCommands)
    assert stop.which is Commands.STOP
    (ladder,) = life.see(ev.CommandsDone("it failed, and that changes nothing"))
    assert isinstance(ladder, ev.StopTree)
    recorded, after = life.see(ev.TreeGone(ev.Exited(0, None)))
    assert isinstance(recorded, ev.RecordEnding)
    assert isinstance(after, ev.RunCommands)
    assert after.which is Commands.STOP_POST
    life.see(ev.CommandsDone())
    assert life.log == [
        "waiting",
        "start-pre",
        "start",
        "start-post",
        "ready",
        "stop",
        "stop-term",
        "stop-post",
        "dead",
    ]


def test_a_device_that_is_gone_is_told_as_such_also_ahead_of_exec_start_pre() -> None:
    life = Life(Rules(commands=frozenset({Commands.START_PRE})))
    life.see(ev.Start("boot"), ev.DependenciesMet())
    life.see(ev.SpawnFailed("hardware: device 3 is gone", 126, Result.HARDWARE), ev.TreeGone())
    assert life.state.last_ending is not None
    assert life.state.last_ending.result is Result.HARDWARE


@pytest.mark.parametrize("which", [Commands.START_PRE, Commands.START_POST])
def test_a_failed_start_command_goes_through_the_restart_rule(which: Commands) -> None:
    life = Life(Rules(commands=frozenset({which}), restart=RestartSettings(policy=RestartPolicy.NO)))
    life.see(ev.Start("boot"), ev.DependenciesMet())
    if which is Commands.START_POST:
        life.see(ev.Spawned(1, awaits_ready=False))
    (ladder,) = life.see(ev.CommandsDone(f"{which}: false exited with code 1"))
    assert isinstance(ladder, ev.StopTree)
    life.see(ev.TreeGone())
    assert life.sub_state() is SubState.FAILED
    assert "exited with code 1" in life.state.reason


def test_a_dependency_that_failed_fails_the_unit_at_once() -> None:
    life = Life(Rules(restart=RestartSettings(policy=RestartPolicy.ALWAYS)))
    life.see(ev.Start("boot"), ev.DependencyFailed("dependency kv-store failed"))
    assert (life.state.sub_state, life.state.reason) == (SubState.FAILED, "dependency kv-store failed")


def test_a_condition_that_is_not_met_skips_the_unit_without_failing_it() -> None:
    life = Life()
    life.see(ev.Start("boot"), ev.ConditionUnmet("NODE_RANK is 1, not 0"))
    assert life.sub_state() is SubState.DEAD
    assert life.state.satisfied


def test_a_condition_of_which_nothing_can_be_known_goes_through_the_restart_rule() -> None:
    life = Life(Rules(restart=RestartSettings(policy=RestartPolicy.ALWAYS)))
    life.see(ev.Start("boot"), ev.ConditionUnknown("its file system does not answer"), ev.TreeGone())
    assert life.state.sub_state in (SubState.AUTO_RESTART, SubState.WAITING)
    assert "its file system does not answer" in life.state.reason


def test_a_spawn_that_fails_goes_through_the_restart_rule_like_an_exit() -> None:
    life = Life()
    life.see(ev.Start("boot"), ev.DependenciesMet())
    life.see(ev.SpawnFailed("cannot execute 'nope': not found in PATH", 127))
    recorded, again = life.see(ev.TreeGone())
    assert isinstance(recorded, ev.RecordEnding)
    assert (recorded.ending.code, recorded.ending.result) == (127, Result.EXIT_CODE)
    assert isinstance(again, ev.AwaitDependencies)
    assert life.state.restarts == 1


# --- start deadlines -------------------------------------------------------------------------------------------


def loading(rules: Rules) -> Life:
    life = Life(rules)
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(1, awaits_ready=True))
    return life


def test_a_start_that_takes_too_long_is_given_up() -> None:
    life = loading(Rules(start=StartSettings(timeout_sec=90.0)))
    assert life.state.deadline == life.now + 90.0
    (ladder,) = life.deadline()
    assert isinstance(ladder, ev.StopTree)
    assert "TimeoutStartSec" in ladder.reason
    recorded, *_ = life.see(ev.TreeGone(ev.Exited(None, "SIGTERM")))
    assert isinstance(recorded, ev.RecordEnding)
    assert recorded.ending.result is Result.TIMEOUT


@pytest.mark.parametrize("restores", [False, True])
def test_what_a_start_waits_for_is_shown_and_is_part_of_the_verdict(restores: bool) -> None:
    life = loading(Rules(start=StartSettings(timeout_sec=90.0), restores=restores))
    assert life.state.words == life.state.reason
    for complaint in ("readiness: connection refused", "readiness: HTTP 503"):
        life.see(ev.NotReady(complaint))
        assert life.state.words == f"{life.state.reason}; {complaint}"
    life.deadline()
    assert life.state.words.count("(TimeoutStartSec); readiness: HTTP 503") == 1


def test_what_a_start_has_waited_for_is_forgotten_when_it_is_ready() -> None:
    life = loading(Rules())
    life.see(ev.NotReady("readiness: HTTP 503"), ev.Ready())
    assert life.state.words == life.state.reason


def test_progress_moves_the_stall_deadline_up_to_the_cap() -> None:
    life = loading(Rules(start=StartSettings(timeout_sec=1000.0, stall_sec=300.0, cpu_only_sec=600.0)))
    life.wait(299.0)
    life.see(ev.Progressed(ProgressKind.WORK))
    assert life.state.deadline == life.now + 300.0
    for _ in range(3):
        life.wait(200.0)
        life.see(ev.Progressed(ProgressKind.CPU))
    assert life.state.deadline == 1000.0 + 299.0 + 600.0
    life.deadline()
    assert "nothing but CPU time" in life.state.reason


def test_extend_timeout_moves_the_cap() -> None:
    life = loading(Rules(start=StartSettings(timeout_sec=90.0)))
    life.wait(80.0)
    life.see(ev.TimeoutExtended(300.0))
    assert life.state.deadline == life.now + 300.0


def test_the_grace_after_a_failed_start_is_the_short_one() -> None:
    life = loading(Rules(stop=StopSettings(timeout_sec=30.0, relaunch_timeout_sec=3.0)))
    (ladder,) = life.deadline()
    assert isinstance(ladder, ev.StopTree)
    assert ladder.grace_sec == 3.0


# --- death and restart -----------------------------------------------------------------------------------------


def test_a_killed_service_is_restarted_at_once_after_its_tree_is_gone() -> None:
    life = Life().up()
    (ladder,) = life.see(KILLED)
    assert isinstance(ladder, ev.StopTree)
    assert life.sub_state() is SubState.CLEANING
    assert (life.state.fault is not None, life.state.pid) == (True, None)
    recorded, again = life.see(ev.TreeGone(KILLED))
    assert isinstance(recorded, ev.RecordEnding)
    assert (recorded.ending.signal, recorded.ending.asked) == ("SIGKILL", False)
    assert again == ev.AwaitDependencies("killed by SIGKILL; restarting at once (Restart=on-failure)")
    life.see(ev.DependenciesMet(), ev.Spawned(11, awaits_ready=False))
    assert (life.state.pid, life.state.restarts, life.state.invocation) == (11, 1, 2)


def test_the_second_crash_in_a_row_waits_in_auto_restart() -> None:
    life = Life().up()
    life.see(KILLED, ev.TreeGone(KILLED), ev.DependenciesMet(), ev.Spawned(11, False), KILLED, ev.TreeGone(KILLED))
    assert life.sub_state() is SubState.AUTO_RESTART
    assert life.state.deadline == pytest.approx(life.now + 0.1)
    assert isinstance(life.deadline()[0], ev.AwaitDependencies)


def test_a_unit_that_keeps_crashing_hits_its_start_limit_and_only_reports_the_action() -> None:
    life = Life(Rules(restart=RestartSettings(limit_action=StartLimitAction.EXIT)))
    life.see(ev.Start("boot"))
    actions: tuple[Action, ...] = ()
    for starts in range(1, 100):
        life.see(ev.DependenciesMet(), ev.Spawned(starts, False), KILLED)
        actions = life.see(ev.TreeGone(KILLED))
        if life.state.sub_state is SubState.AUTO_RESTART:
            life.deadline()
        if life.state.at_rest:
            break
    assert life.sub_state() is SubState.START_LIMIT_HIT
    assert starts == 5
    assert actions[-1] == ev.ReportStartLimit(StartLimitAction.EXIT, life.state.reason)
    life.see(ev.Start("operator"))
    assert life.sub_state() is SubState.WAITING


def test_reset_failed_leaves_no_trace_of_the_start_limit() -> None:
    life = Life()
    life.state = replace(life.state, sub_state=SubState.START_LIMIT_HIT)
    life.see(ev.ResetFailed())
    assert life.sub_state() is SubState.DEAD


@pytest.mark.seed("S02")
def test_a_coordinated_engine_stays_failed_with_its_tree_cleaned_and_can_be_started_again() -> None:
    rules = Rules(restart=RestartSettings(policy=RestartPolicy.NO), clean_exits=CleanExits.NEVER)
    life = Life(rules).up()
    (ladder,) = life.see(ev.Exited(0, None))
    assert isinstance(ladder, ev.StopTree)
    life.see(ev.TreeGone(ev.Exited(0, None)))
    assert life.sub_state() is SubState.FAILED
    assert life.state.fault is not None
    assert life.state.deadline == math.inf
    life.see(ev.Stop("relaunch run-1", "prepare"))
    assert life.sub_state() is SubState.FAILED
    life.see(ev.Start("relaunch run-1"), ev.DependenciesMet(), ev.Spawned(11, False))
    assert life.sub_state() is SubState.READY
    assert life.state.fault is None


def test_a_clean_exit_leaves_a_service_inactive() -> None:
    life = Life().up()
    life.see(ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.sub_state() is SubState.DEAD


def test_a_clean_exit_before_it_was_ready_is_a_failure() -> None:
    life = loading(Rules(restart=RestartSettings(policy=RestartPolicy.NO)))
    life.see(ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.sub_state() is SubState.FAILED
    assert "before it was ready" in life.state.reason


@pytest.mark.parametrize(
    "event", [ev.CriticalProcessDied("VLLM::Worker_TP1 (pid 77) is gone"), ev.WatchBroke("internal error")]
)
def test_the_death_of_a_critical_process_ends_the_whole_unit(event: ev.Event) -> None:
    life = Life().up()
    (ladder,) = life.see(event)
    assert isinstance(ladder, ev.StopTree)
    assert life.state.fault is not None
    assert life.state.fault.result is Result.PROTOCOL


# --- health ----------------------------------------------------------------------------------------------------


def test_a_failed_liveness_restarts_a_unit_of_its_own() -> None:
    life = Life(Rules(liveness_action=LivenessAction.RESTART)).up()
    (ladder,) = life.see(ev.LivenessFailed("liveness", "timed out 3 times"))
    assert isinstance(ladder, ev.StopTree)
    recorded, again = life.see(ev.TreeGone(ev.Exited(0, None)))
    assert isinstance(recorded, ev.RecordEnding)
    assert recorded.ending.result is Result.WATCHDOG
    assert isinstance(again, ev.AwaitDependencies)


def test_a_reported_unit_is_unhealthy_until_every_probe_has_recovered() -> None:
    life = Life(Rules(liveness_action=LivenessAction.REPORT)).up()
    life.see(ev.LivenessFailed("liveness", "timed out"), ev.LivenessFailed("canary", "no answer within 30 s"))
    assert (life.state.state, life.state.sub_state) == (RunState.ACTIVE, SubState.UNHEALTHY)
    life.see(ev.LivenessRecovered("liveness"))
    assert life.sub_state() is SubState.UNHEALTHY
    assert [complaint.probe for complaint in life.state.complaints] == ["canary"]
    life.see(ev.LivenessRecovered("canary"))
    assert life.sub_state() is SubState.READY


def test_liveness_action_none_changes_nothing() -> None:
    life = Life(Rules(liveness_action=LivenessAction.NONE)).up()
    before = life.state
    life.see(ev.LivenessFailed("liveness", "timed out"))
    assert life.state == before


@pytest.mark.seed("S16")
def test_while_it_loads_no_liveness_counts() -> None:
    life = loading(Rules(liveness_action=LivenessAction.RESTART))
    assert life.see(ev.LivenessFailed("liveness", "refused")) == ()
    assert life.sub_state() is SubState.LOADING


def test_readiness_gates_readyz_and_nothing_else() -> None:
    life = Life().up()
    life.see(ev.NotReady("503"))
    assert (life.state.sub_state, life.state.ready) == (SubState.READY, False)
    life.see(ev.Ready())
    assert life.state.ready


def test_the_watchdog_is_armed_when_active_and_fed_by_keep_alives() -> None:
    life = Life(Rules(watchdog_sec=10.0, stop=StopSettings(abort_timeout_sec=7.0))).up()
    life.wait(8.0)
    life.see(ev.KeptAlive())
    assert life.state.deadline == life.now + 10.0
    assert life.deadline() == (ev.StopTree("SIGABRT", 7.0, "no keep-alive within 10 s (WatchdogSec)"),)


def test_a_supervisor_that_was_stopped_does_not_hold_its_own_absence_against_a_unit() -> None:
    life = Life(Rules(watchdog_sec=10.0)).up()
    life.wait(600.0)
    assert life.see(ev.Tick()) == ()
    assert life.state.deadline == life.now + 10.0
    assert isinstance(life.deadline()[0], ev.StopTree)

    loading = Life(Rules(start=StartSettings(timeout_sec=100.0, stall_sec=20.0)))
    loading.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(42, awaits_ready=True))
    loading.wait(600.0)
    assert loading.see(ev.Tick()) == ()
    assert loading.state.deadline == loading.now + 20.0
    loading.see(ev.Progressed(ProgressKind.WORK))
    assert loading.state.clock is not None
    assert loading.state.clock.cap == loading.now + 100.0
    assert isinstance(loading.deadline()[0], ev.StopTree)


def test_an_unhealthy_unit_can_still_miss_its_watchdog() -> None:
    life = Life(Rules(watchdog_sec=10.0, liveness_action=LivenessAction.REPORT)).up()
    life.see(ev.LivenessFailed("liveness", "timed out"))
    assert isinstance(life.deadline()[0], ev.StopTree)


def test_health_counts_only_while_it_is_well() -> None:
    life = Life(Rules(liveness_action=LivenessAction.REPORT)).up()
    life.wait(100.0)
    life.see(ev.LivenessFailed("liveness", "timed out"))
    life.wait(100.0)
    life.see(KILLED, ev.TreeGone(KILLED))
    assert life.state.last_ending is not None
    assert life.state.last_ending.healthy_sec == 0.0


# --- evidence before a stop --------------------------------------------------------------------------------------

SICK = ev.LivenessFailed("canary", "no answer within 30 s")
DIAGNOSING = Rules(diagnoses=True, liveness_action=LivenessAction.REPORT, commands=frozenset({Commands.STOP}))


def test_what_is_sick_is_diagnosed_before_it_is_stopped_whoever_asks() -> None:
    for asked in (STOP, ev.Restart("operator", "try again"), ev.Stop("controller", "run 7", grace_sec=0.0)):
        life = Life(DIAGNOSING).up()
        life.see(SICK)
        (diagnose,) = life.see(asked)
        assert isinstance(diagnose, ev.Diagnose)
        assert (life.state.sub_state, life.state.deadline) == (SubState.DIAGNOSE, life.now + 5.0)
        (after,) = life.see(ev.CommandsDone())
        assert isinstance(after, ev.StopTree if getattr(asked, "grace_sec", None) == 0.0 else ev.RunCommands)


def test_what_is_well_is_not() -> None:
    life = Life(DIAGNOSING).up()
    life.see(SICK, ev.LivenessRecovered("canary"))
    assert isinstance(life.see(STOP)[0], ev.RunCommands)


def test_a_unit_that_restarts_itself_is_diagnosed_first_and_never_for_longer_than_the_limit() -> None:
    life = Life(replace(DIAGNOSING, liveness_action=LivenessAction.RESTART)).up()
    assert isinstance(life.see(SICK)[0], ev.Diagnose)
    assert life.state.fault is not None  # which is news at once, whatever is collected
    (ladder,) = life.deadline()
    assert isinstance(ladder, ev.StopTree)
    assert life.sub_state() is SubState.STOP_TERM


def test_a_watchdog_that_expired_keeps_its_signal_through_the_diagnosis() -> None:
    life = Life(replace(DIAGNOSING, watchdog_sec=10.0, stop=StopSettings(abort_timeout_sec=7.0))).up()
    assert isinstance(life.deadline()[0], ev.Diagnose)
    assert life.see(ev.CommandsDone()) == (ev.StopTree("SIGABRT", 7.0, "no keep-alive within 10 s (WatchdogSec)"),)


def test_the_dead_are_not_diagnosed() -> None:
    life = Life(DIAGNOSING).up()
    life.see(SICK)
    assert isinstance(life.see(KILLED)[0], ev.StopTree)
    life = Life(DIAGNOSING).up()
    life.see(SICK, STOP)
    assert isinstance(life.see(KILLED)[0], ev.StopTree)
    assert life.sub_state() is SubState.STOP_TERM


def test_who_is_in_a_hurry_does_not_wait_for_evidence() -> None:
    life = Life(DIAGNOSING).up()
    life.see(SICK, STOP)
    assert life.see(ev.Stop("controller", "prepare", grace_sec=3.0)) == ()
    assert life.state.descent is not None
    assert life.state.descent.grace_sec == 3.0
    (ladder,) = life.see(ev.Stop("podvisor", "second SIGTERM", grace_sec=0.0))
    assert ladder == ev.StopTree("SIGTERM", 0.0, "asked by podvisor: second SIGTERM")


# --- a snapshot in place of a cold start -------------------------------------------------------------------------

RESTORING = Rules(restores=True, clean_exits=CleanExits.NEVER)


def restoring(rules: Rules = RESTORING) -> Life:
    life = Life(rules)
    life.see(ev.Start("boot"))
    assert life.see(ev.DependenciesMet()) == (ev.Spawn("asked by boot", restores=True),)
    life.see(ev.Spawned(7, awaits_ready=True))
    assert (life.state.state, life.state.sub_state) == (RunState.ACTIVATING, SubState.RESTORING)
    return life


def test_a_snapshot_is_restored_until_it_is_ready() -> None:
    life = restoring()
    life.see(ev.Ready())
    assert life.sub_state() is SubState.READY
    life.see(KILLED, ev.TreeGone(KILLED), ev.DependenciesMet())
    assert life.see(ev.Spawned(8, awaits_ready=True)) == ()
    assert life.sub_state() is SubState.RESTORING  # each life begins with it


@pytest.mark.parametrize(
    "failure, words",
    [
        (ev.Exited(3, None), "RestoreExec failed: exited with code 3 before it was ready; starting cold"),
        (ev.Exited(0, None), "RestoreExec failed: exited with code 0 before it was ready; starting cold"),
        (ev.WatchBroke("internal error"), "RestoreExec failed: internal error; starting cold"),
        (ev.CriticalProcessDied("a worker is gone"), "RestoreExec failed: a worker is gone; starting cold"),
    ],
)
def test_a_snapshot_that_cannot_be_restored_is_followed_by_a_cold_start(failure: Event, words: str) -> None:
    life = restoring(replace(RESTORING, restart=RestartSettings(policy=RestartPolicy.NO)))
    (ladder,) = life.see(failure)
    assert isinstance(ladder, ev.StopTree)
    assert (life.state.reason, life.state.fault, life.state.falls_back) == (words, None, True)
    recorded, again = life.see(ev.TreeGone(KILLED))
    assert isinstance(recorded, ev.RecordEnding)
    assert not recorded.ending.asked
    assert again == ev.AwaitDependencies(words)
    assert life.see(ev.DependenciesMet()) == (ev.Spawn(words, restores=False),)
    life.see(ev.Spawned(8, awaits_ready=True))
    assert life.sub_state() is SubState.LOADING
    assert len(life.state.history.starts) == 1  # both were one start
    life.see(failure, ev.TreeGone(KILLED))
    assert life.sub_state() is SubState.FAILED  # once only


def test_a_restore_that_hangs_or_cannot_be_executed_is_no_death_either() -> None:
    life = restoring(replace(RESTORING, start=StartSettings(timeout_sec=60.0)))
    assert isinstance(life.deadline()[0], ev.StopTree)
    assert life.state.falls_back
    life = Life(RESTORING)
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.SpawnFailed("no such file", 127))
    assert life.state.falls_back
    life.see(ev.TreeGone())
    assert life.see(ev.DependenciesMet()) == (ev.Spawn(life.state.reason, restores=False),)


def test_a_stop_in_the_middle_of_falling_back_is_a_stop() -> None:
    life = restoring()
    life.see(ev.Exited(1, None), STOP, ev.TreeGone(KILLED))
    assert life.sub_state() is SubState.DEAD


# --- stop ------------------------------------------------------------------------------------------------------


def test_stop_asks_then_kills_and_ends_inactive() -> None:
    life = Life(Rules(stop=StopSettings(timeout_sec=30.0, kill_signal="SIGINT"))).up()
    assert life.see(STOP) == (ev.StopTree("SIGINT", 30.0, "asked by operator: maintenance"),)
    assert life.deadline() == ()
    assert life.sub_state() is SubState.STOP_KILL
    (recorded,) = life.see(ev.TreeGone(KILLED))
    assert isinstance(recorded, ev.RecordEnding)
    assert recorded.ending.asked_by == "operator"
    assert life.sub_state() is SubState.DEAD
    assert life.state.ended == life.state.invocation


def test_who_asks_need_not_say_why() -> None:
    life = Life().up()
    (ladder,) = life.see(ev.Stop("operator", ""))
    assert isinstance(ladder, ev.StopTree)
    assert ladder.reason == "asked by operator"
    life.see(ev.TreeGone(KILLED))
    assert life.state.reason == "stopped by operator"


def test_a_second_stop_joins_the_first_and_may_be_in_a_hurry() -> None:
    life = Life().up()
    life.see(STOP)
    assert life.see(ev.Stop("operator", "again")) == ()
    assert life.see(ev.Stop("operator", "slower", grace_sec=60.0)) == ()
    assert life.see(ev.Stop("operator", "now", grace_sec=0.0)) == (
        ev.StopTree("SIGTERM", 0.0, "asked by operator: now"),
    )


def test_a_hurried_stop_cuts_the_stop_commands_short() -> None:
    life = Life(Rules(commands=frozenset({Commands.STOP}))).up()
    life.see(STOP)
    assert life.sub_state() is SubState.STOP
    assert isinstance(life.see(ev.Stop("operator", "now", grace_sec=0.0))[0], ev.StopTree)


def test_a_start_during_a_stop_is_remembered_and_a_later_stop_forgets_it() -> None:
    life = Life().up()
    life.see(STOP, ev.Start("operator"))
    assert isinstance(life.see(ev.TreeGone())[-1], ev.AwaitDependencies)
    life = Life().up()
    life.see(STOP, ev.Start("operator"), STOP, ev.TreeGone())
    assert life.sub_state() is SubState.DEAD


def test_a_start_during_the_cleaning_after_a_crash_overrides_the_policy() -> None:
    life = Life(Rules(restart=RestartSettings(policy=RestartPolicy.NO))).up()
    life.see(KILLED, ev.Start("operator"))
    assert isinstance(life.see(ev.TreeGone(KILLED))[-1], ev.AwaitDependencies)


def test_a_stop_during_the_cleaning_after_a_crash_keeps_it_down() -> None:
    life = Life(Rules(restart=RestartSettings(policy=RestartPolicy.ALWAYS))).up()
    life.see(KILLED, STOP)
    (recorded,) = life.see(ev.TreeGone(KILLED))
    assert isinstance(recorded, ev.RecordEnding)
    assert not recorded.ending.asked
    assert life.sub_state() is SubState.DEAD


def test_stop_during_back_off_is_done_at_once() -> None:
    life = Life().up()
    life.see(KILLED, ev.TreeGone(KILLED), ev.DependenciesMet(), ev.Spawned(11, False), KILLED, ev.TreeGone(KILLED))
    assert life.see(STOP) == ()
    assert (life.state.sub_state, life.state.deadline) == (SubState.DEAD, math.inf)


def test_restart_is_a_stop_and_a_start() -> None:
    life = Life().up()
    (ladder,) = life.see(ev.Restart("operator", "new weights"))
    assert isinstance(ladder, ev.StopTree)
    assert isinstance(life.see(ev.TreeGone())[-1], ev.AwaitDependencies)
    assert life.state.restarts == 1


def test_survivors_of_sigkill_fail_the_unit_and_nothing_is_started_beside_them() -> None:
    life = Life().up()
    life.see(KILLED)
    life.see(ev.TreeGone(KILLED, survivors=("pid 77 (in uninterruptible sleep)",)))
    assert life.sub_state() is SubState.UNKILLABLE
    assert "pid 77" in life.state.reason
    assert life.state.ended == life.state.invocation
    (ladder,) = life.see(ev.Start("operator"))
    assert isinstance(ladder, ev.StopTree)
    assert isinstance(life.see(ev.TreeGone())[-1], ev.AwaitDependencies)


def test_a_stop_ladder_that_never_answers_is_not_waited_for_for_ever() -> None:
    life = Life().up()
    life.see(STOP)
    life.deadline()
    life.deadline()
    assert life.sub_state() is SubState.UNKILLABLE


def test_survivors_that_end_after_all_leave_a_unit_that_has_merely_failed() -> None:
    life = Life().up()
    life.see(STOP)
    life.deadline()
    life.deadline()
    life.see(ev.TreeGone(KILLED))
    assert life.sub_state() is SubState.FAILED
    assert "ended since" in life.state.reason


def test_a_main_process_that_ends_after_all_is_no_longer_shown() -> None:
    life = Life().up()
    life.see(STOP)
    life.deadline()
    life.deadline()
    life.see(KILLED)
    life.see(ev.Restart("operator", "once more"))
    assert life.sub_state() is SubState.CLEANING
    assert life.state.pid is None


def test_stop_post_commands_that_hang_are_killed() -> None:
    life = Life(Rules(commands=frozenset({Commands.STOP_POST}))).up()
    life.see(STOP, ev.TreeGone())
    assert life.sub_state() is SubState.STOP_POST
    assert isinstance(life.deadline()[0], ev.StopTree)
    life.see(ev.TreeGone())
    assert life.sub_state() is SubState.DEAD


# --- oneshots and external units -------------------------------------------------------------------------------


ONESHOT = Rules(type=ServiceType.ONESHOT, clean_exits=CleanExits.COMMAND)


@pytest.mark.parametrize("remain, expected", [(False, SubState.DEAD), (True, SubState.EXITED)])
def test_a_oneshot_is_done_when_it_exits_with_zero(remain: bool, expected: SubState) -> None:
    life = Life(replace(ONESHOT, remain_after_exit=remain))
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(1, awaits_ready=False))
    assert life.sub_state() is SubState.LOADING
    assert not life.state.satisfied
    life.see(ev.Exited(0, None), ev.TreeGone(ev.Exited(0, None)))
    assert life.sub_state() is expected
    assert life.state.satisfied


def test_a_oneshot_runs_its_post_commands_after_its_work() -> None:
    life = Life(replace(ONESHOT, commands=frozenset({Commands.START_POST})))
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(1, False), ev.Exited(0, None))
    assert life.sub_state() is SubState.START_POST
    life.see(ev.CommandsDone(), ev.TreeGone())
    assert life.state.completed


def test_a_oneshot_that_fails_goes_through_the_restart_rule() -> None:
    life = Life(replace(ONESHOT, restart=RestartSettings(policy=RestartPolicy.NO)))
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(1, False), ev.Exited(3, None), ev.TreeGone())
    assert life.sub_state() is SubState.FAILED
    assert not life.state.satisfied


def test_stopping_a_oneshot_that_remains_runs_its_stop_commands() -> None:
    rules = replace(ONESHOT, remain_after_exit=True, commands=frozenset({Commands.STOP, Commands.STOP_POST}))
    life = Life(rules)
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(1, False), ev.Exited(0, None), ev.TreeGone())
    assert life.sub_state() is SubState.EXITED
    life.see(STOP, ev.CommandsDone(), ev.TreeGone(), ev.CommandsDone())
    assert life.log[-4:] == ["stop", "stop-term", "stop-post", "dead"]


def test_an_external_unit_that_stops_answering_is_unhealthy_and_comes_back() -> None:
    life = Life(Rules(type=ServiceType.EXTERNAL, liveness_action=LivenessAction.REPORT))
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.Spawned(None, awaits_ready=True), ev.Ready())
    assert (life.state.sub_state, life.state.pid) == (SubState.READY, None)
    life.see(ev.NotReady("connection refused"))
    assert life.sub_state() is SubState.UNHEALTHY
    life.see(ev.Ready())
    assert life.sub_state() is SubState.READY


# --- rules from the unit file ----------------------------------------------------------------------------------


def unit(tmp: str = "u", **changes: object) -> Unit:
    from pathlib import Path

    return replace(Unit(tmp, Path("u.toml")), **changes)


@pytest.mark.parametrize(
    "declared, clean",
    [
        (unit(), CleanExits.DAEMON),
        (unit(service=Service(type=ServiceType.ONESHOT)), CleanExits.COMMAND),
        (unit(engine=Engine()), CleanExits.NEVER),
    ],
)
def test_what_counts_as_a_clean_exit_follows_from_the_kind_of_unit(declared: Unit, clean: CleanExits) -> None:
    assert rules_of(declared).clean_exits is clean


def test_rules_name_the_commands_that_are_declared() -> None:
    service = Service(exec_start_pre=(Command(("true",)),), exec_stop_post=(Command(("true",)),))
    assert rules_of(unit(service=service)).commands == {Commands.START_PRE, Commands.STOP_POST}


def test_of_an_external_unit_there_is_nothing_to_restart() -> None:
    external = unit(service=Service(type=ServiceType.EXTERNAL), probes=Probes(liveness_action=LivenessAction.RESTART))
    assert rules_of(external).liveness_action is LivenessAction.REPORT


def test_a_start_that_finds_its_device_gone_is_not_tried_again() -> None:
    rules = Rules(restart=RestartSettings(limit_action=StartLimitAction.EXIT), restores=True)
    life = Life(rules)
    life.see(ev.Start("boot"), ev.DependenciesMet(), ev.SpawnFailed("hardware: gone", 126, Result.HARDWARE))
    actions = life.see(ev.TreeGone())
    assert life.sub_state() is SubState.FAILED
    assert ev.ReportStartLimit(StartLimitAction.EXIT, "hardware: gone; not tried again in place") in actions
