"""The sd_notify(3) socket of one invocation: what arrives, and from whom. What it means: `notifications.py`.

Everybody in the pod's network namespace can read the addresses of abstract sockets, so the kernel tells who sent what
(SCM_CREDENTIALS, unix(7)). Descriptors that come along are closed as soon as their message has been taken: that is the
answer to BARRIER=1, and nothing else is done with any.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import uuid
from collections.abc import Awaitable, Callable, Sequence
from operator import not_

import msgspec
import trio

from supervisor.service.changes import Changes

MAX_MESSAGE = 4096
MAX_DESCRIPTORS = 16
"""In one message; the kernel closes what is more."""
SETTLE_SEC = 1.0
_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


class Datagram(msgspec.Struct, frozen=True):
    text: bytes
    sender: int
    """Its pid; 0: it is none of this container's processes."""
    cut: bool = False
    """It was longer than `MAX_MESSAGE`."""


class NotifySocket:
    """Bound when made; an abstract address, so that nothing is left in the file system. Close it."""

    def __init__(self) -> None:
        name = f"podvisor-notify-{uuid.uuid4().hex}"
        self.address = f"@{name}"
        self._socket = trio.socket.from_stdlib_socket(_bound(name))
        self._taking = False
        self._taken = Changes()

    async def receive(self, take: Callable[[Datagram], Awaitable[None]]) -> None:
        """Hand on what arrives, one after the other, until cancelled."""
        while True:
            text, ancillary, flags, _ = await self._socket.recvmsg(MAX_MESSAGE, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            self._taking = True
            try:
                await take(Datagram(text, _sender(ancillary), bool(flags & socket.MSG_TRUNC)))
            finally:
                self._taking = False
                for descriptor in _descriptors(ancillary):
                    os.close(descriptor)
            self._taken.announce()

    async def settled(self) -> None:
        """Until what has arrived by now was taken; no longer than `SETTLE_SEC`, however much is sent."""
        with trio.move_on_after(SETTLE_SEC):
            await self._taken.wait_until(lambda: self._taking or self._has_mail(), not_)

    def close(self) -> None:
        self._socket.close()

    def _has_mail(self) -> bool:
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))


Ancillary = Sequence[tuple[int, int, bytes]]


def _sender(ancillary: Ancillary) -> int:
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(payload) == _CREDENTIALS.size:
            pid: int = _CREDENTIALS.unpack(payload)[0]
            return pid
    return 0


def _descriptors(ancillary: Ancillary) -> array.array[int]:
    found = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(payload[: len(payload) // found.itemsize * found.itemsize])
    return found


def _bound(name: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        receiver.bind(f"\0{name}")
    except OSError:
        receiver.close()
        raise
    return receiver
