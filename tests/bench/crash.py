"""What a crash leaves behind, when the program had started something in a session of its own."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import trio

from tests.bench.figures import Goal, Sheet
from tests.bench.managers import Manager, Podvisor, find_peers
from tests.bench.running import Running, namespaces_refused, running
from tests.bench.workers import open_births

CRASHES = 100
CRASHES_OF_PEERS = 5
"""Some of them take a second or more for each."""
PER_CRASH = 2
"""The program, and what it starts."""
SETTLE_SEC = 1.0
NOTHING = Goal(0)


async def measure(sheet: Sheet, scratch: Path) -> None:
    peers = find_peers()
    refused = namespaces_refused()
    if refused is not None:
        sheet.remark(f"not as PID 1 of a pid namespace: {refused}")
    managers: Sequence[Manager | None] = (peers.podvisor, peers.dinit, peers.supervisord, peers.circus)
    for manager in managers:
        if manager is not None:
            await _crash(sheet, manager, scratch, in_namespace=refused is None)
    for missing in peers.missing:
        sheet.remark(missing)


async def _crash(sheet: Sheet, manager: Manager, scratch: Path, *, in_namespace: bool) -> None:
    ours = isinstance(manager, Podvisor)
    crashes, goal = (CRASHES, NOTHING) if ours else (CRASHES_OF_PEERS, None)
    directory = scratch / manager.name.partition(" ")[0]
    directory.mkdir()
    async with open_births(directory / "births") as births:
        program = directory / "program"  # a file, since managers differ in what they take for quotes
        program.write_text(f"setsid sleep 600 & exec {shlex.join(births.command('worker'))}\n")
        argv = manager.prepare(directory, {"worker": ("sh", str(program))})
        async with running(argv, directory, in_namespace=in_namespace) as process:
            worker = await births.next()
            await trio.sleep(SETTLE_SEC)
            descriptors = _descriptors(process)
            for _ in range(crashes):
                os.kill(process.host_pid(worker.pid), signal.SIGKILL)
                worker = await births.next()
            await trio.sleep(SETTLE_SEC)
            processes = len(psutil.Process(process.pid).children(recursive=True)) - PER_CRASH
            sheet.add(manager.name, "processes left behind by a crash", "processes", [processes / crashes], goal)
            grown = _descriptors(process) - descriptors
            sheet.add(manager.name, "descriptors left behind by a crash", "descriptors", [grown / crashes], goal)
    sheet.remark(f"{manager.name}: after {crashes} crashes in a row")


def _descriptors(process: Running) -> int:
    count: int = psutil.Process(process.pid).num_fds()
    return count
