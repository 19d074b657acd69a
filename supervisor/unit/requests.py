"""What somebody asks of a unit: start, stop, restart, reset-failed; each in every sub-state, each idempotent."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.unit import restart
from supervisor.unit.descent import descend, descent_of, evidence_first, go_down, healthy_sec, words_of
from supervisor.unit.events import Event, Restart, Start, Stop
from supervisor.unit.moves import Moment, Outcome, begin_invocation, stopped, to
from supervisor.unit.state import Descent, Then, UnitState
from supervisor.unit.states import SubState


def begin(at: Moment, event: Start | Restart) -> Outcome:
    """Start from rest. A person's start wipes the slate: neither back-off nor start limit stands in its way."""
    return begin_invocation(at, restart.forgiven(at.state.history), f"asked by {event.asked_by}", restarts=0)


def begin_before_its_time(at: Moment, event: Start | Restart) -> Outcome:
    return begin_invocation(at, restart.forgiven(at.state.history), f"asked by {event.asked_by}", restarts=1)


def clear_survivors_first(at: Moment, event: Start | Restart) -> Outcome:
    return _face_survivors(at, _asked(at, Then.START, event.asked_by, "survivors first", grace_sec=0.0))


def try_survivors_again(at: Moment, event: Stop) -> Outcome:
    return _face_survivors(at, _asked(at, Then.REST, event.asked_by, event.reason, grace_sec=0.0))


def call_off(at: Moment, event: Stop) -> Outcome:
    """Nothing runs: not to start is all there is to do."""
    return stopped(at, event.asked_by, event.reason), ()


def stop(at: Moment, event: Stop) -> Outcome:
    return descend(at, SubState.STOP_TERM, _asked(at, Then.REST, event.asked_by, event.reason, _stop_grace(at, event)))


def stop_active(at: Moment, event: Stop) -> Outcome:
    return _leave_active(at, _asked(at, Then.REST, event.asked_by, event.reason, _stop_grace(at, event)))


def restart_starting(at: Moment, event: Restart) -> Outcome:
    return descend(at, SubState.STOP_TERM, _asked(at, Then.START, event.asked_by, event.reason, _stop_grace(at, event)))


def restart_active(at: Moment, event: Restart) -> Outcome:
    return _leave_active(at, _asked(at, Then.START, event.asked_by, event.reason, _stop_grace(at, event)))


def start_afterwards(at: Moment, event: Start) -> Outcome:
    """A start during a stop is remembered. After a crash it overrides the back-off."""
    return _redirect(at, Then.START, event.asked_by, "start asked for"), ()


def restart_afterwards(at: Moment, event: Restart) -> Outcome:
    redirected = replace(at, state=_redirect(at, Then.START, event.asked_by, event.reason))
    return _hasten(redirected, event.grace_sec)


def join_stop(at: Moment, event: Stop) -> Outcome:
    """A second stop joins the first, and may be in more of a hurry."""
    redirected = replace(at, state=_redirect(at, Then.REST, event.asked_by, event.reason))
    return _hasten(redirected, event.grace_sec)


def forgive(at: Moment, event: Event) -> Outcome:
    return replace(at.state, history=restart.forgiven(at.state.history)), ()


def reset(at: Moment, event: Event) -> Outcome:
    forgiven = replace(at.state, history=restart.forgiven(at.state.history))
    return to(forgiven, SubState.DEAD, at.now, "reset"), ()


def _face_survivors(at: Moment, descent: Descent) -> Outcome:
    """The invocation is not over after all: whoever stops it now waits until it is."""
    reopened = replace(at, state=replace(at.state, ended=at.state.invocation - 1))
    return descend(reopened, SubState.CLEANING, descent)


def _stop_grace(at: Moment, event: Stop | Restart) -> float:
    return at.rules.stop.timeout_sec if event.grace_sec is None else event.grace_sec


def _asked(at: Moment, then: Then, asked_by: str, reason: str, grace_sec: float) -> Descent:
    return Descent(then, grace_sec, asked_by=asked_by, reason=reason, healthy_sec=healthy_sec(at))


def _leave_active(at: Moment, descent: Descent) -> Outcome:
    return evidence_first(at, descent) if at.state.complaints else go_down(at, descent)


def _redirect(at: Moment, then: Then, asked_by: str, reason: str) -> UnitState:
    descent = replace(descent_of(at), then=then, asked_by=asked_by, reason=reason)
    return replace(at.state, descent=descent, reason=words_of(descent))


def _hasten(at: Moment, grace_sec: float | None) -> Outcome:
    descent = descent_of(at)
    if grace_sec is None or at.now + grace_sec >= _grace_ends(at.state, descent):
        return at.state, ()
    hurried = replace(descent, grace_sec=grace_sec)
    if at.state.sub_state is SubState.DIAGNOSE and grace_sec > 0:
        return replace(at.state, descent=hurried), ()
    sub_state = at.state.sub_state if at.state.sub_state is SubState.CLEANING else SubState.STOP_TERM
    return descend(at, sub_state, hurried)


def _grace_ends(state: UnitState, descent: Descent) -> float:
    match state.sub_state:
        case SubState.STOP_KILL:
            return state.since  # it is over already
        case SubState.CLEANING:
            return state.since + descent.grace_sec
        case SubState.DIAGNOSE:
            return state.deadline + descent.grace_sec
        case _:
            return state.deadline
