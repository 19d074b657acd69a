"""A store that ends with its process: for one controller whose loss only costs open runs.

A controller that comes back without it learns terms and epochs from the supervisors, adopts the gangs that
run, and relaunches none that is healthy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from controller.events import ControllerEvent
from controller.model.budget import Budget
from controller.model.instance import Instance
from controller.model.relaunch.run import RunRecord
from controller.store import base
from controller.store.base import Loaded


class MemoryStore:
    durable = False

    def __init__(self, first_instance_id: int | None = None) -> None:
        """`first_instance_id` None: one that no earlier life can have given out (ids are never reused)."""
        self._next_instance_id = base.first_instance_id(time.time()) if first_instance_id is None else first_instance_id
        self._term = 0

    async def load(self) -> Loaded:
        return Loaded(term=await self.take_term(1), next_instance_id=self._next_instance_id)

    async def take_term(self, at_least: int) -> int:
        self._term = max(self._term + 1, at_least)
        return self._term

    async def save_instance(self, instance: Instance) -> None:
        """The registry remembers it; here only its id stays taken, for the registry of another leadership."""
        self._next_instance_id = max(self._next_instance_id, instance.id + 1)

    async def save_run(self, record: RunRecord) -> None:
        """An open run is lost with the process."""

    async def save_active(self, record: RunRecord, instance: Instance) -> None: ...

    async def save_budget(self, budget: Budget) -> None: ...

    async def save_events(self, events: Sequence[ControllerEvent]) -> None: ...
