"""S33: a whole run is cancelled at every checkpoint, and every supervisor ends in a state the protocol names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from controller.journal import Journal
from controller.model.relaunch.run import Cause, RunReason
from controller.recovery import Recovery
from controller.strategy.engine_relaunch import EngineRelaunch
from supervisor.wire import ErrorCode
from tests.support.cancel_sweep import Cause as CancelCause
from tests.support.cancel_sweep import sweep
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import Script

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

FREEZE_SEC = 30.0


@asynccontextmanager
async def a_gang_that_serves() -> AsyncIterator[World]:
    async with open_world() as world:
        world.add_gang(size=2, script=Script(prepare_sec=1.0, spawn_sec=0.5, load_sec=4.0, freeze_sec=FREEZE_SEC))
        await world.until_active()
        # Its recoveries are carried out by the operation under test alone.
        world.pause_center()
        yield world


async def one_run(world: World) -> None:
    """As the strategy centre would, but in a task that the sweep can cancel."""
    registry = world.it.registry
    entry = registry.entries()[0]
    recovery = registry.open(entry, Cause(RunReason.OPERATOR, "the test asks"), trio.current_time())
    registry.opened.clear()
    strategy = EngineRelaunch(
        registry,
        world.it.supervisors,
        world.it.leadership,
        Journal(world.it.leadership.store, registry, world.it.events),
        1,
    )
    try:
        await strategy.execute(recovery)
    finally:
        world.notes["ended"] = trio.current_time()
        world.notes["recovery"] = recovery


async def every_supervisor_is_free(world: World, cancelled: bool) -> None:
    recovery = world.notes["recovery"]
    assert isinstance(recovery, Recovery)
    began = recovery.since
    view = world.it.registry.closed_runs[0]
    assert view.id == recovery.run_id
    assert view.outcome in ({"aborted"} if cancelled else {"done", "phase2"}), view
    assert recovery not in world.it.registry.recoveries(), "C1: the instance is handed back"
    # What is still under way at a supervisor when the run ends finishes by itself.
    named = {event.member for event in world.it.events.since(0) if event.level == "error"}
    for fake in world.gangs["job"]:
        froze = [record for record in fake.did("prepare") if record.at >= began]
        started = [record for record in fake.did("start") if record.at >= began]
        told = [record for record in fake.did("abort") + fake.did("stop") if record.at >= began]
        key = f"default/job/#{fake.node_index}"
        assert not froze or started or told or key in named, f"C3: {fake.ip} was frozen and forgotten"
        # C2: the barrier.
        if started:
            prepared = [record.at for other in world.gangs["job"] for record in other.did("prepared")]
            assert len([at for at in prepared if began <= at <= started[0].at]) == 2, "C2"
    with trio.move_on_after(FREEZE_SEC + 1):
        while not all(fake.is_settled for fake in world.gangs["job"]):
            await trio.sleep(0.5)
    for fake in world.gangs["job"]:
        assert fake.is_settled, f"I2: {fake.ip} is still frozen, {fake.status} in step {fake.step}"


@pytest.mark.seed("S33")
@pytest.mark.parametrize("cause, stride", [("cancel", 1), ("deadline", 7)])
def test_a_run_may_be_cancelled_at_every_checkpoint(cause: CancelCause, stride: int) -> None:
    steps = sweep(a_gang_that_serves, one_run, every_supervisor_is_free, cause=cause, stride=stride)
    assert steps > 100


@asynccontextmanager
async def a_gang_that_cannot_be_prepared() -> AsyncIterator[World]:
    async with a_gang_that_serves() as world:
        world.gangs["job"][1].change(refuse={"prepare": ErrorCode.FAILED}, refuse_sec=0.5)
        yield world


@pytest.mark.seed("S33")
def test_phase_two_may_be_cancelled_at_every_checkpoint() -> None:
    steps = sweep(a_gang_that_cannot_be_prepared, one_run, every_supervisor_is_free, stride=3)
    assert steps > 100
