"""A bounded memory of events, numbered, and read by any number of readers at their own pace.

A reader holds nothing but the number of the last event that it has seen: one that is slow, or that has stopped
reading, costs nothing. What it asks for too late is told as a gap. What an event is, each program says itself.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

import trio

KEPT = 2000
"""Events that a reader may be behind."""
BATCH = 200
"""Events that are handed out at a time: so many a reader that stops reading keeps alive."""


class Numbered(Protocol):
    @property
    def id(self) -> int: ...


E = TypeVar("E", bound=Numbered)


class EventRing(Generic[E]):
    """Numbers grow, also over the lives of a program that keeps its events; between two lives some are left out."""

    def __init__(
        self,
        gap: Callable[[int, int], E],
        *,
        kept: int = KEPT,
        earlier: Iterable[E] = (),
        first: int = 1,
        life: str | None = None,
    ) -> None:
        """`gap` makes the event that stands for those from its first to its second argument; it has the latter's id.

        `earlier` events are those of lives before, oldest first; the next one gets the number `first`. `life` is then
        what these lives have in common.
        """
        self.life = life or secrets.token_hex(4)
        """Tells the numbers of this life from those of another."""
        self._gap = gap
        self._events: deque[E] = deque(earlier, maxlen=kept)
        self._next = first
        self._forgotten = self._events[0].id - 1 if self._events else first - 1
        """The newest that is not kept; 0: none."""
        self._appended = trio.Event()
        self._closed = False

    @property
    def last_id(self) -> int:
        """The highest number that was given, or left out."""
        return self._next - 1

    def position(self, last_id: int) -> str:
        """Where a reader is that has seen so far, for a client that comes back: it names the life too."""
        return f"{self.life}-{last_id}"

    def append(self, make: Callable[[int], E]) -> E:
        """Add the event that is made of its number."""
        event = make(self._next)
        self._next += 1
        if len(self._events) == self._events.maxlen:
            self._forgotten = self._events[0].id
        self._events.append(event)
        self._announce()
        return event

    def since(self, last_id: int) -> list[E]:
        """The events after `last_id`, oldest first; begins with a gap if others were forgotten in between.

        An id of the future (of an earlier life that is forgotten) counts as 0.
        """
        if last_id >= self._next:
            last_id = 0
        found = list(takewhile(lambda event: event.id > last_id, reversed(self._events)))
        if last_id < self._forgotten:
            found.append(self._gap(last_id + 1, self._forgotten))
        return found[::-1]

    async def next_after(self, last_id: int) -> list[E]:
        """The next few of `since`, once there are any; none only when the ring is closed.

        Cancelled: nothing happened.
        """
        while True:
            appended = self._appended  # taken before the look, so that nothing falls between the two
            batch = self.since(last_id)[:BATCH]
            if batch or self._closed:
                return batch
            await appended.wait()

    def close(self) -> None:
        """Readers end once they have read everything: an open stream must not hold up a shutdown."""
        self._closed = True
        self._announce()

    def _announce(self) -> None:
        appended, self._appended = self._appended, trio.Event()
        appended.set()
