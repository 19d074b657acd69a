"""The one writer of a leadership: writes in the order in which they were asked for, each fenced by the leader key.

What waits while a transaction is under way goes into the next one, so that many runs at once cost few round trips.
What is written where is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from controller.store.base import CannotWrite, Deposed, StoreError
from controller.store.etcd_client import EtcdClient, EtcdRefused, EtcdUnavailable
from controller.store.etcd_messages import Compare, Operation
from supervisor.shared.error_window import ErrorWindow

MAX_OPERATIONS = 100
"""etcd takes 128 in a transaction by default."""
MAX_BYTES = 512 * 1024
"""etcd takes 1.5 MiB in a request by default; base64 makes a third more of it."""
RETRY_SEC = 0.2
NO_LONGER = "this controller no longer leads"

log = logging.getLogger(__name__)

Writes = Mapping[bytes, Operation]
"""What becomes of each key."""


@dataclass(eq=False)
class _Batch:
    operations: dict[bytes, Operation] = field(default_factory=dict)
    size: int = 0
    done: trio.Event = field(default_factory=trio.Event)
    error: StoreError | None = None

    def has_room_for(self, writes: Writes, size: int) -> bool:
        fits = len(self.operations) + len(writes) <= MAX_OPERATIONS and self.size + size <= MAX_BYTES
        return fits or not self.operations

    def add(self, writes: Writes, size: int) -> None:
        """A key that is there already gets its newer value."""
        self.operations.update(writes)
        self.size += size


class EtcdWriter:
    """`run` has to run as long as anything is written."""

    def __init__(self, client: EtcdClient, leads: Compare, patience_sec: float, deposed: Callable[[str], None]) -> None:
        """`leads` holds as long as we do; `deposed` is told when it does not.

        A write that etcd has not taken after `patience_sec` is given up.
        """
        self._client = client
        self._leads = leads
        self._patience_sec = patience_sec
        self._deposed = deposed
        self._waiting: list[_Batch] = []
        self._wanted = trio.Event()
        self._has_ended = False
        self._errors = ErrorWindow()

    async def write(self, writes: Writes) -> None:
        """All of it, or nothing. Cancelled, it is written or not. Raises CannotWrite and Deposed."""
        if self._has_ended:
            raise Deposed(NO_LONGER)
        size = sum(operation.size for operation in writes.values())
        if not self._waiting or not self._waiting[-1].has_room_for(writes, size):
            self._waiting.append(_Batch())
        batch = self._waiting[-1]
        batch.add(writes, size)
        self._wanted.set()
        await batch.done.wait()
        if batch.error is not None:
            raise type(batch.error)(*batch.error.args) from batch.error

    async def run(self) -> None:
        """Until cancelled; who still waits then is told that we no longer lead, whatever became of the write."""
        batch = None
        try:
            while True:
                while not self._waiting:
                    self._wanted = trio.Event()
                    await self._wanted.wait()
                batch = self._waiting.pop(0)
                batch.error = await self._commit(batch)
                batch.done.set()
        finally:
            self._has_ended = True
            for left in [*([batch] if batch else []), *self._waiting]:
                left.error = left.error or Deposed(NO_LONGER)
                left.done.set()

    async def _commit(self, batch: _Batch) -> StoreError | None:
        """A transaction that was not answered may have been carried out: again it does the same."""
        why = ""
        with trio.move_on_after(self._patience_sec):
            while True:
                try:
                    outcome = await self._client.transact((self._leads,), tuple(batch.operations.values()))
                except EtcdRefused as refused:
                    return CannotWrite(f"{refused}; see that etcd has room and that our user may write, then try again")
                except EtcdUnavailable as error:
                    why = str(error)
                    self._tell(why)
                    await trio.sleep(RETRY_SEC)
                    continue
                self._errors.clear("etcd")
                return None if outcome.succeeded else self._refused()
        return CannotWrite(f"etcd has not taken a write for {self._patience_sec:g} s: {why or 'it does not answer'}")

    def _refused(self) -> Deposed:
        why = "our leader key in etcd is gone: another controller leads, or may"
        self._deposed(why)
        return Deposed(why)

    def _tell(self, why: str) -> None:
        held_back = self._errors.admit("etcd", trio.current_time())
        if held_back is not None:
            log.warning("etcd does not take a write, trying again: %s", why, extra={"held_back": held_back})
