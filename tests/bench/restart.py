"""`kill -9` of a standalone unit's process, to the first statement of the process that takes its place."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from tests.bench.figures import Goal, Sheet
from tests.bench.managers import Manager, Podvisor, find_peers
from tests.bench.running import namespaces_refused, running
from tests.bench.workers import open_births

KILLS = 32
GAP_SEC = (0.05, 0.3)
"""Between a birth and the kill, at random: the moments lie anywhere in a poll period of the manager."""
SLOW_PEERS_SEC = 30.0
"""Those that poll get so much time, together, and fewer kills if it is not enough."""
NAME = "kill -9 to its successor's first statement"
GOAL = Goal(10)

Collect = Callable[[Manager, list[float]], Awaitable[None]]


async def measure(sheet: Sheet, scratch: Path) -> None:
    peers = find_peers()
    refused = namespaces_refused()
    collect = partial(_collect, scratch, in_namespace=refused is None)
    sheet.add("(bare fork and exec)", "to the first statement", "ms", await _bare(scratch))
    quick: list[Manager] = [peers.podvisor]
    if peers.dinit is not None:
        quick.append(peers.dinit)
    for manager in quick:
        goal = GOAL if isinstance(manager, Podvisor) else None
        samples: list[float] = []
        await collect(manager, samples)
        sheet.add(manager.name, NAME, "ms", samples, goal)
    slow = [manager for manager in (peers.supervisord, peers.circus) if manager is not None]
    await _beside_one_another(sheet, slow, collect)
    for missing in peers.missing:
        sheet.remark(missing)
    place = "PID 1 of a pid namespace" if refused is None else f"a plain process ({refused})"
    sheet.remark(f"every manager as {place}, back-off and start limits off, supervisord with startsecs=0")


async def _beside_one_another(sheet: Sheet, managers: Sequence[Manager], collect: Collect) -> None:
    """Managers whose time is a poll period, not work: they do not disturb one another."""
    samples: dict[str, list[float]] = {manager.name: [] for manager in managers}
    with trio.move_on_after(SLOW_PEERS_SEC):
        async with trio.open_nursery() as nursery:
            for manager in managers:
                nursery.start_soon(collect, manager, samples[manager.name])
    for name, values in samples.items():
        sheet.add(name, NAME, "ms", values)


async def _collect(scratch: Path, manager: Manager, samples: list[float], *, in_namespace: bool) -> None:
    directory = scratch / manager.name.partition(" ")[0]
    directory.mkdir()
    async with open_births(directory / "births") as births:
        argv = manager.prepare(directory, {"worker": births.command("worker")})
        async with running(argv, directory, in_namespace=in_namespace) as process:
            worker = await births.next()
            while len(samples) < KILLS:
                pid = process.host_pid(worker.pid)
                await trio.sleep(random.uniform(*GAP_SEC))
                killed_ns = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                worker = await births.next()
                samples.append((worker.at_ns - killed_ns) / 1e6)


async def _bare(scratch: Path) -> list[float]:
    """What no manager can be quicker than: this program starts the worker itself."""
    samples: list[float] = []
    async with open_births(scratch / "bare") as births:
        while len(samples) < KILLS:
            began_ns = time.monotonic_ns()
            with subprocess.Popen(births.command("worker")) as process:
                samples.append(((await births.next()).at_ns - began_ns) / 1e6)
                process.kill()
    return samples
