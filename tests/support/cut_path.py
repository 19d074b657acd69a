"""A path between two processes that a test can cut, or that is slow: what is sent is held back, nobody is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

LOOPBACK = "127.0.0.1"


class Path:
    """Forwards TCP from a port of its own to `target`, and whatever is sent at a time `delay_sec` later."""

    def __init__(self, target: int, target_host: str, delay_sec: float) -> None:
        self.port = 0
        self._target = target
        self._target_host = target_host
        self._delay_sec = delay_sec
        self._open = trio.Event()
        self._open.set()

    def cut(self) -> None:
        self._open = trio.Event()

    def heal(self) -> None:
        self._open.set()

    async def carry(self, near: trio.SocketStream) -> None:
        await self._open.wait()
        try:
            far = await trio.open_tcp_stream(self._target_host, self._target)
        except OSError:
            return
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, near, far, nursery.cancel_scope)
            nursery.start_soon(self._forward, far, near, nursery.cancel_scope)

    async def _forward(self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
        try:
            async for data in source:
                await self._open.wait()
                await trio.sleep(self._delay_sec)
                await sink.send_all(data)
        except trio.BrokenResourceError:
            pass
        both.cancel(reason="one side has closed")


@asynccontextmanager
async def open_path(
    target: int, *, target_host: str = LOOPBACK, host: str = LOOPBACK, delay_sec: float = 0
) -> AsyncIterator[Path]:
    path = Path(target, target_host, delay_sec)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host=host)
        path.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, path.carry, [listener])
        yield path
        nursery.cancel_scope.cancel(reason="the path is closed")
