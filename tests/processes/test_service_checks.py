"""Checks against real sockets, and what is seen of real processes."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.process.children import Spawn
from supervisor.service.checks import check_http, check_tcp
from supervisor.service.progress import watch_usage
from supervisor.unit.model import HttpCheck, TcpCheck
from supervisor.unit.start_clock import ProgressKind
from tests.support.real_processes import reaping


async def serving(answer: bytes, nursery: trio.Nursery) -> int:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(answer)
        await stream.aclose()

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    return int(listeners[0].socket.getsockname()[1])


@pytest.mark.parametrize(
    "answer, expected",
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", None), (b"HTTP/1.1 500 No\r\n\r\n", "HTTP 500")],
)
async def test_http_over_a_real_socket(answer: bytes, expected: str | None) -> None:
    async with trio.open_nursery() as nursery:
        port = await serving(answer, nursery)
        assert await check_http(HttpCheck(f"http://127.0.0.1:{port}/health")) == expected
        nursery.cancel_scope.cancel()


async def test_nobody_listens() -> None:
    async with trio.open_nursery() as nursery:
        port = await serving(b"", nursery)
        nursery.cancel_scope.cancel()
    http = await check_http(HttpCheck(f"http://127.0.0.1:{port}/"))
    assert http == f"cannot connect to 127.0.0.1 port {port}: connection refused"
    assert await check_tcp(TcpCheck(f"127.0.0.1:{port}")) == f"cannot connect to 127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize(
    "answer, expect, words", [(b"+PONG\r\n", r"^\+PONG", None), (b"-LOADING\r\n", r"^\+PONG", "does not match")]
)
async def test_redis_is_asked_and_must_answer(answer: bytes, expect: str, words: str | None) -> None:
    async with trio.open_nursery() as nursery:
        port = await serving(answer, nursery)
        found = await check_tcp(TcpCheck(f"127.0.0.1:{port}", send="PING\r\n", expect=expect))
        assert found is None if words is None else words in (found or "")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "program, kind",
    [
        ("while True: pass", ProgressKind.CPU),
        # The kernel escapes no more than line feeds and backslashes of a name, which every process may set.
        (r"open('/proc/self/comm', 'wb').write(b'a\r\v\f\xc2\x85) b'); exec('while True: pass')", ProgressKind.CPU),
        ("import sys\nwhile True: open(sys.argv[1], 'rb').read()", ProgressKind.WORK),
    ],
)
async def test_reading_and_computing_are_seen_below_the_main_process(
    program: str, kind: ProgressKind, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(4 * 1024 * 1024)
    child_of_shell = f'"$0" -I -S -c "$1" {weights}; true'
    argv = ("sh", "-c", child_of_shell, sys.executable, program)
    seen: list[ProgressKind] = []
    async with reaping() as children, trio.open_nursery() as nursery:
        child = await children.spawn(Spawn(argv, {"PATH": os.environ["PATH"]}))
        told = trio.Event()

        def tell(found: ProgressKind) -> None:
            seen.append(found)
            if found is kind:
                told.set()

        nursery.start_soon(watch_usage, child, tell)
        await told.wait()
        nursery.cancel_scope.cancel()
