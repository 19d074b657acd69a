"""Leading and standing by: what a controller answers and does before, during and after a leadership."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import trio
from trio.testing import MockClock

from controller.api.leader_routes import standby_app
from controller.door import Controller, Door
from controller.election import Leader, Leadership, MemoryElection
from controller.lead import lead
from controller.store.base import CannotWrite
from controller.store.memory import MemoryStore
from supervisor import wire
from supervisor.wire import ErrorCode
from tests.support.controller_world import open_world
from tests.support.fake_supervisor import Script
from tests.support.memory_network import open_memory_network

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

OTHER = Leader("http://10.0.0.9:1026", 7)


@asynccontextmanager
async def standby(leader: Leader | None = OTHER) -> AsyncIterator[httpx.AsyncClient]:
    async with open_memory_network() as network, network.client("tool", "http://standby:1026") as client:
        network.listen("standby", 1026, standby_app(lambda: leader, lambda: True))
        yield client


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/controller/heartbeat"),
        ("POST", "/controller/register"),
        ("GET", "/v1/instances"),
        ("POST", "/v1/instances/3/relaunch"),
        ("GET", "/v1/events"),
    ],
)
async def test_a_standby_names_the_leader_and_closes_the_connection(
    autojump_clock: MockClock, method: str, path: str
) -> None:
    async with standby() as client:
        answer = await client.request(method, path, content=b"not even JSON")
    assert (answer.status_code, answer.headers["connection"]) == (421, "close")
    body = wire.decode(wire.ErrorBody, answer.content)
    assert (body.error, body.term, body.leader) == (ErrorCode.NOT_LEADER, OTHER.term, OTHER.url)
    assert OTHER.url in body.message


async def test_a_standby_is_ready_and_says_what_it_is(autojump_clock: MockClock) -> None:
    async with standby() as client:
        assert (await client.get("/readiness")).status_code == 200
        view = wire.decode(wire.LeaderView, (await client.get("/leader")).content)
    assert view == wire.LeaderView(role="standby", term=OTHER.term, leader=OTHER.url)


async def test_a_standby_that_knows_no_leader_says_so(autojump_clock: MockClock) -> None:
    async with standby(None) as client:
        body = wire.decode(wire.ErrorBody, (await client.post("/controller/heartbeat")).content)
    assert (body.error, body.leader) == (ErrorCode.NOT_LEADER, None)
    assert "nobody is known to lead" in body.message


async def test_the_leader_says_its_term_and_where_it_is(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        view = wire.decode(wire.LeaderView, (await world.client.get("/leader")).content)
    assert view == wire.LeaderView(role="leader", term=1, leader="http://controller:1026")


@pytest.mark.seed("S33")
async def test_a_lost_leadership_sends_nothing_more_not_even_clean_up(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=8))
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: len(world.did("prepare")) == 4)
        first, lost = world.it, trio.current_time()
        first.leadership.lose("the test takes it")
        await world.until(lambda: world.it is not first, within=1)
        assert world.did("abort", "stop", since=lost) == []
        assert [recovery.run is not None for recovery in first.registry.recoveries()] == [True], (
            "it was dropped as it was"
        )
        # The next leadership finds both prepared for a run that is no more, and starts them.
        await world.until_active(epoch=3)
        assert world.did("exit:arbiter", "stop") == []
        assert [fake.boots for fake in gang] == [1, 1]


async def test_who_follows_events_is_hung_up_on_when_the_leadership_is_lost(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.client.stream("GET", "/v1/events") as stream:
        world.it.leadership.lose("the test takes it")
        with trio.fail_after(5), suppress(httpx.RemoteProtocolError):
            async for _ in stream.aiter_bytes():
                pass


async def test_a_request_under_way_when_the_leadership_is_lost_is_answered_by_nobody_who_leads(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        world.add_gang(size=2)
        instance = await world.until_active()
        leadership = world.it.leadership

        async def lose_while_it_is_written(budget: object) -> None:
            leadership.lose("the test takes it")

        monkeypatch.setattr(world.store, "save_budget", lose_while_it_is_written)
        answer = await world.client.post(f"/v1/instances/{instance.id}/reset-failed")
    assert answer.status_code == 421
    assert wire.decode(wire.ErrorBody, answer.content).error is ErrorCode.NOT_LEADER


async def test_a_store_that_cannot_be_read_is_asked_again_at_its_pace(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    tried: list[float] = []

    async def compose(leadership: Leadership) -> Controller:
        tried.append(trio.current_time())
        raise CannotWrite("what is kept cannot be read")

    with trio.move_on_after(2.5):
        await lead(MemoryElection("http://a:1026", store), compose, Door(standby_app(lambda: None, lambda: True)))
    assert tried == [0.0, 1.0, 2.0]


async def test_a_leadership_whose_deadline_passed_while_nothing_ran_is_lost_before_anybody_looks(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        first = world.it
        first.leadership.scope.deadline = trio.current_time() + 5
        autojump_clock.jump(6)  # as after SIGCONT
        assert first.leadership.is_lost
        assert world.door.controller is None
        await world.until(lambda: world.it is not first, within=1)
        assert world.it.registry.terms.current == 2
