"""What is to be written, the newest for each key, in order; bounded, so that an API that is away costs no memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

CAPACITY = 2000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[V]):
    value: V
    due_at: float


class Outbox(Generic[K, V]):
    """One writer takes what others put; both are of one trio run."""

    def __init__(self, dropped: Callable[[], None], capacity: int = CAPACITY) -> None:
        """`dropped` is told of everything that was put and is never written."""
        self._dropped = dropped
        self._capacity = capacity
        self._waiting: dict[K, _Waiting[V]] = {}
        self._put = trio.Event()

    def put(self, key: K, value: V, due_at: float) -> None:
        """In the place of what waits under this key; if too much waits, what has waited for longest is dropped."""
        self._waiting[key] = _Waiting(value, due_at)
        if len(self._waiting) > self._capacity:
            del self._waiting[next(iter(self._waiting))]
            self._dropped()
        self._announce()

    def put_back(self, key: K, value: V, due_at: float) -> None:
        """It could not be written; what was put meanwhile is newer."""
        newer = self._waiting.get(key)
        self.put(key, newer.value if newer else value, due_at)

    def forget(self, key: K) -> None:
        """It is not to be written any more."""
        self._waiting.pop(key, None)

    def forget_all_but(self, keys: set[K]) -> None:
        """Under any other key nothing is to be written any more."""
        for key in self._waiting.keys() - keys:
            del self._waiting[key]

    def has(self, key: K) -> bool:
        return key in self._waiting

    async def next(self) -> tuple[K, V]:
        """The first that is due; waits until one is. Cancelled, nothing is taken."""
        while True:
            put, now = self._put, trio.current_time()
            for key, waiting in self._waiting.items():
                if waiting.due_at <= now:
                    del self._waiting[key]
                    return key, waiting.value
            earliest = min((waiting.due_at for waiting in self._waiting.values()), default=float("inf"))
            with trio.CancelScope(deadline=earliest):
                await put.wait()

    def _announce(self) -> None:
        self._put.set()
        self._put = trio.Event()
