"""Several instances fail at a time: what the controller does for the sake of the whole fleet."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import Holder
from controller.model.settings import OnMemberLost, RelaunchSettings
from controller.policy import Policy
from tests.support.controller_world import World, open_world

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

POLICY = Policy(relaunch=RelaunchSettings(on_member_lost=OnMemberLost.RESTART_ALL))
JOBS = ("one", "two", "three", "four")


async def lose_a_container(world: World, job: str) -> None:
    world.gangs[job][0].kill_container()


async def test_a_fault_of_many_holds_those_that_come_after_and_names_what_they_share(
    autojump_clock: MockClock,
) -> None:
    async with open_world(POLICY) as world:
        for job in JOBS:
            world.add_gang(job)
        for job in JOBS:
            await world.until_active(job)
        for job in ("one", "two"):
            await lose_a_container(world, job)
            await world.until_active(job, epoch=2)
        await lose_a_container(world, "three")
        await world.until(lambda: world.instance("three").held is not None, within=60)
        held = world.instance("three").held
        assert held is not None
        assert held.by is Holder.FLEET
        assert "the containers of 2 of 4 instances restarted within 600 s" in held.reason
        assert "2 of them say: phase 2: the container of" in held.reason
        alarms = [event.message for event in world.it.events.since(0) if event.level == "error"]
        assert held.reason in alarms
        survivor = world.gangs["three"][1]
        await world.until(lambda: not survivor.engine_alive, within=60)
        assert survivor.boots == 1, "its engine is stopped where it is"
        assert world.instance("four").status == "active"
        answer = await world.client.post("/v1/reset-failed")
        assert answer.json() == {"message": "1 instances were reset"}
        await world.until_active("three", epoch=2)
        assert survivor.boots == 1


async def test_when_the_window_is_over_the_next_one_is_a_fault_of_its_own(autojump_clock: MockClock) -> None:
    async with open_world(POLICY) as world:
        for job in JOBS:
            world.add_gang(job)
        for job in JOBS:
            await world.until_active(job)
        for job in ("one", "two"):
            await lose_a_container(world, job)
            await world.until_active(job, epoch=2)
        await trio.sleep(POLICY.fleet.window_sec)  # in which heartbeats go on
        await lose_a_container(world, "three")
        await world.until_active("three", epoch=2)
        assert world.instance("three").held is None
