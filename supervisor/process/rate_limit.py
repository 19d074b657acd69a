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
        self.limit = limit
        """May be replaced at any time."""
        self._ends_at = -math.inf
        self._passed = 0
        self._suppressed = 0

    def admit(self, lines: list[bytes], now: float) -> tuple[list[bytes], int]:
        """The lines that may pass, and how many were suppressed in an interval that is over."""
        if self.limit is None or not lines:
            return lines, 0
        told = 0
        if now >= self._ends_at:
            told, self._suppressed = self._suppressed, 0
            self._ends_at, self._passed = now + self.limit.interval_sec, 0
        passing = lines[: max(0, self.limit.burst - self._passed)]
        self._passed += len(passing)
        self._suppressed += len(lines) - len(passing)
        return passing, told
