"""The smallest moves of a unit's machine, from which the handlers are made."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from supervisor.unit import restart
from supervisor.unit.events import Action, AwaitDependencies
from supervisor.unit.restart import RestartHistory
from supervisor.unit.state import Rules, UnitState
from supervisor.unit.states import SubState


class Moment(msgspec.Struct, frozen=True):
    """What a handler decides from, beside its event."""

    rules: Rules
    state: UnitState
    now: float
    jitter: float
    """A chance in [0, 1)."""


Outcome = tuple[UnitState, tuple[Action, ...]]

TRIGGERED = "it triggered its own watchdog (WATCHDOG=trigger)"

OVERSLEPT_SEC = 0.5
"""A timer that goes off later than this tells that we were stopped (SIGSTOP, a frozen container, a paused machine).

What should have been heard meanwhile was not, and perhaps those who should have spoken were stopped as well.
"""


def overslept(at: Moment) -> bool:
    return at.now - at.state.deadline > OVERSLEPT_SEC


def to(state: UnitState, sub_state: SubState, now: float, reason: str, deadline: float = math.inf) -> UnitState:
    return replace(state, sub_state=sub_state, since=now, reason=reason, deadline=deadline)


def begin_invocation(at: Moment, history: RestartHistory, reason: str, *, restarts: int) -> Outcome:
    fresh = UnitState(
        sub_state=SubState.WAITING,
        since=at.now,
        reason=reason,
        invocation=at.state.invocation + 1,
        started=at.state.started,
        ended=at.state.invocation,
        restarts=at.state.restarts + restarts,
        history=restart.started(at.rules.restart, history, at.now),
        last_ending=at.state.last_ending,
    )
    return fresh, (AwaitDependencies(reason),)


def rest(at: Moment, sub_state: SubState, reason: str) -> UnitState:
    """This invocation is over, and so is what was said against it."""
    return replace(to(at.state, sub_state, at.now, reason), ended=at.state.invocation, complaints=())


def whose(asked_by: str | None, reason: str) -> str:
    """Who wanted it, and why, if it was said."""
    return f"{asked_by}: {reason}" if reason else f"{asked_by}"


def stopped(at: Moment, asked_by: str | None, reason: str) -> UnitState:
    """This invocation is over because somebody wanted it to be."""
    return replace(rest(at, SubState.DEAD, f"stopped by {whose(asked_by, reason)}"), stopped_by=asked_by)


def start_over(at: Moment) -> RestartHistory:
    clock = at.state.clock
    return at.state.history if clock is None else restart.start_took(at.state.history, at.now - clock.began_at)


def watchdog_sec(at: Moment) -> float:
    """Infinity: there is none."""
    if at.state.watchdog_sec is not None:
        return at.state.watchdog_sec
    return math.inf if at.rules.watchdog_sec is None else at.rules.watchdog_sec


def watchdog_deadline(at: Moment) -> float:
    return at.now + watchdog_sec(at)


def complaint_words(state: UnitState) -> str:
    return "; ".join(f"{complaint.probe} failed: {complaint.reason}" for complaint in state.complaints)
