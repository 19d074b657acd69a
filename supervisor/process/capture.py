"""What a short command says, kept in memory as far as there is room for it; the rest is read and dropped."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

_CHUNK = 16 * 1024
DRAIN_SEC = 0.3
"""Whoever still holds the pipe when the command is gone is not waited for any longer."""


class Capture:
    """`fd` is lent to the command; `lines` may be asked for at any time."""

    def __init__(self, fd: int, limit: int) -> None:
        self.fd = fd
        self._limit = limit
        self._kept = bytearray()
        self._dropped = 0

    @property
    def lines(self) -> tuple[str, ...]:
        lines = bytes(self._kept).decode("utf-8", "replace").splitlines()
        if self._dropped:
            lines.append(f"… {self._dropped} bytes more were not kept")
        return tuple(lines)

    async def read(self, stream: trio.abc.ReceiveStream) -> None:
        while part := await stream.receive_some(_CHUNK):
            room = self._limit - len(self._kept)
            self._kept += part[:room]
            self._dropped += max(0, len(part) - room)


@asynccontextmanager
async def captured(limit: int) -> AsyncIterator[Capture]:
    """A pipe that is read until the block is left and, for a moment, what is still in it. Raise OSError without fds."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    capture, stream = Capture(write_end, limit), trio.lowlevel.FdStream(read_end)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(capture.read, stream)
            try:
                yield capture
            finally:
                os.close(write_end)
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_SEC
    finally:
        await trio.aclose_forcefully(stream)
