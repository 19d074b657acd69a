"""A controller that knows one member, its API with or without the lane for heartbeats, and raw bytes sent to it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing
from msgspec.structs import replace
from trio.testing import MockClock

from controller.api.heartbeat_lane import HeartbeatLane
from controller.app import compose
from controller.door import Controller
from controller.election import Leadership
from controller.policy import Policy
from controller.reception import Reception
from controller.store.memory import MemoryStore
from controller.supervisors import Supervisors
from supervisor import wire
from supervisor.shared.serving import Application, Connections, Message, Receive, Send
from supervisor.shared.tokens import TokenFile
from supervisor.wire import EndpointStatus

IP, JOB, BOOT = "10.0.0.1", "job", "boot-1"
GAP_SEC = 0.01
QUIET_SEC = 100.0
"""Virtual: longer than every time-out of a server."""


def heartbeat(**changes: object) -> bytes:
    known = wire.HeartbeatMsg(
        job_name=JOB,
        ins_id=0,
        ip=IP,
        status={"0": EndpointStatus.NORMAL},
        nm_port="1026",
        boot_id=BOOT,
        sequence=1,
    )
    return wire.encode(replace(known, **changes))


def request(body: bytes, *lines: str, first: str = "POST /controller/heartbeat HTTP/1.1") -> bytes:
    head = [first, "Host: controller:1026", f"Content-Length: {len(body)}", *lines]
    return "".join(f"{line}\r\n" for line in head).encode("latin-1") + b"\r\n" + body


@dataclass(frozen=True)
class Answered:
    status: str
    headers: frozenset[tuple[str, str]]
    """But for the date."""
    body: bytes


@dataclass
class Route:
    """One controller that knows one member, and how connections to it are served."""

    controller: Controller
    connections: Connections
    nursery: trio.Nursery
    heard_in_lane: list[bytes] = field(default_factory=list)
    """Bodies that the lane took for a heartbeat's."""
    application_asked: int = 0
    """How often."""

    async def send(self, chunks: Sequence[bytes], *, then_eof: bool = False) -> list[Answered]:
        """All that comes back until the server closes or is quiet."""
        client, server = trio.testing.memory_stream_pair()
        server.socket = SimpleNamespace(  # type: ignore[attr-defined]  # hypercorn asks it who is there
            family=socket.AF_INET, getpeername=lambda: (IP, 0), getsockname=lambda: ("controller", 1026)
        )
        self.nursery.start_soon(self._serve, server)
        said = b""
        with trio.move_on_after(QUIET_SEC):
            with suppress(trio.BrokenResourceError):
                for chunk in chunks:
                    await client.send_all(chunk)
                    await trio.sleep(GAP_SEC)
                if then_eof:
                    await client.send_eof()
            while data := await client.receive_some():
                said += data
        await trio.aclose_forcefully(client)
        return list(answers(said))

    async def _serve(self, server: Any) -> None:
        try:
            await self.connections.serve_one(server)
        finally:
            await trio.aclose_forcefully(server)

    @property
    def seen(self) -> object:
        entries = self.controller.registry.entries()
        return [(m.key, m.observation.sequence if m.observation else None) for e in entries for m in e.instance.members]


def answers(said: bytes) -> Iterator[Answered]:
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", 0))
        headers.pop("date", None)
        yield Answered(status, frozenset(headers.items()), rest[:length])
        said = rest[length:]


@asynccontextmanager
async def open_route(
    *, in_lane: bool, tokens: TokenFile | None = None, outside: Callable[[Application], Application] = lambda app: app
) -> AsyncIterator[Route]:
    """`outside` is put around the application."""
    controller = await compose(Policy(), Leadership(MemoryStore(first_instance_id=1)), Supervisors(), tokens)
    Reception(controller.registry).register(
        wire.RegisterMsg(
            job_name=JOB,
            model_name="m",
            role="union",
            pod_ip=IP,
            nm_port="1026",
            boot_id=BOOT,
            nnodes=2,
            parallel_config=wire.ParallelConfig(dp_size=2),
            business_port=("8000",),
            mgmt_port=("8001",),
        ),
        trio.current_time(),
    )

    def heard(authorization: str | None, body: bytes) -> bytes | None:
        route.heard_in_lane.append(body)
        return controller.answer_heartbeat(authorization, body)

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        route.application_asked += 1
        await controller.app(scope, receive, send)

    lane = HeartbeatLane(heard) if in_lane else None
    async with trio.open_nursery() as nursery:
        route = Route(controller, Connections(outside(application), lane), nursery)
        yield route
        nursery.cancel_scope.cancel(reason="the test is over")


@dataclass(frozen=True)
class Outcome:
    answers: list[Answered]
    seen: object


async def outcome(chunks: Sequence[bytes], *, in_lane: bool, then_eof: bool, tokens: TokenFile | None) -> Outcome:
    async with open_route(in_lane=in_lane, tokens=tokens) as route:
        said = await route.send(chunks, then_eof=then_eof)
        return Outcome(said, route.seen)


def both(chunks: Sequence[bytes], *, then_eof: bool = False, tokens: Path | None = None) -> tuple[Outcome, Outcome]:
    """What the lane answered, and what the application did."""

    async def one(in_lane: bool) -> Outcome:
        file = TokenFile(tokens, trio.current_time()) if tokens else None
        return await outcome(chunks, in_lane=in_lane, then_eof=then_eof, tokens=file)

    found = [trio.run(one, in_lane, clock=MockClock(autojump_threshold=0)) for in_lane in (True, False)]
    return found[0], found[1]
