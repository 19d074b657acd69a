"""LogRateLimitIntervalSec and LogRateLimitBurst (journald.conf(5)). Pure."""

from __future__ import annotations

import math

import msgspec


class RateLimit(msgspec.Struct, frozen=True):
    """At most `burst` lines in each interval."""

    interval_sec: float
    burst: int


class LineLimiter:
    """Counts lines in intervals that begin with the first line after the last interval's end."""

    def __init__(self, limit: RateLimit | None) -> None:
        self._limit = limit
        self._ends_at = -math.inf
        self._passed = 0
        self._suppressed = 0

    @property
    def due(self) -> float:
        """When `take_suppressed` has something to tell though no line comes; infinite if there is nothing."""
        return self._ends_at if self._suppressed else math.inf

    def take_suppressed(self) -> int:
        """How many were suppressed and not told yet."""
        told, self._suppressed = self._suppressed, 0
        return told

    def admit(self, lines: list[bytes], now: float) -> tuple[list[bytes], int]:
        """The lines that may pass, and how many were suppressed in an interval that is over."""
        if self._limit is None or not lines:
            return lines, 0
        told = 0
        if now >= self._ends_at:
            told = self.take_suppressed()
            self._ends_at, self._passed = now + self._limit.interval_sec, 0
        passing = lines[: max(0, self._limit.burst - self._passed)]
        self._passed += len(passing)
        self._suppressed += len(lines) - len(passing)
        return passing, told
