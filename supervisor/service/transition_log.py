"""Which moves of a unit people are told of, and how urgently; all others are for those who debug.

A unit that starts says so once, when it has a process, and once more when it is ready, if that takes a probe. The
record has the unit, its process and its epoch as fields, for those who search by them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from supervisor.service.outcomes import Transition
from supervisor.unit.events import Exited, ReportStartLimit, TreeGone
from supervisor.unit.model import StartLimitAction
from supervisor.unit.state import Fault, UnitState
from supervisor.unit.states import SubState

log = logging.getLogger(__name__)

LEVELS: Mapping[SubState, int] = MappingProxyType(
    {
        SubState.DEAD: logging.INFO,
        SubState.WAITING: logging.DEBUG,
        SubState.START_PRE: logging.DEBUG,
        SubState.START: logging.DEBUG,
        SubState.LOADING: logging.INFO,
        SubState.RESTORING: logging.INFO,
        SubState.START_POST: logging.DEBUG,
        SubState.READY: logging.INFO,
        SubState.UNHEALTHY: logging.WARNING,
        SubState.EXITED: logging.INFO,
        SubState.DIAGNOSE: logging.INFO,
        SubState.STOPPING: logging.INFO,
        SubState.STOP: logging.INFO,
        SubState.STOP_TERM: logging.INFO,
        SubState.STOP_KILL: logging.WARNING,
        SubState.CLEANING: logging.DEBUG,
        SubState.STOP_POST: logging.DEBUG,
        SubState.AUTO_RESTART: logging.INFO,
        SubState.FAILED: logging.WARNING,
        SubState.START_LIMIT_HIT: logging.ERROR,
        SubState.UNKILLABLE: logging.ERROR,
    }
)
"""By where the unit has got to."""


def tell(transition: Transition) -> None:
    if not is_move(transition):
        return
    after = transition.after
    extra = {"unit": transition.unit, "pid": after.main_pid, "epoch": transition.epoch}
    log.log(level_of(transition), "%s", words(transition), extra=extra)


def is_move(transition: Transition) -> bool:
    before, after = transition.before, transition.after
    return after.sub_state is not before.sub_state or after.invocation != before.invocation


def words(transition: Transition) -> str:
    before, after = transition.before, transition.after
    why = "; ".join((after.reason, *_next_step(transition)))
    return f"{transition.unit}: {before.sub_state} -> {after.sub_state}: {why}"


def level_of(transition: Transition) -> int:
    if _fault(transition.after) is not None and _fault(transition.before) is None:
        return logging.WARNING  # it ends, and nobody had asked for that
    return logging.WARNING if _daemonised(transition) else LEVELS[transition.after.sub_state]


def _daemonised(transition: Transition) -> tuple[int, ...]:
    """What a program that ended well left running, as daemons do: to us it has ended, and the rest is cleared away."""
    match transition.event:
        case TreeGone(exit=Exited(code=0), left_behind=left) if transition.before.fault is not None:
            return left
        case _:
            return ()


def _fault(state: UnitState) -> Fault | None:
    """That of a restore too, which is no death: people should know that it failed."""
    return None if state.descent is None else state.descent.fault


def _next_step(transition: Transition) -> Iterator[str]:
    """What a person can do where nothing more happens by itself."""
    unit = transition.unit
    if ReportStartLimit(StartLimitAction.NONE, transition.after.reason) in transition.actions:
        yield f"once that is mended: podvisor start {unit}"
    elif transition.after.sub_state is SubState.UNKILLABLE:
        yield f"nothing is started beside that; podvisor stop {unit} tries again"
    if left := _daemonised(transition):
        which = "1 process" if len(left) == 1 else f"{len(left)} processes"
        yield f"it had left {which} running, which were ended: keep it in the foreground, or set ExitType=cgroup"
