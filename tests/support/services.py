"""Services over fake processes, for tests in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from msgspec.structs import replace

from supervisor.service.launch import LaunchFactory, unit_launch
from supervisor.service.operations import Surroundings
from supervisor.service.outcomes import Transition
from supervisor.service.service import Service
from supervisor.unit.model import Command, Unit
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.state import rules_of
from supervisor.unit.states import SubState
from tests.support.fake_processes import FakeOutput, FakeProcesses, Program

A_LONG_TIME_SEC = 1_000_000.0
"""A jumping clock has nowhere to jump to when a test waits for what never comes."""


def unit(name: str = "web", *, program: str = "serve", service: ServiceTable | None = None, **parts: object) -> Unit:
    service = service or ServiceTable()
    if service.exec_start is None:
        service = replace(service, exec_start=Command((program,)))
    return replace(Unit(name, Path(f"{name}.toml"), service=service), **parts)


@dataclass
class World:
    processes: FakeProcesses
    output: FakeOutput
    service: Service
    seen: list[Transition]

    def sub_state(self) -> SubState:
        """The present one. No property, which mypy would believe to be what it was last asserted to be."""
        return self.service.state.sub_state

    @property
    def path(self) -> list[str]:
        """The sub-states it went through."""
        return [each.after.sub_state for each in self.seen if each.after.sub_state is not each.before.sub_state]


@asynccontextmanager
async def running(
    declared: Unit,
    around: Surroundings | None = None,
    launch: LaunchFactory | None = None,
    /,
    **programs: Program,
) -> AsyncIterator[World]:
    """A service, in its own nursery; at the end it is cancelled, and everything must be gone."""
    with trio.fail_after(A_LONG_TIME_SEC):
        async with trio.open_nursery() as fakes, trio.open_nursery() as nursery:
            processes, output = FakeProcesses(fakes, programs), FakeOutput()
            seen: list[Transition] = []
            service = Service(
                declared,
                rules_of(declared),
                processes,
                output,
                launch or (lambda: unit_launch(declared, {}, {})),
                around=around,
                observers=(seen.append,),
                chance=lambda: 0.0,
            )
            await nursery.start(service.run)
            yield World(processes, output, service, seen)
            nursery.cancel_scope.cancel()
            fakes.cancel_scope.cancel()
