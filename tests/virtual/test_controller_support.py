"""The tools of the virtual tier hold what they promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from quart import Response
from quart_trio import QuartTrio

from tests.support.cancel_sweep import Cause, sweep
from tests.support.memory_network import MemoryNetwork, open_memory_network


def application() -> QuartTrio:
    app = QuartTrio("served")

    @app.get("/slow")
    async def slow() -> Response:
        await trio.sleep(30)
        return Response("late")

    @app.get("/fast")
    async def fast() -> Response:
        return Response("x" * 300_000)

    return app


@asynccontextmanager
async def served() -> AsyncIterator[tuple[MemoryNetwork, httpx.AsyncClient]]:
    async with open_memory_network() as network, network.client("a", "http://b:80") as client:
        network.listen("b", 80, application())
        yield network, client


async def test_time_outs_of_the_client_count_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (_, client):
        began = trio.current_time()
        assert (await client.get("/slow", timeout=60)).text == "late"
        assert 30 <= trio.current_time() - began < 31
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/slow", timeout=5)


async def test_large_bodies_arrive_whole(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (_, client):
        assert len((await client.get("/fast")).content) == 300_000


async def test_a_dead_host_refuses_and_a_cut_one_is_silent(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (network, client):
        await client.get("/fast")
        network.close("b", 80)
        with pytest.raises(httpx.ConnectError):
            await client.get("/fast")
        network.listen("b", 80, application())
        network.partition("a", "b")
        with pytest.raises(httpx.ConnectTimeout):
            await client.get("/fast", timeout=1)
        network.heal("a", "b")
        network.heal("b", "a")
        assert (await client.get("/fast")).status_code == 200


async def test_an_answer_can_be_lost_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (network, client):
        await client.get("/fast")
        network.cut("b", "a")
        with pytest.raises(httpx.TimeoutException):
            await client.get("/fast", timeout=1)


async def test_a_server_that_dies_breaks_its_open_requests(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as (network, client), trio.open_nursery() as nursery:
        nursery.start_soon(_close_after, network, 3)
        with pytest.raises(httpx.RequestError):
            await client.get("/slow", timeout=60)


async def _close_after(network: MemoryNetwork, delay: float) -> None:
    await trio.sleep(delay)
    network.close("b", 80)


class _Units:
    def __init__(self) -> None:
        self.frozen: set[int] = set()
        self.committed = False


@asynccontextmanager
async def units() -> AsyncIterator[_Units]:
    yield _Units()


async def all_or_none(state: _Units, cancelled: bool) -> None:
    assert len(state.frozen) == 3 if state.committed else not state.frozen, state.frozen


@pytest.mark.parametrize("cause", ["cancel", "deadline"])
def test_the_sweep_finds_a_missing_undo(cause: Cause) -> None:
    async def careless(state: _Units) -> None:
        for unit in range(3):
            state.frozen.add(unit)
            await trio.sleep(1)
        state.committed = True

    with pytest.raises(AssertionError, match=r"(?s)step 1:.*step 2:.*step 3:"):
        sweep(units, careless, all_or_none, cause=cause)


def test_the_sweep_visits_every_step_and_passes_a_careful_operation() -> None:
    async def careful(state: _Units) -> None:
        try:
            for unit in range(3):
                state.frozen.add(unit)
                await trio.sleep(1)
        except BaseException:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(1)
                state.frozen.clear()
            raise
        state.committed = True

    assert sweep(units, careful, all_or_none) >= 3
