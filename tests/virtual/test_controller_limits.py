"""What one client may ask of the controller, and that nobody else is kept waiting by it."""

from __future__ import annotations

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from controller.api.clients import MAX_CLIENTS, Clients
from controller.model.limits import BURST_SEC, Limits, pay
from controller.policy import Policy
from supervisor import wire
from supervisor.shared.http_app import BODY_SEC
from supervisor.shared.tokens import EVERY_RIGHT
from tests.support.controller_world import World, open_world
from tests.unit.controller_gang import registration

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

FEW = Policy(limits=Limits(requests_per_sec=5, requests_in_flight=3, event_followers=2))


@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=300),
    rate=st.floats(1, 100),
)
def test_nobody_gets_more_than_the_rate_and_one_burst(gaps: list[float], rate: float) -> None:
    limits = Limits(requests_per_sec=rate)
    now = clear_at = 0.0
    granted: list[float] = []
    for gap in gaps:
        now += gap
        clear_at, wait_sec = pay(clear_at, now, limits)
        if wait_sec == 0:
            granted.append(now)
            continue
        _, wait_again = pay(clear_at, now + wait_sec + 1e-6, limits)
        assert wait_again == 0, "who waits as long as was said is answered"
        assert clear_at <= now + BURST_SEC + 1 / rate + 1e-6, "a refusal costs nothing"
    for first in range(len(granted)):
        assert len(granted) - first <= (now - granted[first] + BURST_SEC) * rate + 2


async def flood(client: httpx.AsyncClient, count: int) -> list[httpx.Response]:
    return [await client.get("/v1/instances") for _ in range(count)]


async def test_who_asks_too_often_is_told_when_to_come_back(autojump_clock: MockClock) -> None:
    async with open_world(FEW) as world:
        answers = await flood(world.client, 30)
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 429}
        assert statuses[:10] == [200] * 10
        refused = answers[-1]
        error = wire.decode(wire.ErrorBody, refused.content)
        assert (error.error, error.message) == (
            wire.ErrorCode.LIMITED,
            "more than 5 requests a second: ask again in 1 s",
        )
        await trio.sleep(int(refused.headers["Retry-After"]))
        assert (await world.client.get("/v1/instances")).status_code == 200


async def test_a_flood_holds_up_neither_other_clients_nor_what_supervisors_live_by(autojump_clock: MockClock) -> None:
    async with open_world(FEW) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        async with world.network.client(gang[0].ip, "http://controller:1026") as pod:
            # The flood comes from a pod's own address.
            assert (await flood(pod, 40))[-1].status_code == 429
            assert (await world.client.get("/v1/instances")).status_code == 200
            beat = wire.HeartbeatMsg(
                job_name="job",
                ins_id=world.instance().id,
                ip=gang[0].ip,
                status={"0": wire.EndpointStatus.NORMAL},
                boot_id=gang[0].boot_id,
                epoch=1,
            )
            for _ in range(40):
                assert (await pod.post("/controller/heartbeat", content=wire.encode(beat))).status_code == 200
            registering = [
                (await pod.post("/controller/register", content=wire.encode(registration(0)))).status_code
                for _ in range(20)
            ]
            assert 429 in registering
            gang[0].kill_engine()
            await world.until_active(epoch=2)
        assert world.did("died") == [(gang[0].ip, "died")]


async def post_slowly(world: World, statuses: list[int]) -> None:
    """Headers, one byte of the body, and no more."""
    connection = await world.network.connect("slow", ("controller", 1026))
    head = "POST /controller/register HTTP/1.1\r\nHost: controller\r\nContent-Length: 100\r\n\r\n{"
    await connection.stream.send_all(head.encode())
    line, _, _ = (await connection.stream.receive_some()).partition(b"\r\n")
    statuses.append(int(line.split()[1]))


async def test_slow_bodies_end_and_take_up_no_more_than_one_clients_share(autojump_clock: MockClock) -> None:
    async with open_world(FEW) as world:
        statuses: list[int] = []
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(post_slowly, world, statuses)
            await trio.sleep(1)
            assert statuses == [429, 429]
            assert (await world.client.get("/v1/instances")).status_code == 200
        assert sorted(statuses) == [408, 408, 408, 429, 429]
        assert trio.current_time() - began < BODY_SEC + 2
        async with world.network.client("slow", "http://controller:1026") as client:
            assert (await client.get("/v1/instances")).status_code == 200, "nothing of it is left"


async def test_events_are_followed_by_so_many_and_a_place_that_is_left_is_free(autojump_clock: MockClock) -> None:
    async with open_world(FEW) as world:
        for _ in range(3):
            async with (
                world.client.stream("GET", "/v1/events", timeout=100) as first,
                world.client.stream("GET", "/v1/events", timeout=100) as second,
            ):
                assert (first.status_code, second.status_code) == (200, 200)
                await trio.sleep(1)
                third = await world.client.get("/v1/events")
                assert (third.status_code, third.headers["Retry-After"]) == (429, "10")
                assert (await world.client.get("/v1/events?follow=0")).status_code == 200
            await trio.sleep(1)
        assert (await world.client.get("/v1/events?follow=0")).status_code == 200


def test_what_is_remembered_of_clients_is_bounded() -> None:
    clients = Clients(Limits())
    for number in range(2 * MAX_CLIENTS):
        with clients.request((f"client-{number}", EVERY_RIGHT), 0.0):
            pass
    assert clients.remembered == MAX_CLIENTS
