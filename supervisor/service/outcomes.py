"""What comes of what is asked of a service: reports, refusals, and the transitions others may watch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from supervisor.process.tree import TreeReport
from supervisor.service.exits import ExitRecord
from supervisor.unit.events import Action, Event
from supervisor.unit.state import UnitState


class StartFailed(Exception):
    """A start that was asked for did not get as far as a running process; the message says why."""


class DependencyUnmet(Exception):
    """A unit that this one needs is not going to be active; the message says which."""


class ConditionUnknown(DependencyUnmet):
    """Whether a Condition…= holds cannot be found out; that is a start that failed, and is tried again like one."""


class ConditionUnmet(Exception):
    """A Condition…= of the unit is not met: the unit is skipped, which is no failure."""


class StopReport(msgspec.Struct, frozen=True):
    gone: bool = True
    """Verified: nothing is left."""
    escalated: bool = False
    """Asking was not enough."""
    killed: tuple[int, ...] = ()
    left_behind: tuple[int, ...] = ()
    survivors: tuple[str, ...] = ()
    duration_sec: float = 0.0

    @classmethod
    def of(cls, report: TreeReport | None) -> StopReport:
        """None: there was nothing to stop."""
        if report is None:
            return cls()
        survivors = tuple(f"pid {one.pid} ({one.name}: {one.why})" for one in report.survivors)
        if not report.gone and not survivors:
            survivors = (report.reason,)
        return cls(report.gone, report.escalated, report.killed, report.left_behind, survivors, report.duration_sec)


class Transition(msgspec.Struct, frozen=True):
    """What one event did to a unit, for logs, event streams and metrics."""

    unit: str
    event: Event
    before: UnitState
    after: UnitState
    actions: tuple[Action, ...]
    epoch: int | None = None
    exit: ExitRecord | None = None
    """If it ended an invocation."""


Observer = Callable[[Transition], None]
"""Called in the middle of a decision: quick, without exceptions, and asking nothing of the same unit."""
