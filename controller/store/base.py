"""Where a controller keeps what must outlive it: ids, epochs, budgets, runs, events, the leader's term.

Everything is written before its effect (C4). What a method promises holds when it returns; cancelled, the
write may or may not have happened, and the effect must not follow. Every method may raise Deposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controller.events import ControllerEvent
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Instance
from controller.model.member import InstanceKey
from controller.model.relaunch.run import RunRecord

CLOSED_RUNS_KEPT = 200
EVENTS_KEPT = 2000
PAST_INSTANCES_KEPT = 2000


YEAR_2026 = 1_767_225_600


def first_instance_id(utc: float) -> int:
    """One that no earlier life can have given out, also one whose store is lost: ids are never reused."""
    return max(1, int(utc) - YEAR_2026)


class StoreError(Exception):
    """What was to be written is not written; the message says why, and what to do."""


class CannotWrite(StoreError):
    """For now, or until somebody helps: the disk is full, read-only, or too slow. Try again later."""


class Deposed(StoreError):
    """Another controller leads: nothing was written, and nothing more may be sent. The leadership is told first."""


class CannotOpen(Exception):
    """What is kept cannot be used by this program; the message names the file, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an earlier life left, and the term of this one. Times are monotonic, of this life's clock."""

    term: int
    next_instance_id: int
    event_series: str | None = None
    """Eight hexadecimal digits that tell the numbers of its events from another store's; None: of this life alone."""
    instances: Mapping[InstanceKey, Instance] = field(default_factory=dict)
    """The last of each key: those that live, and the DELETED ones whose epoch goes on."""
    budgets: Mapping[BudgetKey, Budget] = field(default_factory=dict)
    runs: Mapping[InstanceKey, RunRecord] = field(default_factory=dict)
    """Open ones, to be resumed."""
    closed_runs: Sequence[RunRecord] = ()
    """Newest first."""
    events: Sequence[ControllerEvent] = ()
    """Oldest first."""


class Store(Protocol):
    """Whatever writes raises CannotWrite or Deposed, and then has written nothing."""

    durable: bool
    """Whether another life of the controller can go on with an open run."""

    async def load(self) -> Loaded:
        """Once, before anything else: takes a new term. Raises CannotOpen too."""

    async def take_term(self, at_least: int) -> int:
        """A term that no controller has had, and not lower than `at_least`."""

    async def save_instance(self, instance: Instance) -> None:
        """Its id, members, epochs and status; DELETED too: the id stays taken, the epoch goes on."""

    async def save_run(self, record: RunRecord) -> None:
        """A step of a run begins, or the run ends."""

    async def save_active(self, record: RunRecord, instance: Instance) -> None:
        """A run is done and its instance ACTIVE, in one transaction (C6)."""

    async def save_budget(self, budget: Budget) -> None: ...

    async def save_events(self, events: Sequence[ControllerEvent]) -> None:
        """For people: written after the fact, so that the last ones of a killed controller may be missing."""
