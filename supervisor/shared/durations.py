"""Histograms of how long the steps of relaunches took, as both programs count them."""

from __future__ import annotations

from bisect import bisect_left

STEP_BUCKETS_SEC = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""From a kill to the load of a large model."""


class Durations:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(STEP_BUCKETS_SEC) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(STEP_BUCKETS_SEC, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus has them: how many were at most so long."""
        counted, buckets = 0, []
        for bound, count in zip((*map(str, STEP_BUCKETS_SEC), "+Inf"), self.counts, strict=True):
            counted += count
            buckets.append((bound, float(counted)))
        return buckets
