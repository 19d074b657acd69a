"""What one connection can do to all the others, and to the process that serves them: nothing."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from quart_trio import QuartTrio

from supervisor.shared.http_app import application, asgi
from supervisor.shared.serving import Lane, serve
from tests.support.raw_http import exchange

MANY = 60
"""The first of these met it after about ten."""
ASKED = b"GET /well HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
NO_CHUNK = b"POST /well HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
NO_TARGET = b"GET http://[ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
WEBSOCKET = (
    b"GET /well HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def well_application() -> QuartTrio:
    app = application("test", None, {})

    @app.get("/well")
    async def well() -> str:
        return "well"

    return app


@asynccontextmanager
async def served(lane: Lane | None = None) -> AsyncIterator[str]:
    """Its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        async def serving(*, task_status: trio.TaskStatus[str]) -> None:
            await serve(asgi(well_application()), listener, stop, lane=lane, task_status=task_status)

        yield await nursery.start(serving)
        stop.set()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_requests_that_end_in_the_middle_of_an_answer_cost_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as url:
        for _ in range(MANY):
            await exchange(url, NO_CHUNK)
        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")
    assert len(lines(caplog)) <= 1, "the same again is counted"


async def test_a_bug_in_a_connection_costs_that_connection_and_is_told_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bugs = iter([IndexError("out of range"), IndexError("out of range"), KeyError("port")])

    async def lane(stream: trio.abc.Stream) -> bytes:
        if (bug := next(bugs, None)) is not None:
            raise bug
        return bytes(await stream.receive_some())

    async with served(lane) as url:
        assert [await exchange(url, ASKED) for _ in range(3)] == [b"", b"", b""]
        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True] * 2
    assert ["IndexError" in line or "KeyError" in line for line in lines(caplog)] == [True, True]


async def test_what_the_framework_cannot_read_is_told_once_and_costs_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as url:
        assert [(await exchange(url, NO_TARGET))[:12] for _ in range(3)] == [b"HTTP/1.1 500"] * 3
        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")
    assert ["Invalid IPv6 URL" in line for line in lines(caplog)] == [True]


async def test_a_websocket_is_refused_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as url:
        assert (await exchange(url, WEBSOCKET)).startswith(b"HTTP/1.1 403")
        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")
    assert lines(caplog) == []
