"""The memory network's doors on real sockets of loopback, for fakes that talk to real processes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import trio
from quart_trio import QuartTrio

from supervisor.shared.http_app import asgi
from supervisor.shared.listening import listen_tcp
from supervisor.shared.serving import serve


@asynccontextmanager
async def open_loopback_network() -> AsyncIterator[LoopbackNetwork]:
    """Servers end with the block."""
    async with trio.open_nursery() as nursery:
        yield LoopbackNetwork(nursery)
        nursery.cancel_scope.cancel(reason="the loopback network is closed")


class LoopbackNetwork:
    """Hosts are addresses in 127.0.0.0/8; what comes from where is not told apart."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._listening: dict[tuple[str, int], trio.CancelScope] = {}

    def listen(self, host: str, port: int, application: QuartTrio) -> None:
        """Serve `application` until `close`."""
        scope = self._listening[host, port] = trio.CancelScope()
        self._nursery.start_soon(self._serve, application, listen_tcp(host, port), scope)

    def close(self, host: str, port: int) -> None:
        """As when the process dies: open connections break, new ones are refused."""
        self._listening.pop((host, port)).cancel(reason=f"{host}:{port} is gone")

    def client(self, source: str, base_url: str = "", timeout: float = 5) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=base_url, timeout=timeout, trust_env=False)

    async def _serve(self, application: QuartTrio, listener: socket.socket, scope: trio.CancelScope) -> None:
        with scope:
            await serve(asgi(application), listener, trio.Event())
