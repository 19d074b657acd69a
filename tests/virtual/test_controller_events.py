"""The controller's events as server-sent events: what a client sees that loses its connection, and comes back."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import httpx
import pytest
import trio
from trio.testing import MockClock

from supervisor import wire
from supervisor.shared.event_ring import KEPT
from tests.support.controller_world import World, open_world

# httpx leaves its generators to the garbage collector when a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


@dataclass
class EventSource:
    """A browser's, as far as the standard says how it reads and what it sends when it comes back."""

    world: World
    query: str = ""
    last_id: str = ""
    retry_ms: int | None = None
    seen: list[dict[str, object]] = field(default_factory=list)
    comments: int = 0

    async def read(self, until: int, comments: int = 0) -> None:
        """Connect, and read on until so many events and comments were seen in all."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.last_id} if self.last_id else {})
        url = f"/v1/events{self.query}"
        client = self.world.client
        with trio.fail_after(1000):
            await self._read(client.stream("GET", url, headers=headers, timeout=1000), until, comments)

    async def _read(self, stream: AbstractAsyncContextManager[httpx.Response], until: int, comments: int) -> None:
        data: list[str] = []
        async with stream as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                match name:
                    case "id":
                        self.last_id = value
                    case "retry":
                        self.retry_ms = int(value)
                    case "data":
                        data.append(value)
                    case "" if not line and data:
                        self.seen.append(json.loads(data.pop()))
                    case "" if line:
                        self.comments += 1
                if not line and len(self.seen) >= until and self.comments >= comments:
                    return

    @property
    def ids(self) -> list[object]:
        return [event["id"] for event in self.seen]


def tell(world: World, count: int, *, namespace: str | None = None, instance_id: int | None = None) -> None:
    for _ in range(count):
        world.it.events.append("controller", "something", level="debug", namespace=namespace, instance_id=instance_id)


@pytest.mark.seed("S30")
async def test_a_report_may_say_anything_and_little_of_it_is_kept(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=1)
        await world.until_active()
        report = wire.SoftwareFaultMsg(
            exception_type="engine_dead",
            exception_message="x" * 900_000,
            engine_id=0,
            engine_status=wire.EngineHealth.DEAD,
            pod_ip=gang[0].ip,
            job_name="job",
        )
        answer = await world.client.post("/controller/report_software_fault", content=wire.encode(report))
        assert answer.status_code == 200
        await world.until(lambda: bool(world.it.registry.closed_runs))
        assert max(len(wire.encode(event)) for event in world.it.registry.notices._events.since(0)) < 6000


async def test_a_client_that_comes_back_has_lost_nothing_and_gets_nothing_twice(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        source = EventSource(world)
        for _ in range(20):
            tell(world, 7)
            await source.read(until=len(source.seen) + 3)
            tell(world, 2)
        await source.read(until=180)
        assert source.ids == list(range(1, 181))
        assert source.retry_ms == 3000


async def test_a_client_that_comes_back_too_late_is_told_what_is_missing(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        source = EventSource(world)
        tell(world, 5)
        await source.read(until=5)
        tell(world, KEPT + 10)
        await source.read(until=5 + 1 + KEPT)
        assert source.seen[5]["kind"] == "gap"
        assert source.seen[5]["message"] == "events 6 to 15 are no longer kept"
        assert source.ids == [*range(1, 6), *range(15, KEPT + 16)]


async def test_a_client_of_an_earlier_life_gets_all_of_the_new_one(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        source = EventSource(world)
        tell(world, 3)
        await source.read(until=3)
        await world.stop_controller()
        await world.start_controller()
        tell(world, 5)
        await source.read(until=3 + 5)
        assert source.ids == [1, 2, 3, 1, 2, 3, 4, 5]


async def test_a_client_may_ask_for_what_concerns_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for number in range(12):
            tell(world, 1, namespace="ab"[number % 2], instance_id=number % 3)
        for query, ids in (
            ("?namespace=a", [1, 3, 5, 7, 9, 11]),
            ("?instance=2", [3, 6, 9, 12]),
            ("?namespace=a&instance=2&since=3", [9]),
            ("?kind=controller&namespace=b&instance=0", [4, 10]),
        ):
            source = EventSource(world, query)
            await source.read(until=len(ids))
            assert source.ids == ids


async def test_what_was_passed_over_is_not_looked_at_again(autojump_clock: MockClock) -> None:
    """A client that nothing concerns for long must not be told of a gap when it comes back."""
    async with open_world() as world:
        source = EventSource(world, "?namespace=a")
        tell(world, 1, namespace="a")
        await source.read(until=1)
        tell(world, 10, namespace="b")
        await source.read(until=1, comments=1)
        assert source.last_id.endswith("-11")
        tell(world, KEPT - 1, namespace="b")
        tell(world, 1, namespace="a")
        with trio.fail_after(5):
            await source.read(until=2)
        assert source.ids == [1, 11 + KEPT]


async def test_who_lists_the_instances_and_follows_from_there_misses_nothing_and_hears_nothing_twice(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        listed = (await world.client.get("/v1/instances")).json()
        told = world.it.events.last_id
        gang[1].kill_engine()
        await world.until_active(epoch=2)
        source = EventSource(world, f"?since={listed['last_event']}")
        later = world.it.events.since(told)
        await source.read(until=len(later))
        assert source.ids == [event.id for event in later]
        changes = [event["status"] for event in source.seen if event["kind"] == "instance"]
        assert changes == ["inactive", "active"]


async def test_a_list_of_an_earlier_life_is_followed_by_all_of_the_new_one(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        tell(world, 5)
        listed = (await world.client.get("/v1/instances")).json()
        await world.stop_controller()
        await world.start_controller()
        tell(world, 2)
        source = EventSource(world, f"?since={listed['last_event']}")
        await source.read(until=2)
        assert source.ids == [1, 2]


@pytest.mark.parametrize("header", ["x", "-1", "3f2a9c1e-", "1" * 16, "3F2A9C1E-1", "\u0663"])
async def test_an_id_that_is_none_is_refused(autojump_clock: MockClock, header: str) -> None:
    async with open_world() as world:
        answer = await world.client.get("/v1/events", headers={b"Last-Event-ID": header.encode()})
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("Last-Event-ID: found ")
