"""Cancelled at every checkpoint in turn: what a caller began goes on, and a cancelled service leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio

from supervisor.service.launch import unit_launch
from supervisor.service.outcomes import StartFailed
from supervisor.service.service import Service
from supervisor.unit.descent import DIAGNOSE_SEC
from supervisor.unit.model import Command, Engine, ExecCheck, LivenessAction, LogLineCheck, Probe, Probes
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.state import rules_of
from supervisor.unit.states import SubState
from tests.support.cancel_sweep import Cause, sweep
from tests.support.fake_processes import FAILED, FakeOutput, FakeProcesses, Program
from tests.support.services import running, unit

PROGRAMS = {
    "serve": Program(obeys_after_sec=1.0, spawn_takes_sec=0.5),
    "pre": Program(runs_sec=1.0),
    "post": Program(runs_sec=1.0),
}
UNIT = unit(
    service=ServiceTable(exec_start_pre=(Command(("pre",)),), exec_stop_post=(Command(("post",)),)),
    probes=Probes(readiness=Probe(LogLineCheck("ready"))),
)
CAUSES: tuple[Cause, ...] = ("cancel", "deadline")


@dataclass
class Asked:
    processes: FakeProcesses
    output: FakeOutput
    service: Service


@asynccontextmanager
async def live_service() -> AsyncIterator[Asked]:
    async with running(UNIT, **PROGRAMS) as world:
        yield Asked(world.processes, world.output, world.service)


async def ask_for_everything(world: Asked) -> None:
    await world.service.start(asked_by="sweep")
    world.output.write("ready")
    await world.service.wait_until(lambda state: state.ready_once)
    await world.service.restart(asked_by="sweep", reason="again")
    await world.service.stop(asked_by="sweep", reason="enough")


async def is_sound(world: Asked, cancelled: bool) -> None:
    """Whatever was asked for last is carried out though nobody waits for it."""
    await trio.sleep(60.0)
    service = world.service
    assert service.state.sub_state in (SubState.DEAD, SubState.READY, SubState.LOADING), service.state
    assert world.processes.most_alive.get("serve", 0) <= 1, "two processes"
    assert world.processes.alive("serve") == (service.state.pid is not None)
    assert world.processes.alive("pre") + world.processes.alive("post") == 0
    report = await service.stop(asked_by="check", reason="clean up")
    assert report.gone
    assert world.processes.alive("serve") == 0


@pytest.mark.seed("S33")
@pytest.mark.parametrize("cause", CAUSES)
def test_a_caller_may_go_away_at_any_step(cause: Cause) -> None:
    assert sweep(live_service, ask_for_everything, is_sound, cause=cause) > 5


@dataclass
class Alone:
    processes: FakeProcesses
    output: FakeOutput


@asynccontextmanager
async def no_service_yet() -> AsyncIterator[Alone]:
    async with trio.open_nursery() as nursery:
        yield Alone(FakeProcesses(nursery, PROGRAMS), FakeOutput())
        nursery.cancel_scope.cancel()


async def live_and_ask(world: Alone) -> None:
    service = Service(
        UNIT,
        rules_of(UNIT),
        world.processes,
        world.output,
        lambda: unit_launch(UNIT, {}, {}),
        chance=lambda: 0.0,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        try:
            await ask_for_everything(Asked(world.processes, world.output, service))
        except StartFailed:
            await trio.sleep_forever()  # the cancel that stopped the service is about to reach us
        nursery.cancel_scope.cancel()


async def nothing_lives(world: Alone, cancelled: bool) -> None:
    assert all(world.processes.alive(program) == 0 for program in PROGRAMS)
    assert world.processes.most_alive.get("serve", 0) <= 1


@pytest.mark.parametrize("cause", CAUSES)
def test_a_service_cancelled_at_any_step_leaves_nothing_behind(cause: Cause) -> None:
    assert sweep(no_service_yet, live_and_ask, nothing_lives, cause=cause) > 20


# --- a sick unit whose DiagnoseExec hangs ----------------------------------------------------------------------

SICK = unit(
    service=ServiceTable(exec_start=Command(("serve",))),
    probes=Probes(
        readiness=Probe(LogLineCheck("ready")),
        liveness=Probe(ExecCheck(Command(("live",))), failure_threshold=1),
        liveness_action=LivenessAction.REPORT,
    ),
    engine=Engine(diagnose_exec=Command(("look",))),
)
SICK_PROGRAMS = {"serve": PROGRAMS["serve"], "live": Program(0.0, ends=FAILED), "look": Program(obeys_after_sec=None)}


@asynccontextmanager
async def sick_service() -> AsyncIterator[Asked]:
    async with running(SICK, **SICK_PROGRAMS) as world:
        yield Asked(world.processes, world.output, world.service)


async def stop_the_sick(world: Asked) -> None:
    await world.service.start(asked_by="sweep")
    world.output.write("ready")
    await world.service.wait_until(lambda state: state.sub_state is SubState.UNHEALTHY)
    began = trio.current_time()
    await world.service.stop(asked_by="sweep", reason="enough")
    assert trio.current_time() - began < DIAGNOSE_SEC + 2.0


async def nothing_looks_any_more(world: Asked, cancelled: bool) -> None:
    await trio.sleep(60.0)
    assert world.service.state.sub_state in (SubState.DEAD, SubState.UNHEALTHY, SubState.LOADING)
    assert world.processes.alive("look") == 0
    assert (await world.service.stop(asked_by="check", reason="clean up")).gone
    assert world.processes.alive("serve") == world.processes.alive("look") == 0


@pytest.mark.parametrize("cause", CAUSES)
def test_evidence_never_outlives_its_time_whoever_goes_away(cause: Cause) -> None:
    assert sweep(sick_service, stop_the_sick, nothing_looks_any_more, cause=cause) > 3
