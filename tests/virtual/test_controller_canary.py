"""Gangs of one model whose canaries fail at the same time: relaunched one after the other, by whichever controller."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from controller.model.settings import FleetSettings
from controller.policy import Policy
from supervisor import wire
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor, Script
from tests.support.killed_journal import journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

INTERVAL = 30.0
POLICY = Policy(fleet=FleetSettings(canary_min_interval_sec=INTERVAL))


async def gangs_of_one_model(world: World, count: int, **script: float) -> list[list[FakeSupervisor]]:
    gangs = [world.add_gang(f"job{number}", size=1, script=Script(**script)) for number in range(count)]  # type: ignore[arg-type]
    for number in range(count):
        await world.until_active(f"job{number}")
    return gangs


async def is_put_off(world: World, job_name: str) -> wire.RecoveryView:
    """As tools see it."""

    def step() -> str | None:
        found = [r for r in world.it.registry.recoveries() if r.instance.job_name == job_name]
        return str(found[0].step) if found else None

    await world.until(lambda: step() == "put_off", within=30)
    answer = (await world.client.get("/v1/instances")).content
    (view,) = [view for view in wire.decode(wire.InstancesView, answer).instances if view.job_name == job_name]
    assert view.status == InstanceStatus.INACTIVE
    assert "put off for" in view.reason
    assert "(canary_min_interval_sec)" in view.reason
    assert view.recovery is not None
    return view.recovery


def began(world: World, gang: list[FakeSupervisor]) -> float:
    """When its engines were told to stop the last time."""
    return next(r.at for r in reversed(world.history) if (r.who, r.what) == (gang[0].ip, "prepare"))


async def test_they_come_one_after_the_other_and_nobodys_container_restarts(autojump_clock: MockClock) -> None:
    """The last waits for far longer than a freeze lasts."""
    async with open_world(POLICY) as world:
        gangs = await gangs_of_one_model(world, 3, freeze_sec=30.0)
        failed = trio.current_time()
        for gang in gangs:
            gang[0].fail_canary()
        for number in range(3):
            await world.until_active(f"job{number}", epoch=2)
        times = sorted(began(world, gang) for gang in gangs)
        assert times[0] - failed < 5
        gaps = [later - before for before, later in pairwise(times)]
        assert all(INTERVAL <= gap < INTERVAL + 10 for gap in gaps), gaps
        assert [fake.boots for gang in gangs for fake in gang] == [1] * 3
        assert {fake.answers[0].recovery for gang in gangs for fake in gang} == {wire.Recovery.ENGINE_RELAUNCH}


async def test_people_see_what_it_waits_for(autojump_clock: MockClock) -> None:
    async with open_world(POLICY) as world:
        one, two = await gangs_of_one_model(world, 2)
        one[0].fail_canary()
        await world.until_active("job0", epoch=2)
        two[0].fail_canary()
        recovery = await is_put_off(world, "job1")
        told = [event for event in world.it.events.since(0) if event.run_id == recovery.run_id]
        (line,) = [event.message for event in told if event.message.startswith("put_off: ")]
        assert "canary: no answer within 30 s; put off for " in line
        assert "default/job0 was relaunched on its canary alone " in line
        await world.until_active("job1", epoch=2)
        steps = next(view.steps for view in world.it.registry.closed_runs if view.id == recovery.run_id)
        assert [step.name for step in steps][:4] == ["probe", "put_off", "probe", "prepare"]


async def test_one_of_another_model_is_not_put_off(autojump_clock: MockClock) -> None:
    async with open_world(POLICY) as world:
        gangs = [
            world.add_gang("one", size=1),
            world.add_gang("two", size=1, model_name="other"),
        ]
        for name in ("one", "two"):
            await world.until_active(name)
        failed = trio.current_time()
        for gang in gangs:
            gang[0].fail_canary()
        await world.until(lambda: all(len(gang[0].did("prepare")) == 2 for gang in gangs), within=10)
        assert trio.current_time() - failed < 10


async def test_a_death_is_not_put_off_and_ends_the_waiting(autojump_clock: MockClock) -> None:
    async with open_world(POLICY) as world:
        one, two, three = await gangs_of_one_model(world, 3)
        one[0].fail_canary()
        await world.until(lambda: len(one[0].did("prepare")) == 2)
        two[0].fail_canary()
        await is_put_off(world, "job1")
        died = trio.current_time()
        two[0].kill_engine()
        three[0].kill_engine()
        await world.until_active("job1", epoch=2)
        await world.until_active("job2", epoch=2)
        assert trio.current_time() - died < 20


async def test_an_operator_need_not_wait_for_its_turn(autojump_clock: MockClock) -> None:
    async with open_world(POLICY) as world:
        one, two = await gangs_of_one_model(world, 2)
        one[0].fail_canary()
        await world.until_active("job0", epoch=2)
        two[0].fail_canary()
        await is_put_off(world, "job1")
        asked = trio.current_time()
        path = f"/v1/instances/{world.instance('job1').id}"
        assert (await world.client.post(f"{path}/hold")).status_code == 202
        await world.until(lambda: not two[0].engine_alive)
        assert (await world.client.post(f"{path}/release")).status_code == 202
        await world.until_active("job1", epoch=3)
        assert trio.current_time() - asked < 15
        assert two[0].boots == 1


async def test_one_that_recovers_while_it_waits_is_not_relaunched_and_may_fail_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world(POLICY) as world:
        one, two = await gangs_of_one_model(world, 2)
        one[0].fail_canary()
        await world.until(lambda: len(one[0].did("prepare")) == 2)
        two[0].fail_canary()
        run_id = (await is_put_off(world, "job1")).run_id
        began_at = began(world, one)
        two[0].recover_canary()
        await world.until(lambda: world.instance("job1").status is InstanceStatus.ACTIVE, within=20)
        assert [view.outcome for view in world.it.registry.closed_runs if view.id == run_id] == ["recovered_itself"]
        await world.until(lambda: not two[0].is_frozen)
        two[0].fail_canary()
        assert (await is_put_off(world, "job1")).run_id != run_id
        assert two[0].is_frozen
        await world.until_active("job1", epoch=2)
        assert began(world, two) - began_at >= INTERVAL
        assert two[0].boots == 1


@pytest.mark.parametrize("killed", [False, True])
async def test_the_next_life_of_the_controller_knows_who_was_relaunched_and_who_waits(
    autojump_clock: MockClock, tmp_path: Path, killed: bool
) -> None:
    async with open_world(POLICY, elect=journal_in(tmp_path)) as world:
        one, two, three = await gangs_of_one_model(world, 3)
        one[0].fail_canary()
        await world.until_active("job0", epoch=2)
        began_at = began(world, one)
        two[0].fail_canary()
        run_id = (await is_put_off(world, "job1")).run_id
        if killed:
            world.kill_controller()
            await world.until_ended()
        else:
            await world.stop_controller()
        await trio.sleep(5)
        await world.start_controller()
        await world.until(lambda: bool(world.it.registry.recoveries()), within=30)
        three[0].fail_canary()
        assert (await is_put_off(world, "job1")).run_id == run_id
        await world.until_active("job1", epoch=2)
        await world.until_active("job2", epoch=2)
        times = [began_at, *(began(world, gang) for gang in (two, three))]
        assert times[1] - times[0] >= INTERVAL
        assert times[2] - times[1] >= INTERVAL
        assert [fake.boots for fake in (*one, *two, *three)] == [1] * 3


async def test_who_waits_gives_its_turn_to_another(autojump_clock: MockClock) -> None:
    async with open_world(replace(POLICY, max_concurrent_runs=1)) as world:
        one, two, dead = await gangs_of_one_model(world, 3)
        one[0].fail_canary()
        await world.until_active("job0", epoch=2)
        two[0].fail_canary()
        await is_put_off(world, "job1")
        died = trio.current_time()
        dead[0].kill_engine()
        await world.until_active("job2", epoch=2)
        assert trio.current_time() - died < 20


async def test_an_interval_of_nothing_is_none(autojump_clock: MockClock) -> None:
    async with open_world(Policy(fleet=FleetSettings(canary_min_interval_sec=0))) as world:
        gangs = await gangs_of_one_model(world, 2)
        failed = trio.current_time()
        for gang in gangs:
            gang[0].fail_canary()
        for number in range(2):
            await world.until_active(f"job{number}", epoch=2)
        assert trio.current_time() - failed < 20
