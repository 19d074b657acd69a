"""Sockets of this process that live in another network namespace.

A socket belongs for ever to the namespace in which its thread stood when it was made. So it is enough to
step into the namespace for the one system call that makes it, with no checkpoint in between; nothing else
of the process ever leaves its own.
"""

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import trio

_CLONE_NEWNET = 0x40000000  # sched.h; os.setns exists from Python 3.12 on


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter the network namespace: {os.strerror(number)}")


@contextmanager
def _standing_in(namespace: int) -> Iterator[None]:
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _enter(own)
    finally:
        os.close(own)


class _SocketFactory(trio.abc.SocketFactory):
    def __init__(self, namespace: int) -> None:
        self._namespace = namespace

    def socket(
        self,
        family: socket.AddressFamily | int = socket.AF_INET,
        type: socket.SocketKind | int = socket.SOCK_STREAM,  # noqa: A002, the name is trio's
        proto: int = 0,
    ) -> trio.socket.SocketType:
        with _standing_in(self._namespace):
            made = socket.socket(family, type, proto)
        return trio.socket.from_stdlib_socket(made)


@contextmanager
def sockets_in(path: str) -> Iterator[None]:
    """Inside the block the sockets that this trio run makes through trio (httpx does) live in `path`.

    Address names are still looked up by threads that stand in the own namespace: use numbers.
    """
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        previous = trio.socket.set_custom_socket_factory(_SocketFactory(namespace))
        try:
            yield
        finally:
            trio.socket.set_custom_socket_factory(previous)
    finally:
        os.close(namespace)
