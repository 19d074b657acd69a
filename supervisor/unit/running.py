"""What is seen of a running unit: its exit, its probes, its keep-alives."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.unit.ascent import activate
from supervisor.unit.descent import complete, fail, fail_alive, fault_of_exit, stop_by_itself
from supervisor.unit.events import (
    Commands,
    CriticalProcessDied,
    ErrorReported,
    Event,
    Exited,
    FollowMain,
    HandedOver,
    LivenessFailed,
    LivenessRecovered,
    NotReady,
    WatchBroke,
    WatchdogChanged,
)
from supervisor.unit.model import LivenessAction, ServiceType
from supervisor.unit.moves import (
    TRIGGERED,
    Moment,
    Outcome,
    complaint_words,
    overslept,
    to,
    watchdog_deadline,
    watchdog_sec,
)
from supervisor.unit.restart import Result
from supervisor.unit.state import Complaint, Fault
from supervisor.unit.states import RunState, SubState


def exited(at: Moment, event: Exited) -> Outcome:
    """The main process ended and nobody had asked for it."""
    at = replace(at, state=replace(at.state, exit=event, exited_at=at.now))
    fault = fault_of_exit(at, event, ready=at.state.state is not RunState.ACTIVATING)
    if fault.result is Result.SUCCESS and at.rules.type is ServiceType.ONESHOT:
        return _finish_oneshot(at)
    return fail(at, fault)


def hand_over(at: Moment, event: HandedOver) -> Outcome:
    if event.pid == at.state.main_pid:
        return at.state, ()
    reason = f"pid {at.state.main_pid} has handed over to pid {event.pid}, which is the main process from now on"
    return replace(at.state, main_pid=event.pid), (FollowMain(event.pid, event.started_ticks, reason),)


def begin_stopping(at: Moment, event: Event) -> Outcome:
    if at.rules.type is ServiceType.ONESHOT:
        return at.state, ()  # to end is what it was started for
    return stop_by_itself(at)


def note_error(at: Moment, event: ErrorReported) -> Outcome:
    return replace(at.state, error=event.error), ()


def note_watchdog(at: Moment, event: WatchdogChanged) -> Outcome:
    """It is armed when the unit is active."""
    return replace(at.state, watchdog_sec=event.seconds), ()


def change_watchdog(at: Moment, event: WatchdogChanged) -> Outcome:
    state, actions = note_watchdog(at, event)
    return keep_alive(replace(at, state=state), event)[0], actions


def lose_critical_process(at: Moment, event: CriticalProcessDied | WatchBroke) -> Outcome:
    return fail(at, Fault(Result.PROTOCOL, event.reason))


def become_ready(at: Moment, event: Event) -> Outcome:
    return _recover(replace(at, state=replace(at.state, ready=True)), "readiness", "ready again")


def become_unready(at: Moment, event: NotReady) -> Outcome:
    """Readiness gates readyz and nothing else; but of an external unit it is all that we know."""
    state = replace(at.state, ready=False)
    if at.rules.type is ServiceType.EXTERNAL:
        return _complain(replace(at, state=state), "readiness", event.reason)
    return state, ()


def judge_liveness(at: Moment, event: LivenessFailed) -> Outcome:
    match at.rules.liveness_action:
        case LivenessAction.NONE:
            return at.state, ()
        case LivenessAction.REPORT:
            return _complain(at, event.probe, event.reason)
        case LivenessAction.RESTART:
            return fail_alive(at, Fault(Result.WATCHDOG, f"{event.probe} failed: {event.reason}"))


def recover(at: Moment, event: LivenessRecovered) -> Outcome:
    return _recover(at, event.probe, f"{event.probe} recovered")


def keep_alive(at: Moment, event: Event) -> Outcome:
    return replace(at.state, deadline=watchdog_deadline(at)), ()


def watchdog_expired(at: Moment, event: Event) -> Outcome:
    if overslept(at):
        return keep_alive(at, event)
    return _abort(at, f"no keep-alive within {watchdog_sec(at):g} s (WatchdogSec)")


def watchdog_triggered(at: Moment, event: Event) -> Outcome:
    return _abort(at, TRIGGERED)


def _abort(at: Moment, cause: str) -> Outcome:
    abort = at.rules.stop.abort_timeout_sec
    grace = at.rules.stop.timeout_sec if abort is None else abort
    return fail_alive(at, Fault(Result.WATCHDOG, cause), signal=at.rules.watchdog_signal, grace_sec=grace)


def _finish_oneshot(at: Moment) -> Outcome:
    if Commands.START_POST in at.rules.commands:
        return activate(at, "done")
    return complete(at)


def _complain(at: Moment, probe: str, reason: str) -> Outcome:
    others = tuple(complaint for complaint in at.state.complaints if complaint.probe != probe)
    state = replace(at.state, complaints=(*others, Complaint(probe, reason)))
    if state.state is not RunState.ACTIVE:
        return state, ()  # it counts once the unit is active
    state = replace(state, healthy_since=None)
    return to(state, SubState.UNHEALTHY, at.now, complaint_words(state), at.state.deadline), ()


def _recover(at: Moment, probe: str, reason: str) -> Outcome:
    left = tuple(complaint for complaint in at.state.complaints if complaint.probe != probe)
    state = replace(at.state, complaints=left)
    if left or state.sub_state is not SubState.UNHEALTHY:
        return state, ()
    state = replace(state, healthy_since=at.now)
    return to(state, SubState.READY, at.now, reason, at.state.deadline), ()
