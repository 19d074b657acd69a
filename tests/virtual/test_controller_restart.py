"""A controller that comes back without any memory: it learns, adopts, and relaunches nothing that is healthy."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from supervisor.wire import EndpointStatus
from tests.support.controller_world import open_world
from tests.support.fake_supervisor import Script
from tests.support.killed_journal import journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


async def test_a_healthy_gang_is_adopted_and_not_relaunched(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=3)
        first = await world.until_active()
        gang[0].kill_engine()
        await world.until_active(epoch=2)
        await world.stop_controller()
        await trio.sleep(20)
        restarted = trio.current_time()
        await world.start_controller()
        adopted = await world.until_active(epoch=2)
        assert (adopted.id, adopted.epoch) == (first.id, 2)
        await trio.sleep(120)
        assert world.did("prepare", "start", "stop", "abort", since=restarted) == []
        assert list(world.it.registry.closed_runs) == []
        assert [fake.reregistrations for fake in gang] == [1, 1, 1]
        assert [fake.boots for fake in gang] == [1, 1, 1]
        # The next run commands a higher epoch than any before.
        gang[1].kill_engine()
        assert (await world.until_active(epoch=3)).epoch == 3


async def test_a_higher_term_is_learnt_before_anything_is_commanded(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(dependencies_sec=5))
        gang[1].highest_term = 41  # F18: an earlier controller's, whose store is lost
        gang[1].highest_epoch = 7
        instance = await world.until_active()
        assert world.it.registry.terms.current == 42
        assert instance.epoch == 8
        assert world.did("exit:arbiter") == []


async def test_registrations_before_the_restart_are_asked_for_again(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)  # F7
        late = gang.pop()
        world.network.partition(late.ip, "controller")
        await world.until(lambda: gang[0].registrations == 1)
        await world.stop_controller()
        await world.start_controller()
        world.network.heal(late.ip, "controller")
        world.network.heal("controller", late.ip)
        await world.until_active()
        assert gang[0].registrations == 2


async def test_a_gang_that_died_while_nobody_looked_is_relaunched(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        await world.stop_controller()
        gang[0].kill_engine()
        await trio.sleep(2)
        await world.start_controller()
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [1, 1]


async def test_a_member_that_restarted_meanwhile_is_a_member_lost(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        await world.stop_controller()
        gang[0].kill_container()
        await trio.sleep(10)
        await world.start_controller()
        await world.until_active(epoch=2)
        # Whoever comes first decides how: the survivor gives its engine up, or its container restarts too.
        assert all(fake.epoch == 2 and fake.status is EndpointStatus.NORMAL for fake in gang)


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in memory"])
async def test_a_stop_in_the_middle_of_a_clean_up_leaves_nobody_untold(
    autojump_clock: MockClock, tmp_path: Path, is_durable: bool
) -> None:
    async with open_world(elect=journal_in(tmp_path) if is_durable else None) as world:
        gang = world.add_gang(script=Script(prepare_sec=30.0))
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: all(fake.did("prepare")[1:] for fake in gang))
        (recovery,) = world.it.registry.recoveries()
        for fake in gang:
            fake.change(hang=frozenset({"abort"}))
        world.nursery.start_soon(partial(world.client.post, f"/v1/relaunches/{recovery.run_id}/abort", timeout=None))
        await world.until(lambda: len(world.did("hangs:abort")) == 2)
        for fake in gang:
            fake.change(hang=frozenset())
        await world.stop_controller()
        await world.start_controller()
        await world.until(lambda: len(world.did("abort")) == 2, within=5)
        if is_durable:
            await world.until(lambda: [run.outcome for run in world.it.registry.closed_runs] == ["aborted", "done"])


async def test_silence_of_all_deletes_after_five_minutes_and_asks_first(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        silent = trio.current_time()
        for fake in gang:
            world.network.partition(fake.ip, "controller")
        await world.until(lambda: world.instance().status is InstanceStatus.INACTIVE)
        assert 9 < trio.current_time() - silent < 20
        await world.until(lambda: world.it.registry.entries() == [])
        assert trio.current_time() - silent < 700
        for fake in gang:
            world.network.heal(fake.ip, "controller")
            world.network.heal("controller", fake.ip)
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [1, 1]


async def test_a_controller_that_can_only_ask_still_knows(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].mute = True
        await trio.sleep(120)
        assert world.instance().status is InstanceStatus.ACTIVE
        assert len(world.did("prepare")) == 2
        assert [fake.boots for fake in gang] == [1, 1]
