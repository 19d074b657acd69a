"""Services made of real processes, in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from msgspec.structs import replace

from supervisor.process.children import Children
from supervisor.process.output import ContainerStdout, Output
from supervisor.service.launch import unit_launch
from supervisor.service.operations import Surroundings
from supervisor.service.outcomes import Observer
from supervisor.service.processes import LinuxProcesses
from supervisor.service.service import Service
from supervisor.unit.model import Command, RestartPolicy, RestartSettings, Unit
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.state import rules_of
from tests.support.real_processes import reaping

FOREVER = ServiceTable(exec_start=Command(("sleep", "600")))
NO_RESTART = RestartSettings(policy=RestartPolicy.NO)


def python(program: str, *arguments: str) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", program, *arguments))


@asynccontextmanager
async def running(
    service: ServiceTable = FOREVER, *, around: Surroundings | None = None, **parts: object
) -> AsyncIterator[Service]:
    unit = replace(Unit("unit", Path("unit.toml"), service=service), **parts)
    async with reaping() as children, trio.open_nursery() as nursery:
        shell = shell_of(unit, children, around)
        await nursery.start(shell.run)
        yield shell
        nursery.cancel_scope.cancel()


def shell_of(
    unit: Unit, children: Children, around: Surroundings | None = None, observers: Sequence[Observer] = ()
) -> Service:
    output = Output(unit.name, "null", ContainerStdout(2))
    environment = {"PATH": os.environ["PATH"]}
    return Service(
        unit,
        rules_of(unit),
        LinuxProcesses(children),
        output,
        lambda: unit_launch(unit, environment, {}),
        around=around,
        observers=observers,
    )


async def watched(pid: int) -> None:
    """Until this process holds a pidfd on it."""
    while not is_watched(pid):
        await trio.sleep(0.01)  # made in a worker thread's wake: there is no event to wait for


def is_watched(pid: int) -> bool:
    return any(f"Pid:\t{pid}\n" in info for info in fd_infos())


def fd_infos() -> Iterator[str]:
    for entry in os.listdir("/proc/self/fdinfo"):
        with suppress(FileNotFoundError):
            yield Path("/proc/self/fdinfo", entry).read_text()
