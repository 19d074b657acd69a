"""A path between two processes on loopback that a test can cut: what is sent is held back, nobody is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

CHUNK_BYTES = 65536


class Path:
    """Forwards TCP from a port of its own to `target`."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._open = trio.Event()
        self._open.set()

    def cut(self) -> None:
        self._open = trio.Event()

    def heal(self) -> None:
        self._open.set()

    async def carry(self, near: trio.SocketStream) -> None:
        await self._open.wait()
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self._target)
        except OSError:
            return
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, near, far, nursery.cancel_scope)
            nursery.start_soon(self._forward, far, near, nursery.cancel_scope)

    async def _forward(self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
        try:
            async for data in source:
                await self._open.wait()
                await sink.send_all(data)
        except trio.BrokenResourceError:
            pass
        both.cancel(reason="one side has closed")


@asynccontextmanager
async def open_path(target: int) -> AsyncIterator[Path]:
    path = Path(target)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        path.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, path.carry, [listener])
        yield path
        nursery.cancel_scope.cancel(reason="the path is closed")
