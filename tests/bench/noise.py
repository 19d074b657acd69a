"""How quiet the machine is: without it a figure of milliseconds says little."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 15
LOOP = 100_000
NAPS = 50
NAP_SEC = 0.001


@dataclass(frozen=True, slots=True)
class Quietness:
    """One look, taken while nothing of ours runs. Takes about a quarter of a second."""

    load: float
    """The load average over one minute."""
    loop_ms: float
    """The median of a fixed piece of pure Python: how fast a core is."""
    loop_worst_ms: float
    """The worst of them: how often others take the core away."""
    late_ms: float
    """By how much a sleep of 1 ms comes back too late, median."""
    late_worst_ms: float

    def __str__(self) -> str:
        return (
            f"load {self.load:.2f}, loop {self.loop_ms:.1f} ms (worst {self.loop_worst_ms:.1f}), "
            f"wake-ups late by {self.late_ms:.2f} ms (worst {self.late_worst_ms:.2f})"
        )


def look() -> Quietness:
    """Blocks the caller: that is the measurement."""
    loops = [_loop_ms() for _ in range(ROUNDS)]
    naps = [_late_ms() for _ in range(NAPS)]
    return Quietness(os.getloadavg()[0], statistics.median(loops), max(loops), statistics.median(naps), max(naps))


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Of all cores since boot, in clock ticks."""

    busy: int
    total: int

    @classmethod
    def now(cls) -> CpuTimes:
        fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        idle = fields[3] + fields[4]  # idle and iowait, proc(5)
        return cls(sum(fields) - idle, sum(fields))

    def busy_since(self, earlier: CpuTimes) -> float:
        """The part of all cores' time that anybody used, the benchmark included."""
        return (self.busy - earlier.busy) / max(1, self.total - earlier.total)


def _loop_ms() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(LOOP):
        total += number
    return (time.perf_counter() - began) * 1e3


def _late_ms() -> float:
    began = time.perf_counter()
    time.sleep(NAP_SEC)
    return (time.perf_counter() - began - NAP_SEC) * 1e3
