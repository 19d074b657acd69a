"""Where a controller keeps what must outlive it: ids, epochs, budgets, runs, the leader's term.

Everything is written before its effect (C4). What a method promises holds when it returns; cancelled, the
write may or may not have happened, and the effect must not follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Instance
from controller.model.member import InstanceKey
from controller.model.relaunch.run import RunRecord


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an earlier life left, and the term of this one."""

    term: int
    next_instance_id: int
    instances: Mapping[InstanceKey, Instance] = field(default_factory=dict)
    """The last of each key."""
    budgets: Mapping[BudgetKey, Budget] = field(default_factory=dict)


class Store(Protocol):
    durable: bool
    """Whether another life of the controller can go on with an open run."""

    async def load(self) -> Loaded:
        """Once, before anything else: takes a new term."""

    async def take_term(self, at_least: int) -> int:
        """A term that no controller has had, and not lower than `at_least`."""

    async def save_instance(self, instance: Instance) -> None:
        """Its id, members, epochs and status; DELETED too: the id stays taken, the epoch goes on."""

    async def save_run(self, record: RunRecord) -> None:
        """A step of a run begins, or the run ends."""

    async def save_active(self, record: RunRecord, instance: Instance) -> None:
        """A run is done and its instance ACTIVE, in one transaction (C6)."""

    async def save_budget(self, budget: Budget) -> None: ...
