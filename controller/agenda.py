"""Which instances are to be looked at because of the time alone, and when."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from controller.entry import Entry


class Agenda:
    """One appointment for each entry: a later one takes the place of the one before."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
        self._numbers = count()
        """Entries have no order of their own."""

    def put(self, entry: Entry, at: float) -> None:
        entry.look_at = at
        heapq.heappush(self._heap, (at, next(self._numbers), entry))

    def due(self, now: float) -> Iterator[Entry]:
        """Those whose time has come, whether they still live or not; each needs its next appointment."""
        while self._heap and self._heap[0][0] <= now:
            at, _, entry = heapq.heappop(self._heap)
            if at == entry.look_at:
                yield entry
