"""Can an engine bind its port? If not: who has it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence

import msgspec

from supervisor.process.procfs import ProcessInfo


class Port(msgspec.Struct, frozen=True):
    host: str
    """The address to be bound, as a number."""
    number: int
    what: str
    """Whose it will be, for people: `service`, `master`."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.number} ({self.what})"


class PortUnusable(Exception):
    """It can never be bound here, however long one waits."""


def is_free(port: Port) -> bool:
    """Whether a server could bind it now. SO_REUSEADDR, as servers set it: TIME_WAIT is no obstacle.

    Raise PortUnusable.
    """
    try:
        version = ipaddress.ip_address(port.host).version
    except ValueError:
        raise PortUnusable(f"{port.host!r} is not an address; expected numbers such as 0.0.0.0 or ::") from None
    with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((port.host, port.number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise PortUnusable(os.strerror(error.errno or 0).lower()) from error
    return True


def holder_words(holders: Sequence[ProcessInfo]) -> str:
    if not holders:
        return "held by a process that cannot be seen from here (another user's, or in another namespace)"
    return "held by " + ", ".join(f"process {one.pid} ({one.command or one.name})" for one in holders)
