"""Virtual time: what is to happen, in order. It moves from one moment to the next and never waits."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Happening = Callable[[], None]


class Agenda:
    """Of what is due at the same moment, what was put down first happens first: no run depends on chance of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        """How much has, for people."""
        self._due: list[tuple[float, int, Happening]] = []
        self._put_down = 0

    def at(self, moment: float, happen: Happening) -> None:
        """A moment that is over means now."""
        heappush(self._due, (max(moment, self.now), self._put_down, happen))
        self._put_down += 1

    def after(self, seconds: float, happen: Happening) -> None:
        self.at(self.now + seconds, happen)

    def run(self, end: float, after_each: Callable[[], None]) -> None:
        """Everything that is due until `end`, which is then the present."""
        while self._due and self._due[0][0] <= end:
            self.now, _, happen = heappop(self._due)
            self.happened += 1
            happen()
            after_each()
        self.now = end
