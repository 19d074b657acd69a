"""An ASGI application on a listening socket (`listening.py`), through hypercorn's trio server.

Three traps of a shutdown are closed here: idle keep-alive clients (ShieldLastSend), requests that do not end
(the graceful time-out) and clients that do not read (TCP_USER_TIMEOUT on a socket of our own; where there is no such,
on Unix sockets, their connections are broken off).
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.typing import ASGIFramework

from supervisor.shared.listening import UNREAD_SEC
from supervisor.shared.tls import Tls

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

GRACEFUL_SEC = 3.0
KEEP_ALIVE_SEC = 15.0
"""Five heartbeats: a supervisor's connection stays open between them."""

log = logging.getLogger(__name__)


async def serve(
    application: Application,
    listener: socket.socket,
    stop: trio.Event,
    tls: Tls | None = None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop`, then give requests GRACEFUL_SEC; reports the base URL. Takes `listener` over.

    With `tls`, only clients with a certificate are heard.

    Cancelled, it breaks off the requests in flight (their handlers are cancelled) and closes the port.
    """
    path = listener.getsockname() if listener.family == socket.AF_UNIX else None
    config = Config() if tls is None else _TlsConfig(tls)
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = GRACEFUL_SEC
    config.keep_alive_timeout = KEEP_ALIVE_SEC
    config.keep_alive_max_requests = 1_000_000
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    logging.getLogger("hypercorn.error").setLevel(logging.WARNING)
    run = partial(hypercorn_serve, cast(ASGIFramework, ShieldLastSend(application)), config, shutdown_trigger=stop.wait)
    async with trio.open_nursery() as watching:
        ended = trio.Event()
        if path is not None:
            watching.start_soon(_break_off_when_cancelled, path, ended)
        try:
            async with trio.open_nursery() as nursery:
                urls = await nursery.start(run)
                task_status.started(urls[0])
        finally:
            ended.set()


async def _break_off_when_cancelled(path: str, ended: trio.Event) -> None:
    """hypercorn shields what it sends, without a deadline: a client that does not read would hold up the end."""
    try:
        await ended.wait()
    finally:
        with trio.move_on_after(UNREAD_SEC, shield=True):
            await ended.wait()
        if not ended.is_set():
            _break_off(path)


def _break_off(path: str) -> None:
    """Whatever of this process is connected to its socket of that name."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family == socket.AF_UNIX and connection.getsockname() == path:
                    connection.shutdown(socket.SHUT_RDWR)


class _TlsConfig(Config):
    """Hypercorn would read certificates once; this context reads them again."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self._tls = tls

    @property
    def ssl_enabled(self) -> bool:
        return True

    def create_ssl_context(self) -> ssl.SSLContext:
        return self._tls.server


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
