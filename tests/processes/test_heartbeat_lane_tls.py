"""The lane for heartbeats under mutual TLS, on real sockets: who is heard in it, what goes to the application."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio

from controller.api.heartbeat_lane import HeartbeatLane
from supervisor.shared.listening import listen_tcp
from supervisor.shared.serving import Message, Receive, Send, serve
from supervisor.shared.tls import Tls, TlsFiles
from tests.support.certificates import make_ca, make_certificate
from tests.support.heartbeat_routes import heartbeat, request
from tests.support.real_processes import TIMEOUT_SEC

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl(1)")

LARGE = bytes(range(256)) * 2048
"""More than a TLS record and more than a socket takes at once."""


@dataclass
class Served:
    port: int
    directory: Path
    in_lane: list[bytes]
    by_the_application: list[bytes]
    """Bodies."""

    def client(self, name: str) -> ssl.SSLContext:
        files = TlsFiles(self.directory / f"{name}.crt", self.directory / f"{name}.key", self.directory / "ca.crt")
        return Tls(files).client

    async def connect(self, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
        plain = await trio.open_tcp_stream("127.0.0.1", self.port)
        return trio.SSLStream(plain, context, https_compatible=True)


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    make_ca(directory)
    for name in ("controller", "pod"):
        make_certificate(directory, name)
    listener = listen_tcp("127.0.0.1", 0)
    it = Served(listener.getsockname()[1], directory, [], [])

    def answer(_: str | None, body: bytes) -> bytes | None:
        it.in_lane.append(body)
        return b"{}"

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, is_whole = b"", False
        while not is_whole:
            message = await receive()
            body, is_whole = body + message.get("body", b""), not message.get("more_body", False)
        it.by_the_application.append(body)
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    files = TlsFiles(directory / "controller.crt", directory / "controller.key", directory / "ca.crt")
    stop = trio.Event()
    with trio.fail_after(TIMEOUT_SEC):
        async with trio.open_nursery() as nursery:
            lane = HeartbeatLane(answer)
            await nursery.start(partial(serve, application, listener, stop, Tls(files), lane=lane))
            yield it
            stop.set()


async def answer_of(stream: trio.abc.ReceiveStream) -> tuple[bytes, bytes]:
    """Status line and body."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += await stream.receive_some()
    head, _, body = said.partition(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < length:
        body += await stream.receive_some()
    return head.split(b"\r\n")[0], body


async def test_heartbeats_of_a_certificates_holder_are_answered_in_the_lane(tmp_path: Path) -> None:
    async with served(tmp_path) as it:
        stream = await it.connect(it.client("pod"))
        for number in (1, 2, 3):
            await stream.send_all(request(heartbeat(sequence=number)))
            assert await answer_of(stream) == (b"HTTP/1.1 200 ", b"{}")
        assert it.in_lane == [heartbeat(sequence=number) for number in (1, 2, 3)]
        assert it.by_the_application == []
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("who", ["without a certificate", "with a stranger's", "without TLS"])
async def test_nobody_else_is_heard_in_it(tmp_path: Path, who: str) -> None:
    async with served(tmp_path) as it:
        if who == "without TLS":
            stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", it.port)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(tmp_path / "ca.crt")
            if who == "with a stranger's":
                make_ca(tmp_path, "strangers")
                make_certificate(tmp_path, "stranger", "strangers")
                context.load_cert_chain(tmp_path / "stranger.crt", tmp_path / "stranger.key")
            stream = await it.connect(context)
        said: bytes | bytearray = b""
        # TLS 1.3 tells the client of the refusal only with the first answer.
        try:
            await stream.send_all(request(heartbeat()))
            said = await stream.receive_some()
        except trio.BrokenResourceError:
            pass
        assert b"200" not in said
        assert (it.in_lane, it.by_the_application) == ([], [])
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("cut_at", [1, 40, 400, None], ids=str)
async def test_what_leaves_the_lane_keeps_its_bytes(tmp_path: Path, cut_at: int | None) -> None:
    """After heartbeats in the lane, in records that end anywhere."""
    other = request(LARGE, first="POST /controller/register HTTP/1.1")
    sent = request(heartbeat()) + other
    async with served(tmp_path) as it:
        stream = await it.connect(it.client("pod"))
        answers: list[tuple[bytes, bytes]] = []
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                begin = sent[:cut_at] if cut_at else b""
                if begin:
                    await stream.send_all(begin)
                await stream.send_all(sent[len(begin) :])

            nursery.start_soon(write)
            answers.append(await answer_of(stream))
        assert answers == [(b"HTTP/1.1 200 ", b"{}")]
        status, body = await answer_of(stream)
        assert status.startswith(b"HTTP/1.1 201")
        assert body == LARGE
        assert (it.in_lane, it.by_the_application) == ([heartbeat()], [LARGE])
        await trio.aclose_forcefully(stream)
