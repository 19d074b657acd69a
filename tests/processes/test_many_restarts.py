"""Nothing grows with the number of restarts: no descriptor, no process, no memory.

The long form: `PODVISOR_TEST_RESTARTS=10000 pytest tests/processes/test_many_restarts.py`.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.process import procfs
from supervisor.process.children import Children
from supervisor.process.output import ContainerStdout, Output
from supervisor.service.launch import unit_launch
from supervisor.service.operations import INVOCATIONS_REMEMBERED
from supervisor.service.processes import LinuxProcesses
from supervisor.service.service import Service
from supervisor.unit.model import Command, LogLineCheck, Probe, Probes, RestartPolicy, RestartSettings, Unit
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.state import rules_of
from tests.support.real_processes import TIMEOUT_SEC, reaping

RESTARTS = int(os.environ.get("PODVISOR_TEST_RESTARTS", "300"))
UNITS = 4
ALLOWED_BLOCKS = 2500
"""Of memory that Python gave out: what comes and goes by itself. At 10,000 restarts a quarter of one each."""
ALLOWED_BYTES = 8 * 1024 * 1024
"""Worker threads that come late bring arenas of their own; the blocks are what tells."""
READY = Probes(startup=Probe(LogLineCheck("ready")))
DIES = Command(("sh", "-c", "setsid sleep 600 & echo ready; exec sleep 0.01"))
"""Each life has a line, a probe that passes, and somebody who stays behind."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Footprint:
    def __init__(self) -> None:
        gc.collect()
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.blocks = sys.getallocatedblocks()
        self.bytes = resident()

    def __str__(self) -> str:
        return f"{self.descriptors} descriptors, {self.blocks} blocks, {self.bytes / 1e6:.1f} MB"


@asynccontextmanager
async def services(children: Children) -> AsyncIterator[list[Service]]:
    restart = RestartSettings(policy=RestartPolicy.ALWAYS, delay_sec=0.0, limit_burst=0)
    table = ServiceTable(exec_start=DIES, restart=restart)
    made = []
    async with trio.open_nursery() as nursery:
        for number in range(UNITS):
            unit = Unit(
                f"u{number}", Path("u.toml"), service=table, probes=Probes(startup=Probe(LogLineCheck("ready")))
            )
            service = Service(
                unit,
                rules_of(unit),
                LinuxProcesses(children),
                Output(unit.name, "null", ContainerStdout(2), tail_bytes=256),
                partial(unit_launch, unit, {"PATH": os.environ["PATH"]}, {}),
            )
            await nursery.start(service.run)
            made.append(service)
        yield made
        nursery.cancel_scope.cancel()


async def restarted(made: list[Service], times: int) -> None:
    """Until there were so many restarts of all units together."""

    async def wait(service: Service) -> None:
        await service.wait_until(lambda state: state.started > times // UNITS)

    async with trio.open_nursery() as nursery:
        for service in made:
            nursery.start_soon(wait, service)


async def stopped(made: list[Service]) -> None:
    async with trio.open_nursery() as nursery:
        for service in made:
            nursery.start_soon(partial(service.stop, asked_by="test", reason="to be counted"))


async def begun(made: list[Service]) -> None:
    for service in made:
        await service.start(asked_by="test")


@pytest.fixture
def silence() -> Iterator[None]:
    """pytest keeps every log record."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("silence")
async def test_nothing_grows_with_the_number_of_restarts() -> None:
    async with reaping(timeout_sec=TIMEOUT_SEC + RESTARTS) as children, services(children) as made:
        await begun(made)
        warm_up = UNITS * (INVOCATIONS_REMEMBERED + 6)  # what is kept of the past is full then
        await restarted(made, warm_up)
        await stopped(made)
        before = Footprint()
        await begun(made)
        await restarted(made, warm_up + RESTARTS)
        await stopped(made)
        after = Footprint()
        total = sum(service.state.started for service in made)
        print(f"{total} starts: {before} -> {after}; {children.orphans_reaped} orphans reaped")
        assert total > RESTARTS
        assert children.orphans_reaped > RESTARTS
        assert procfs.children_of_ours() == ()
        assert children.managed == frozenset()
        assert after.descriptors == before.descriptors
        assert after.blocks - before.blocks < ALLOWED_BLOCKS
        assert after.bytes - before.bytes < ALLOWED_BYTES
