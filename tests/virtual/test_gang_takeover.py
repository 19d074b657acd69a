"""Several controllers over supervisors that ship: who is deposed has no effect any more, and no run is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.support.replicas import LEASE_SEC, Replica, start_replicas
from tests.support.virtual_gang import Gang, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

URLS = ["http://controller-0:1026", "http://controller-1:1026"]


@asynccontextmanager
async def two_controllers() -> AsyncIterator[tuple[Gang, Replica, Replica]]:
    """The first leads a gang that serves."""
    async with open_gang(without_controller=True, supervisor={"controller_url": URLS}) as gang:
        first, second = await start_replicas(gang.world)
        await gang.until_active()
        yield gang, first, second


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


@pytest.mark.seed("S33")
@pytest.mark.parametrize("step", ["probe", "prepare", "start", "await"])
async def test_a_leader_that_loses_etcd_in_any_step_is_followed_and_the_gang_serves(
    autojump_clock: MockClock, step: str
) -> None:
    async with two_controllers() as (gang, first, second):
        gang.pods[1].kill_engine()
        await gang.until(lambda: first.etcd.has("open-run/", f'"step":"{step}"'), every=0.0005)
        first.lose_etcd()
        lost = trio.current_time()
        await gang.until(lambda: second.leads, within=2 * LEASE_SEC)
        assert trio.current_time() - lost <= 2 * LEASE_SEC
        (run,) = gang.world.it.registry.recoveries()
        await gang.until_active(epoch=2, within=400)
        assert gang.runs[-1].id == run.run_id == first.lives[0].registry.recoveries()[0].run_id, "resumed by its id"
        first.find_etcd()
        await trio.sleep(60)
        assert not first.leads
        assert gang.is_active(epoch=2)
        assert not any(pod.is_frozen for pod in gang.pods)
        assert boots(gang) == [1, 1]


async def test_a_deposed_leader_that_does_not_know_it_is_refused_and_steps_down(autojump_clock: MockClock) -> None:
    async with two_controllers() as (gang, first, second):
        for pod in gang.pods:
            pod.change(gate_sec=25.0)  # so that prepare is sent more than once
        gang.pods[1].kill_engine()
        await gang.until(lambda: gang.step == "prepare")
        first.does_not_see_time_pass()
        first.lose_etcd()
        await gang.until(lambda: second.leads, within=2 * LEASE_SEC)
        assert first.leads, "so it believes, and repeats its command"
        await gang.until(lambda: any("obeys term 2, ours is 1" in words for words in first.said), within=30)
        first.find_etcd()
        await gang.until(lambda: not first.leads, within=10)
        view = await first.standing()
        assert (view.role, view.leader) == ("standby", second.url)
        await gang.until_active(epoch=2, within=400)
        assert boots(gang) == [1, 1]


async def test_F19_a_heartbeat_to_a_standby_costs_no_registration(autojump_clock: MockClock) -> None:
    async with two_controllers() as (gang, first, second):
        registered = [message for message in first.said if "registered as node" in message]
        assert len(registered) == 2
        gang.world.network.close("controller-0", 1026)  # nobody hears it any more, and it leads
        await trio.sleep(30)
        assert not second.leads
        assert [event for event in gang.events if "registered as node" in event.message][2:] == []
        gang.world.network.listen("controller-0", 1026, first.door)
        await trio.sleep(60)
        assert gang.is_active()
        assert boots(gang) == [1, 1]


def is_active_after(gang: Gang, term: int) -> bool:
    return gang.world.it.registry.terms.current > term and gang.is_active()


async def test_F18_an_etcd_that_was_restored_from_long_ago_locks_nobody_out(autojump_clock: MockClock) -> None:
    async with two_controllers() as (gang, first, second):
        for pod in gang.pods:
            assert pod.state.term >= 1
        for term in range(5):  # the fleet has seen many leaders since the backup
            leader = first if first.leads else second
            leader.etcd.end_lease(next(found.lease for found in leader.etcd.kept.values() if found.lease))
            await gang.until(partial(is_active_after, gang, term + 1))
        seen = max(pod.state.term for pod in gang.pods)
        first.etcd.kept.clear()
        await gang.until(lambda: gang.world.it.registry.terms.current < seen and gang.is_active(), within=60)
        gang.pods[0].kill_engine()
        await gang.until_active(epoch=2, within=60)
        assert gang.world.it.registry.terms.current > seen
        assert boots(gang) == [1, 1]


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.02, 0.1, 0.3, 0.42, 0.45, 1.0, 3.0, 5.4, 5.45])
async def test_a_leadership_lost_at_any_moment_of_a_run_ends_in_no_container_and_no_freeze(
    autojump_clock: MockClock, moment: float
) -> None:
    async with two_controllers() as (gang, first, _):
        gang.pods[1].kill_engine()
        await trio.sleep(moment)
        lost = trio.current_time()
        first.lives[0].leadership.lose("the test takes it")
        await gang.until_active(epoch=2, within=400)
        await trio.sleep(60)
        assert gang.did("abort", since=lost) == []
        assert not any(pod.is_frozen for pod in gang.pods)
        assert boots(gang) == [1, 1]
