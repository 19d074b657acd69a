"""Who waits for the journal: whoever is about to act on what stands there; and one task, for all that nobody waits for.

A store that cannot write now stops what would follow, and nothing else: what serves goes on serving, heartbeats are
answered, and a run that needs a row waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from controller.events import EventLog
from controller.model.budget import Budget, BudgetKey
from controller.model.member import InstanceKey
from controller.model.relaunch.run import RunRecord
from controller.model.selection import ENGINE_RELAUNCH
from controller.recovery import Recovery
from controller.registry import Registry
from controller.store.base import CannotWrite, Store, StoreError

RETRY_SEC = 2.0
ANSWER_SEC = 4.0
"""Whoever asked for something is told by then that it is not written: before a client that waits for 5 s gives up."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Journal:
    def __init__(self, store: Store, registry: Registry, events: EventLog) -> None:
        self._store = store
        self._registry = registry
        self._events = events
        self._written_event = events.last_id
        self.is_broken = False
        """The last write failed; nothing new is commanded meanwhile."""

    async def insist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Again and again until it is written. Cancelled, it may or may not be. Raises Deposed."""
        while True:
            try:
                return await write()
            except CannotWrite as error:
                self._broken(error)
                await trio.sleep(RETRY_SEC)

    async def keep(self, key: InstanceKey | BudgetKey) -> None:
        """The instance, or the budget, as it is now, is written when this returns.

        Raises CannotWrite and Deposed; then, or cancelled, `run` writes it as soon as it can.
        """
        self._registry.unsaved.pop(key, None)
        try:
            if isinstance(key, BudgetKey):
                await self._store.save_budget(self._registry.budgets.with_key(key))
            elif instance := self._registry.newest(key):
                await self._store.save_instance(instance)
        except BaseException:
            self._registry.unsaved[key] = None
            raise
        self._mended()

    async def save_run(self, row: RunRecord) -> None:
        """After what earlier runs of its instance have left unwritten. Raises CannotWrite and Deposed."""
        for left in list(self._registry.unsaved):
            if isinstance(left, RunRecord) and left.instance == row.instance:
                await self._keep_row(left)
        await self._store.save_run(row)

    async def keep_budget(self, budget: Budget) -> None:
        """And its instance, which it may no longer hold. Raises as `keep`."""
        await self.keep(budget.key)
        await self.keep(budget.key.instance)

    async def has(self, recovery: Recovery, is_enough: Callable[[RunRecord], bool]) -> None:
        """The run itself writes its rows; such a one stands here when this returns, or the run has left none.

        Another strategy than the relaunch has none: a restart of the controller is the end of it.

        Raises CannotWrite after ANSWER_SEC; it may be written later.
        """
        if recovery.strategy != ENGINE_RELAUNCH:
            return
        has_it = False
        with trio.move_on_after(ANSWER_SEC):
            has_it = await recovery.until_written(is_enough)
        if not has_it:
            raise CannotWrite(f"the run {recovery.run_id} is not in the journal yet: see whether it is listed, and why")

    async def run(self) -> None:
        """Until cancelled. Raises Deposed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_what_changed)
            nursery.start_soon(self._keep_events)

    async def flush(self) -> None:
        """What is left, once; what cannot be written any more is lost, and only people miss it."""
        try:
            while self._registry.unsaved:
                await self._keep_first()
            while await self._keep_some_events():
                pass
        except StoreError as error:
            log.warning("the last events are not in the journal: %s", error)

    async def _keep_what_changed(self) -> None:
        while True:
            attention = self._registry.attention
            while self._registry.unsaved:
                await self.insist(self._keep_first)
            await attention.wait()

    async def _keep_first(self) -> None:
        """If there is one: while this waited to try again, somebody else may have written the last."""
        what = next(iter(self._registry.unsaved), None)
        if isinstance(what, RunRecord):
            await self._keep_row(what)
        elif what is not None:
            await self.keep(what)

    async def _keep_row(self, row: RunRecord) -> None:
        """It waits until it is written, so that whoever writes the next of its instance sees it."""
        await self._store.save_run(row)
        self._registry.unsaved.pop(row, None)
        self._mended()

    async def _keep_events(self) -> None:
        """Until the ring is closed, which is the end of this life."""
        while await self._events.ring.next_after(self._written_event):
            await self.insist(self._keep_some_events)

    async def _keep_some_events(self) -> bool:
        batch = self._events.since(self._written_event)
        if batch:
            await self._store.save_events(batch)
            self._written_event = batch[-1].id
            self._mended()
        return bool(batch)

    def _broken(self, error: CannotWrite) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._events.append(
                "controller", f"nothing is commanded until it can be written: {error}", level="error", reason="journal"
            )

    def _mended(self) -> None:
        if self.is_broken:
            self.is_broken = False
            self._events.append("controller", "the journal can be written again", reason="journal")
