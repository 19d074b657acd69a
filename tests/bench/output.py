"""How many log lines one pump moves, and at what price; the pump runs in a process of its own, see pump.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

from tests.bench.figures import Goal, Sheet

ROUNDS = 5
MODES = {"pass": 300, "null": 300, "prefix": 30, "json": 30}
"""StandardOutput, and the megabytes of one round: those that touch every line get fewer."""
SPEED = Goal(300, at_least=True)
CORES = Goal(1)


async def measure(sheet: Sheet, scratch: Path) -> None:
    for mode, megabytes in MODES.items():
        rounds = [await _round(mode, megabytes) for _ in range(ROUNDS)]
        ours = mode == "pass"
        speeds = [found["megabytes"] / found["wall_sec"] for found in rounds]
        cores = [found["cpu_sec"] / found["wall_sec"] for found in rounds]
        sheet.add(f"podvisor, {mode}", "log lines moved", "MB/s", speeds, SPEED if ours else None)
        sheet.add(f"podvisor, {mode}", "CPU used meanwhile", "cores", cores, CORES if ours else None)
        sheet.add(
            f"podvisor, {mode}",
            "moved for a second of CPU",
            "MB",
            [one["megabytes"] / one["cpu_sec"] for one in rounds],
        )
        if dropped := sum(found["dropped"] for found in rounds):
            sheet.remark(f"{mode}: {dropped / 1e6:.0f} of {ROUNDS * megabytes} MB were dropped: no room, and counted")


async def _round(mode: str, megabytes: int) -> dict[str, float]:
    argv = [sys.executable, "-m", "tests.bench.pump", mode, str(megabytes)]
    done = await trio.run_process(argv, capture_stdout=True, cwd=Path(__file__).parents[2])
    found: dict[str, float] = json.loads(done.stdout)
    return found
