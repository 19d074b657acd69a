"""Listening sockets, taken before anything else is started, so that a taken port costs nothing but a message.

What is served on them is not known here; importing this does not import an HTTP stack.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ANY_ADDRESS = ("0.0.0.0", "::")
BACKLOG = 1024
"""A fleet that registers at once after our start must not meet a full queue."""
UNREAD_SEC = 5.0
"""After so long without an acknowledgement of what was sent, the kernel breaks the connection."""
LOCK_SEC = 5.0
"""For others that take a socket in the same directory, which takes them milliseconds."""


class CannotListen(Exception):
    """The address cannot be had: which, why, and who has it."""


def is_loopback(host: str) -> bool:
    """Only this machine reaches what listens there; `host` is as it stands in a URL or a setting."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks one. Raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
    except socket.gaierror as error:
        raise CannotListen(f"cannot listen on {host!r}: not an address of this machine ({error})") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Both are inherited by the connections.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SEC * 1000))
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        holder = _holder(str(address[0]), port)
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}{holder}") from error
    return listener


def url_of(listener: socket.socket, tls: bool) -> str:
    """Where a TCP listener is reached from this machine."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def listen_unix(path: Path) -> socket.socket:
    """A listening socket file of mode 0600; a stale one is replaced, a live one is an error. Raises CannotListen.

    The directory is made with mode 0700 if it does not exist.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotListen(f"cannot make the directory {path.parent}: {error.strerror}") from error
    try:
        with _alone_in(path.parent):
            if path.exists():
                _remove_stale(path)
            return _bound(path)
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error


def _bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # of the file that bind makes; a umask would be that of units forked now
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Two that begin at once would each take the other's fresh socket, which nobody serves yet, for a stale one."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        limit = time.monotonic() + LOCK_SEC
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= limit:
                    raise
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    if not path.is_socket():  # connecting would tell a plain file from a stale socket by nothing
        raise CannotListen(f"cannot listen on {path}: something that is no socket stands there")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink()
    else:
        raise CannotListen(f"cannot listen on {path}: another supervisor answers there{_peer(probe)}")
    finally:
        probe.close()


def _peer(probe: socket.socket) -> str:
    pid = int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
    return f" (pid {pid})" if pid else ""


def _holder(host: str, port: int) -> str:
    """Who listens there, as far as this user may see it."""
    import psutil  # needed once in a bad start; importing it would slow every good one

    taken = {host, *ANY_ADDRESS}
    with suppress(psutil.Error, OSError):
        for found in psutil.net_connections(kind="tcp"):
            if found.status != psutil.CONN_LISTEN or found.laddr.port != port or not found.pid:
                continue
            if host in ANY_ADDRESS or found.laddr.ip in taken:
                return f" (pid {found.pid}, {psutil.Process(found.pid).name()})"
    return ""
