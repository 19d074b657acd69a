"""A network in memory: the real HTTP client and the real server code, without sockets.

Everything that happens on it is ordinary trio, so it runs under a jumping clock: time-outs of the client,
latencies and partitions take virtual time only. Hosts are names (or addresses) that the test chooses;
nothing is resolved.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpcore
import httpx
import trio
import trio.testing
from quart_trio import QuartTrio

from supervisor.shared.http_app import asgi
from supervisor.shared.serving import Application, Connections, Lane

Address = tuple[str, int]


@asynccontextmanager
async def open_memory_network(*, latency: float = 0.001) -> AsyncIterator[MemoryNetwork]:
    """A network whose servers end with the block. An error in a server's own code ends the block too."""
    async with trio.open_nursery() as nursery:
        yield MemoryNetwork(nursery, latency)
        nursery.cancel_scope.cancel(reason="the memory network is closed")


class MemoryNetwork:
    """Who listens where, and which paths are cut."""

    def __init__(self, nursery: trio.Nursery, latency: float) -> None:
        self.latency = latency
        self._nursery = nursery
        self._listening: dict[Address, _Host] = {}
        self._cut: set[tuple[str, str]] = set()
        self._changed = trio.Event()

    def listen(self, host: str, port: int, application: Application | QuartTrio, lane: Lane | None = None) -> None:
        """Serve `application` at (host, port), as both programs serve; the server takes part until `close`."""
        if (host, port) in self._listening:
            raise ValueError(f"{host}:{port} is already in use")
        self._listening[host, port] = _Host(Connections(asgi(application), lane))

    def close(self, host: str, port: int) -> None:
        """As when the process dies: open connections break, new ones are refused."""
        for connection in self._listening.pop((host, port)).connections:
            connection.ended = True
            connection.scope.cancel(reason=f"{host}:{port} is gone")

    def cut(self, source: str, destination: str) -> None:
        """What `source` sends to `destination` is held back until `heal`; the other way stays open."""
        self._cut.add((source, destination))
        self._announce()

    def heal(self, source: str, destination: str) -> None:
        self._cut.discard((source, destination))
        self._announce()

    def partition(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def transport(self, source: str) -> httpx.AsyncHTTPTransport:
        """A transport for `httpx.AsyncClient` through which `source` speaks."""
        transport = httpx.AsyncHTTPTransport(verify=False)
        transport._pool = httpcore.AsyncConnectionPool(network_backend=_Backend(self, source), keepalive_expiry=3)
        return transport

    def client(self, source: str, base_url: str = "", timeout: float = 5) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self.transport(source), base_url=base_url, timeout=timeout)

    async def passable(self, source: str, destination: str) -> None:
        while (source, destination) in self._cut:
            await self._changed.wait()

    async def connect(self, source: str, destination: Address) -> _Connection:
        """Raises ConnectError when nobody listens; hangs while one of the two directions is cut."""
        await trio.sleep(self.latency)
        await self.passable(source, destination[0])
        await self.passable(destination[0], source)
        host = self._listening.get(destination)
        if host is None:
            raise httpcore.ConnectError(f"{destination[0]}:{destination[1]} refused the connection")
        here, there = trio.testing.memory_stream_pair()
        connection = _Connection(here)
        self._nursery.start_soon(host.serve, connection, there, source, destination)
        return connection

    def _announce(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@dataclass(eq=False)
class _Connection:
    stream: trio.StapledStream[Any, Any]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the server's side."""
    ended: bool = False
    """By the server."""


@dataclass(eq=False)
class _Host:
    server: Connections
    connections: set[_Connection] = field(default_factory=set)

    async def serve(self, connection: _Connection, stream: Any, source: str, address: Address) -> None:
        # All that hypercorn asks of a socket; a memory stream has none.
        stream.socket = SimpleNamespace(
            family=socket.AF_INET, getpeername=lambda: (source, 0), getsockname=lambda: address
        )
        with connection.scope:
            self.connections.add(connection)
            try:
                await self.server.serve_one(stream)
            finally:
                self.connections.discard(connection)
                connection.ended = True
                await trio.aclose_forcefully(stream)


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, network: MemoryNetwork, source: str) -> None:
        self._network = network
        self._source = source

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        with trio.move_on_after(_seconds(timeout)):
            connection = await self._network.connect(self._source, (host, port))
            return _Stream(self._network, self._source, host, connection)
        raise httpcore.ConnectTimeout(f"{host}:{port} is silent")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, network: MemoryNetwork, source: str, destination: str, connection: _Connection) -> None:
        self._network = network
        self._source = source
        self._destination = destination
        self._connection = connection
        self._stream = connection.stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with trio.move_on_after(_seconds(timeout)):
            try:
                data: bytes = bytes(await self._stream.receive_some(max_bytes))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise httpcore.ReadError(str(error)) from error
            await self._network.passable(self._destination, self._source)
            return data
        raise httpcore.ReadTimeout(f"{self._destination} does not answer")

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with trio.move_on_after(_seconds(timeout)):
            await trio.sleep(self._network.latency)
            await self._network.passable(self._source, self._destination)
            try:
                await self._stream.send_all(buffer)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise httpcore.WriteError(str(error)) from error
            return
        raise httpcore.WriteTimeout(f"{self._destination} does not take what is sent")

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        # httpcore asks so whether an idle connection was closed by the other end.
        return self._connection.ended if info == "is_readable" else None


def _seconds(timeout: float | None) -> float:
    return float("inf") if timeout is None else timeout
