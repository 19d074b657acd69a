"""What happened to the pods, in order, for a test or a scene that waits for it."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

KEPT_EVENTS = 10_000

Event = TypeVar("Event")


@dataclass(frozen=True)
class Entry(Generic[Event]):
    """`at` is trio.current_time() of the publication; `number` counts from 0."""

    number: int
    at: float
    event: Event


class Timeline(Generic[Event]):
    """The newest KEPT_EVENTS events. One writer or many; any number may wait."""

    def __init__(self) -> None:
        self._entries: deque[Entry[Event]] = deque(maxlen=KEPT_EVENTS)
        self._next_number = 0
        self._grown = trio.Event()

    @property
    def entries(self) -> tuple[Entry[Event], ...]:
        return tuple(self._entries)

    @property
    def next_number(self) -> int:
        """The number that the next event will get: what to give to `wait_for` before doing something."""
        return self._next_number

    def publish(self, event: Event) -> None:
        self._entries.append(Entry(self._next_number, trio.current_time(), event))
        self._next_number += 1
        self._grown.set()
        self._grown = trio.Event()

    async def wait_for(self, wanted: Callable[[Event], bool], *, since: int = 0) -> Entry[Event]:
        """The first event with a number >= `since` that is wanted, also one that has happened already."""
        seen = since
        while True:
            for entry in self._entries:
                if entry.number >= seen and wanted(entry.event):
                    return entry
            seen = max(seen, self._next_number)
            await self._grown.wait()
