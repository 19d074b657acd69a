"""The way up: dependencies, ExecStartPre, spawn, loading, ExecStartPost, active."""

from __future__ import annotations

import math

from msgspec.structs import replace

from supervisor.unit import restart, start_clock
from supervisor.unit.descent import complete, fail, leave, with_report
from supervisor.unit.events import (
    Commands,
    CommandsDone,
    ConditionUnknown,
    ConditionUnmet,
    CriticalProcessDied,
    DependencyFailed,
    Event,
    Exited,
    NotReady,
    Progressed,
    RunCommands,
    Spawn,
    Spawned,
    SpawnFailed,
    TimeoutExtended,
    WatchBroke,
)
from supervisor.unit.model import ServiceType
from supervisor.unit.moves import (
    TRIGGERED,
    Moment,
    Outcome,
    complaint_words,
    overslept,
    rest,
    start_over,
    to,
    watchdog_deadline,
)
from supervisor.unit.restart import Result
from supervisor.unit.start_clock import StartClock
from supervisor.unit.state import Descent, Fault, Then, UnitState
from supervisor.unit.states import SubState


def dependencies_met(at: Moment, event: Event) -> Outcome:
    clock = start_clock.begin(at.rules.start, at.now)
    state = replace(at.state, clock=clock)
    if Commands.START_PRE in at.rules.commands:
        state = to(state, SubState.START_PRE, at.now, at.state.reason, deadline=clock.cap)
        return state, (RunCommands(Commands.START_PRE, at.state.reason),)
    return _spawn(replace(at, state=state), clock, at.state.reason)


def dependency_failed(at: Moment, event: DependencyFailed) -> Outcome:
    return rest(at, SubState.FAILED, event.reason), ()


def skip(at: Moment, event: ConditionUnmet) -> Outcome:
    return replace(rest(at, SubState.DEAD, f"skipped: {event.reason}"), skipped=True), ()


def condition_unknown(at: Moment, event: ConditionUnknown) -> Outcome:
    return fail(at, Fault(Result.TIMEOUT, event.reason))


def start_pre_done(at: Moment, event: CommandsDone) -> Outcome:
    if event.failure is not None:
        return fail(at, Fault(Result.EXIT_CODE, event.failure))
    assert at.state.clock is not None  # set when the dependencies were met
    return _spawn(at, at.state.clock, at.state.reason)


def spawned(at: Moment, event: Spawned) -> Outcome:
    clock = start_clock.begin(at.rules.start, at.now) if at.state.clock is None else at.state.clock
    clock = start_clock.progressed(clock, start_clock.ProgressKind.WORK, at.now)
    state = replace(at.state, main_pid=event.pid, spawned_at=at.now, started=at.state.invocation, clock=clock)
    if event.awaits_ready or at.rules.type is ServiceType.ONESHOT:
        sub_state = SubState.RESTORING if _restores(at) else SubState.LOADING
        return to(state, sub_state, at.now, _spawned_words(event), start_clock.deadline(at.rules.start, clock)), ()
    return activate(replace(at, state=state), _spawned_words(event))


def spawn_failed(at: Moment, event: SpawnFailed) -> Outcome:
    fault = Fault(event.result, event.reason, code=event.exit_status)
    falls_back = _restores(at) and event.result is not Result.HARDWARE
    return _fall_back(at, fault) if falls_back else fail(at, fault)


def spawned_too_late(at: Moment, event: Spawned) -> Outcome:
    """The stop ladder that was ordered meanwhile takes it along."""
    return replace(at.state, main_pid=event.pid, spawned_at=at.now), ()


def loaded(at: Moment, event: Event) -> Outcome:
    if at.rules.type is ServiceType.ONESHOT:
        return at.state, ()  # only its end says that its work is done
    return activate(at, "ready")


def start_post_done(at: Moment, event: CommandsDone) -> Outcome:
    if event.failure is not None:
        return fail(at, Fault(Result.EXIT_CODE, event.failure))
    if at.rules.type is ServiceType.ONESHOT:
        return complete(at)
    return _active(at, "ExecStartPost done"), ()


def progressed(at: Moment, event: Progressed) -> Outcome:
    if at.state.clock is None:
        return at.state, ()
    return _with_clock(at, start_clock.progressed(at.state.clock, event.kind, at.now)), ()


def extend_start(at: Moment, event: TimeoutExtended) -> Outcome:
    if at.state.clock is None:
        return at.state, ()
    return _with_clock(at, start_clock.extended(at.state.clock, event.seconds, at.now)), ()


def note_not_ready(at: Moment, event: NotReady) -> Outcome:
    """For those who ask what it waits for, and for the verdict when its time is over."""
    return replace(at.state, awaits=event.reason), ()


def start_timed_out(at: Moment, event: Event) -> Outcome:
    assert at.state.clock is not None  # its deadline has just come
    if overslept(at):
        clock = start_clock.resumed(at.rules.start, at.state.clock, at.now)
        loading = at.state.sub_state is SubState.LOADING  # elsewhere nobody stands still
        deadline = start_clock.deadline(at.rules.start, clock) if loading else clock.cap
        return replace(at.state, clock=clock, deadline=deadline), ()
    return fail(at, _out_of_time(at, at.state.clock))


def restore_exited(at: Moment, event: Exited) -> Outcome:
    at = replace(at, state=replace(at.state, exit=event, exited_at=at.now))
    words = restart.exit_words(event.code, event.signal, event.core_dumped)
    return _fall_back(at, Fault(Result.PROTOCOL, f"{words} before it was ready"))


def restore_lost_process(at: Moment, event: CriticalProcessDied | WatchBroke) -> Outcome:
    return _fall_back(at, Fault(Result.PROTOCOL, event.reason))


def restore_timed_out(at: Moment, event: Event) -> Outcome:
    assert at.state.clock is not None  # its deadline has just come
    return _fall_back(at, _out_of_time(at, at.state.clock))


def restore_triggered_watchdog(at: Moment, event: Event) -> Outcome:
    return _fall_back(at, Fault(Result.WATCHDOG, TRIGGERED))


def activate(at: Moment, reason: str) -> Outcome:
    at = replace(at, state=replace(at.state, ready=True))
    clock = at.state.clock
    if Commands.START_POST in at.rules.commands:
        deadline = math.inf if clock is None else clock.cap
        state = to(at.state, SubState.START_POST, at.now, reason, deadline)
        return state, (RunCommands(Commands.START_POST, reason),)
    return _active(at, reason), ()


def _active(at: Moment, reason: str) -> UnitState:
    state = replace(at.state, ready_once=True, history=start_over(at))
    if state.complaints:
        return to(state, SubState.UNHEALTHY, at.now, complaint_words(state), watchdog_deadline(at))
    return to(replace(state, healthy_since=at.now), SubState.READY, at.now, reason, watchdog_deadline(at))


def _spawn(at: Moment, clock: StartClock, reason: str) -> Outcome:
    return to(at.state, SubState.START, at.now, reason, deadline=clock.cap), (Spawn(reason, _restores(at)),)


def _restores(at: Moment) -> bool:
    return at.rules.restores and not at.state.cold


def _fall_back(at: Moment, fault: Fault) -> Outcome:
    """A snapshot that cannot be restored is no fault of the engine: it starts cold, and nobody is told of a death."""
    fault = with_report(at, fault)
    words = f"RestoreExec failed: {fault.cause}; starting cold"
    return leave(at, Descent(Then.START_COLD, at.rules.stop.relaunch_timeout_sec, reason=words, fault=fault))


def _out_of_time(at: Moment, clock: StartClock) -> Fault:
    why = start_clock.verdict(at.rules.start, clock, at.now)
    return Fault(Result.TIMEOUT, why if at.state.awaits is None else f"{why}; {at.state.awaits}")


def _spawned_words(event: Spawned) -> str:
    return "probing" if event.pid is None else f"started as pid {event.pid}"


def _with_clock(at: Moment, clock: StartClock) -> UnitState:
    deadline = start_clock.deadline(at.rules.start, clock)
    return replace(at.state, clock=clock, deadline=deadline)
