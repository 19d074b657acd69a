"""S33: a whole run is cancelled at every checkpoint, and every supervisor ends in a state the protocol names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from controller.center import Center
from controller.journal import Journal
from controller.model.budget import spend_run
from controller.model.relaunch.run import Cause, RunReason
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.wanted import Wanted
from controller.policy import Policy
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
async def a_gang_that_serves(policy: Policy | None = None) -> AsyncIterator[World]:
    async with open_world(policy) as world:
        world.add_gang(size=2, script=Script(prepare_sec=1.0, spawn_sec=0.5, load_sec=4.0, freeze_sec=FREEZE_SEC))
        await world.until_active()
        # Its recoveries are carried out by the operation under test alone.
        world.pause_center()
        yield world


def a_center(world: World) -> Center:
    """With one turn for all."""
    it = world.it
    journal = Journal(it.leadership.store, it.registry, it.events)
    strategy = EngineRelaunch(it.registry, it.supervisors, it.leadership, journal, 1)
    return Center(it.registry, it.supervisors, it.leadership, journal, {ENGINE_RELAUNCH: strategy})


async def one_run(world: World) -> None:
    """As the strategy centre would, but in a task that the sweep can cancel."""
    registry = world.it.registry
    (entry,) = [entry for entry in registry.entries() if entry.instance.key.job_name == "job"]
    cause = world.notes.get("cause", Cause(RunReason.OPERATOR, "the test asks"))
    assert isinstance(cause, Cause)
    recovery = registry.open(entry, Wanted(ENGINE_RELAUNCH, cause), trio.current_time())
    registry.opened.clear()
    center = world.notes.get("center") or a_center(world)
    assert isinstance(center, Center)
    try:
        await center.recover(recovery)
    finally:
        world.notes["ended"] = trio.current_time()
        world.notes["recovery"] = recovery


async def every_supervisor_is_free(world: World, cancelled: bool) -> None:
    recovery = world.notes["recovery"]
    assert isinstance(recovery, Recovery)
    began = recovery.since
    (view,) = [view for view in world.it.registry.closed_runs if view.id == recovery.run_id]
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
            for other in world.gangs["job"]:
                assert any(began <= record.at <= started[0].at for record in other.did("prepared")), "C2"
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


@asynccontextmanager
async def a_gang_that_has_lost_a_member() -> AsyncIterator[World]:
    """Its next life has registered; the dependencies of its engine are not active yet."""
    async with a_gang_that_serves() as world:
        lost = world.gangs["job"][1]
        lost.change(container_restart_sec=0.5, dependencies_sec=3.0)
        lost.kill_container()
        await world.until(lambda: bool(world.it.registry.recoveries()))
        assert world.it.registry.recoveries()[0].cause.reason is RunReason.REJOIN
        yield world


@pytest.mark.seed("S33")
@pytest.mark.parametrize("cause, stride", [("cancel", 7), ("deadline", 23)])
def test_waiting_for_a_lost_member_may_be_cancelled_at_every_checkpoint(cause: CancelCause, stride: int) -> None:
    steps = sweep(a_gang_that_has_lost_a_member, one_run, every_supervisor_is_free, cause=cause, stride=stride)
    assert steps > 100


@asynccontextmanager
async def a_gang_that_loses_a_member_in_the_run() -> AsyncIterator[World]:
    """While the engines load; it comes back, and all start once more."""
    async with a_gang_that_serves() as world:
        lost = world.gangs["job"][1]
        lost.change(container_restart_sec=0.5)

        async def kill_it_once() -> None:
            await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["await"])
            lost.kill_container()

        world.nursery.start_soon(kill_it_once)
        yield world


@pytest.mark.seed("S33")
def test_a_run_that_loses_a_member_may_be_cancelled_at_every_checkpoint() -> None:
    steps = sweep(a_gang_that_loses_a_member_in_the_run, one_run, every_supervisor_is_free, stride=17)
    assert steps > 200


@asynccontextmanager
async def a_gang_that_has_been_relaunched_before() -> AsyncIterator[World]:
    """So that there is a back-off."""
    quick = replace(Policy(), relaunch=replace(Policy().relaunch, engine_relaunch_backoff_sec=8.0))
    async with a_gang_that_serves(quick) as world:
        registry = world.it.registry
        registry.budgets.put(spend_run(registry.budgets.of(world.instance()), "an earlier start"))
        world.notes["cause"] = Cause(RunReason.FAULT, "the test says so")
        yield world


@pytest.mark.seed("S33")
def test_a_back_off_may_be_cancelled_at_every_checkpoint() -> None:
    steps = sweep(a_gang_that_has_been_relaunched_before, one_run, every_supervisor_is_free, stride=11)
    assert steps > 100


@asynccontextmanager
async def a_gang_that_has_to_wait_for_its_turn() -> AsyncIterator[World]:
    """The only turn is another gang's for a while; the reporter of the death waits frozen."""
    async with a_gang_that_serves() as world:
        world.add_gang("other", script=Script(prepare_sec=10.0))
        await world.until(lambda: len(world.it.registry.recoveries()) == 1)
        world.notes["center"] = center = a_center(world)
        world.nursery.start_soon(center.recover, world.it.registry.opened.popleft())
        await world.until(lambda: len(world.did("prepare")) == 4)
        world.gangs["job"][1].kill_engine()
        await world.until(lambda: world.gangs["job"][1].is_frozen)
        yield world


@pytest.mark.seed("S33")
def test_the_queue_may_be_cancelled_at_every_checkpoint() -> None:
    steps = sweep(a_gang_that_has_to_wait_for_its_turn, one_run, every_supervisor_is_free, stride=7)
    assert steps > 100
