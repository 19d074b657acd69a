"""An ASGI application on a TCP port, through hypercorn's trio server.

Three traps of a shutdown are closed here: idle keep-alive clients (ShieldLastSend), requests that do not end
(the graceful time-out) and clients that do not read (TCP_USER_TIMEOUT on a socket of our own).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import psutil
import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.typing import ASGIFramework

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

BACKLOG = 1024
"""A fleet that registers at once after our start must not meet a full queue."""
GRACEFUL_SEC = 3.0
UNREAD_SEC = 5.0
"""After so long without an acknowledgement of what was sent, the kernel breaks the connection."""
KEEP_ALIVE_SEC = 15.0
"""Five heartbeats: a supervisor's connection stays open between them."""

log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The port cannot be had: which, why, and who has it."""


def listen(host: str, port: int) -> socket.socket:
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
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}{_holder(port)}") from error
    return listener


def _holder(port: int) -> str:
    """Who listens there, as far as this user may see it."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" (pid {connection.pid}, {name})"
    return ""


async def serve(
    application: Application,
    listener: socket.socket,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop`, then give requests GRACEFUL_SEC; reports the base URL. Takes `listener` over.

    Cancelled, it breaks off the requests in flight (their handlers are cancelled) and closes the port.
    """
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = GRACEFUL_SEC
    config.keep_alive_timeout = KEEP_ALIVE_SEC
    config.keep_alive_max_requests = 1_000_000
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    logging.getLogger("hypercorn.error").setLevel(logging.WARNING)
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(
            partial(
                hypercorn_serve,
                cast(ASGIFramework, ShieldLastSend(application)),
                config,
                shutdown_trigger=stop.wait,
            )
        )
        task_status.started(urls[0])


class ShieldLastSend:
    """Lets hypercorn finish the last send of a response, in which it starts its idle timer.

    quart-trio cancels a request's tasks on the `http.disconnect` that hypercorn sends at the end of the body.
    Without the timer, keep_alive_timeout does nothing, and one idle client makes every shutdown last the whole
    graceful time-out.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                with trio.move_on_after(UNREAD_SEC, shield=True):
                    await send(message)
                return
            await send(message)

        await self._application(scope, receive, guarded if scope["type"] == "http" else send)
