"""The sd_notify(3) socket of one invocation: READY, STATUS, WATCHDOG, EXTEND_TIMEOUT_USEC.

MAINPID is not followed: the main process of a unit is the one that was spawned, because its death is known by being
its parent. A program that forks away is found by the stop ladder as part of the tree.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator

import trio

from supervisor.unit.events import Event, KeptAlive, LivenessFailed, Progressed, TimeoutExtended
from supervisor.unit.start_clock import ProgressKind

MAX_MESSAGE = 4096


class NotifySocket:
    """Bound when made; an abstract address, so that nothing is left in the file system. Close it."""

    def __init__(self) -> None:
        # Who knows the random name may notify; it stands in the environment of this invocation alone.
        name = f"podvisor-notify-{uuid.uuid4().hex}"
        self.address = f"@{name}"
        self._socket = trio.socket.from_stdlib_socket(_bound(name))

    async def receive(self, ready: Callable[[], None], tell: Callable[[Event], None]) -> None:
        """Pass on what arrives, until cancelled."""
        while True:
            message = await self._socket.recv(MAX_MESSAGE)
            for name, value in assignments(message):
                if (name, value) == ("READY", "1"):
                    ready()
                elif (event := event_of(name, value)) is not None:
                    tell(event)

    def close(self) -> None:
        self._socket.close()


def assignments(message: bytes) -> Iterator[tuple[str, str]]:
    for line in message.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator:
            yield name, value


def event_of(name: str, value: str) -> Event | None:
    """What a notification other than READY means for the unit; None for those that mean nothing to us."""
    match name, value:
        case "WATCHDOG", "1":
            return KeptAlive()
        case "WATCHDOG", "trigger":
            return LivenessFailed("watchdog", "the unit triggered its own watchdog")
        case "EXTEND_TIMEOUT_USEC", digits if digits.isdecimal():
            return TimeoutExtended(float(digits) / 1_000_000)
        case "STATUS", _:
            return Progressed(ProgressKind.WORK)
        case _:
            return None


def _bound(name: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        receiver.bind(f"\0{name}")
    except OSError:
        receiver.close()
        raise
    return receiver
