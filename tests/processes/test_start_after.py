"""StartAfter: an engine is executed once its peers answer, and what an answer is depends on how they are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from supervisor.engine.start_after import wait_for_peers
from tests.support.real_processes import TIMEOUT_SEC


class Peer:
    """Listens at once and answers with whatever status it has."""

    def __init__(self) -> None:
        self.status = "503 Service Unavailable"
        self.asked = 0
        self.news = trio.Event()
        self.port = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        if await stream.receive_some():
            answer = f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\nLocation: /\r\nConnection: close\r\n\r\n"
            await stream.send_all(answer.encode())
        await stream.aclose()
        self.asked += 1
        self.news.set()

    async def was_asked(self, times: int) -> None:
        while self.asked < times:
            self.news = trio.Event()
            await self.news.wait()


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    it = Peer()
    with trio.fail_after(TIMEOUT_SEC):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, it.serve, 0, host="127.0.0.1"))
            it.port = listeners[0].socket.getsockname()[1]
            yield it
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("good", ["200 OK", "204 No Content", "302 Found"])
async def test_http_means_an_answer_of_2xx_or_3xx(good: str) -> None:
    """An engine binds its port at once and answers 503 while it loads."""
    async with peer() as it, trio.open_nursery() as nursery:
        done = trio.Event()

        async def wait() -> None:
            await wait_for_peers([f"http://127.0.0.1:{it.port}/health"])
            done.set()

        nursery.start_soon(wait)
        await it.was_asked(2)
        assert not done.is_set()
        it.status = good
        await done.wait()


async def test_tcp_means_a_connection() -> None:
    async with peer() as it:
        await wait_for_peers([f"tcp://127.0.0.1:{it.port}"])


async def test_it_says_once_a_minute_whom_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with peer() as it, trio.open_nursery() as nursery:
        address = f"http://127.0.0.1:{it.port}/health"
        nursery.start_soon(wait_for_peers, [address])
        await it.was_asked(3)
        nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        f"the engine waits for {address} (StartAfter): HTTP 503"
    ]


async def test_all_of_them_are_waited_for() -> None:
    async with peer() as one, peer() as other:
        other.status = "200 OK"
        with trio.move_on_after(1.0) as patience:
            await wait_for_peers([f"http://127.0.0.1:{each.port}/" for each in (one, other)])
        assert patience.cancelled_caught
