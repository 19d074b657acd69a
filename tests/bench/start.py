"""The manager itself: how soon it runs its first unit and answers, and what it costs while nothing happens."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import trio

from tests.bench.figures import Goal, Sheet
from tests.bench.managers import Manager, Podvisor, Request, find_peers
from tests.bench.running import Running, running
from tests.bench.workers import open_births

STARTS = 10
STARTS_OF_PEERS = 3
RETRY_SEC = 0.002
UNITS_AT_REST = 10
SETTLE_SEC = 3.0
REST_SEC = 10.0

FIRST_UNIT = Goal(200)
ANSWER = Goal(600)
MEMORY = Goal(52)
IDLE = Goal(0.3)


async def measure(sheet: Sheet, scratch: Path) -> None:
    peers = find_peers()
    others: list[Manager] = [peer for peer in (peers.supervisord, peers.circus, peers.dinit) if peer is not None]
    await _bare(sheet, imported="trio")
    await _starts(sheet, peers.podvisor, scratch, STARTS)
    for manager in others:
        await _starts(sheet, manager, scratch, STARTS_OF_PEERS)
    await _rest(sheet, [peers.podvisor, *others], scratch)
    for missing in peers.missing:
        sheet.remark(missing)


async def _bare(sheet: Sheet, *, imported: str) -> None:
    """What no program on this Python and this event loop can be quicker than, on the machine as it is now."""
    samples = []
    for _ in range(STARTS):
        began = time.perf_counter()
        await trio.run_process([sys.executable, "-I", "-c", f"import {imported}"])
        samples.append((time.perf_counter() - began) * 1e3)
    sheet.add(f"(python -c 'import {imported}')", "from its start to its end", "ms", samples)


async def _starts(sheet: Sheet, manager: Manager, scratch: Path, count: int) -> None:
    first_unit: list[float] = []
    cpu: list[float] = []
    answer: list[float] = []
    for number in range(count):
        directory = scratch / f"{manager.name.partition(' ')[0]}-{number}"
        directory.mkdir()
        async with open_births(directory / "births") as births:
            argv = manager.prepare(directory, {"worker": births.command("worker")})
            began_ns = time.monotonic_ns()
            async with running(argv, directory) as process:
                first_unit.append(((await births.next()).at_ns - began_ns) / 1e6)
                cpu.append(process.cpu_sec * 1e3)
                if (request := manager.request(directory)) is not None:
                    answer.append((await _first_answer(request) - began_ns) / 1e6)
    ours = isinstance(manager, Podvisor)
    name = "exec to the first unit's first statement"
    sheet.add(manager.name, name, "ms", first_unit, FIRST_UNIT if ours else None)
    sheet.add(manager.name, "CPU time used until then", "ms", cpu)
    if answer:
        sheet.add(manager.name, "exec to the control socket's first answer", "ms", answer, ANSWER if ours else None)


async def _first_answer(request: Request) -> int:
    """When it came, on time.monotonic_ns()'s clock. A socket that is there but not served yet makes us wait."""
    while True:
        try:
            stream = await trio.open_unix_socket(str(request.socket))
        except OSError:
            await trio.sleep(RETRY_SEC)
            continue
        async with stream:
            await stream.send_all(request.message)
            head = await stream.receive_some(4096)
        at_ns = time.monotonic_ns()
        if b" 200 " not in head:
            raise RuntimeError(f"{request.socket} answered {head[:200]!r}, expected status 200")
        return at_ns


async def _rest(sheet: Sheet, managers: Sequence[Manager], scratch: Path) -> None:
    """All of them at once: each one's own CPU time is counted, and waiting takes none."""
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(_at_rest(manager, scratch)) for manager in managers]
        await trio.sleep(SETTLE_SEC)
        before = [process.cpu_sec for process in processes]
        await trio.sleep(REST_SEC)
        used = [process.cpu_sec - earlier for process, earlier in zip(processes, before, strict=True)]
        memory = [psutil.Process(process.pid).memory_info().rss / 2**20 for process in processes]
    for manager, resident in zip(managers, memory, strict=True):
        goal = MEMORY if isinstance(manager, Podvisor) else None
        sheet.add(manager.name, f"RSS at rest with {UNITS_AT_REST} units", "MiB", [resident], goal)
    for manager, seconds in zip(managers, used, strict=True):
        goal = IDLE if isinstance(manager, Podvisor) else None
        name = f"CPU of one core at rest with {UNITS_AT_REST} units"
        sheet.add(manager.name, name, "%", [100 * seconds / REST_SEC], goal)


@asynccontextmanager
async def _at_rest(manager: Manager, scratch: Path) -> AsyncIterator[Running]:
    """All of its units have begun and, where it has a control socket, that answers."""
    directory = scratch / f"{manager.name.partition(' ')[0]}-rest"
    directory.mkdir()
    async with open_births(directory / "births") as births:
        programs = {f"worker{number}": births.command("worker") for number in range(UNITS_AT_REST)}
        async with running(manager.prepare(directory, programs), directory) as process:
            for _ in programs:
                await births.next()
            if (request := manager.request(directory)) is not None:
                await _first_answer(request)
            yield process
