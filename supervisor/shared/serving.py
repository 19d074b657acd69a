"""An ASGI application on a listening socket (`listening.py`), each connection through hypercorn's trio protocols.

Three traps of a shutdown are closed here: idle keep-alive clients (ShieldLastSend), requests that do not end
(the graceful time-out) and clients that do not read (their connections are broken off).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app

from supervisor.shared.causes import causes
from supervisor.shared.error_window import ErrorWindow
from supervisor.shared.listening import UNREAD_SEC
from supervisor.shared.tls import Tls

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

GRACEFUL_SEC = 3.0
KEEP_ALIVE_SEC = 15.0
"""Five heartbeats: a supervisor's connection stays open between them."""


class Lane(Protocol):
    """What reads a connection before the application does."""

    async def __call__(self, stream: trio.abc.Stream) -> bytes:
        """What was read and is for the application; nothing if the connection is over. May raise BrokenResourceError.

        Cancelled, the connection is closed.
        """


async def serve(
    application: Application,
    listener: socket.socket,
    stop: trio.Event,
    tls: Tls | None = None,
    *,
    lane: Lane | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop`, then give requests GRACEFUL_SEC; reports the base URL. Takes `listener` over.

    With `tls`, only clients with a certificate are heard. With `lane`, it reads every connection first.

    Cancelled, it breaks off the requests in flight (their handlers are cancelled) and closes the port.
    """
    url = _url(listener, tls)
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    connections = Connections(application, lane)
    async with trio.open_nursery() as watching:
        ended = trio.Event()
        watching.start_soon(connections.break_off_in_the_end, stop, ended)
        try:
            await connections.serve(_secured(accepting, tls), stop, partial(task_status.started, url))
        finally:
            ended.set()
        watching.cancel_scope.cancel(reason="nothing is left to be broken off")


def _url(listener: socket.socket, tls: Tls | None) -> str:
    scheme = "http" if tls is None else "https"
    if listener.family == socket.AF_UNIX:
        return f"{scheme}://unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _secured(
    listener: trio.SocketListener, tls: Tls | None
) -> trio.SocketListener | trio.SSLListener[trio.SocketStream]:
    return listener if tls is None else trio.SSLListener(listener, tls.server, https_compatible=True)


@dataclass(eq=False, slots=True)
class _Connection:
    stream: Stream
    in_lane: trio.CancelScope = field(default_factory=trio.CancelScope)

    def break_off(self) -> None:
        """Whoever waits for it meets a closed socket."""
        stream = self.stream.transport_stream if isinstance(self.stream, trio.SSLStream) else self.stream
        stream.socket.close()


class Connections:
    """Those of one listener, and what reads and answers them."""

    def __init__(self, application: Application, lane: Lane | None) -> None:
        self._config = _config()
        # hypercorn's application takes more types than ours has.
        shielded = cast(ASGIFramework, self._guarded(ShieldLastSend(application)))
        self._application = wrap_app(shielded, self._config.wsgi_max_body_size, "asgi")
        self._context = WorkerContext(None)
        self._lane = lane
        self._open: set[_Connection] = set()
        self._bugs = ErrorWindow()

    async def serve(
        self,
        listener: trio.SocketListener | trio.SSLListener[trio.SocketStream],
        stop: trio.Event,
        started: Callable[[], None],
    ) -> None:
        async with trio.open_nursery() as handling:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(
                    partial(trio.serve_listeners, self.serve_one, [listener], handler_nursery=handling)
                )
                started()
                await stop.wait()
                accepting.cancel_scope.cancel(reason="asked to stop")
            for connection in self._open:
                connection.in_lane.cancel(reason="asked to stop")
            await self._context.terminated.set()
            handling.cancel_scope.deadline = trio.current_time() + GRACEFUL_SEC

    async def serve_one(self, stream: Stream) -> None:
        """From the first byte to the last; an error ends this connection alone. The stream may be left open."""
        connection = _Connection(stream)
        self._open.add(connection)
        try:
            await self._serve(connection)
        except* (trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
            # Busy: what is no HTTP any more is refused while the answer to what came before is still being sent.
            log.debug("a connection broke off", exc_info=True)
        except* Exception as errors:  # noqa: BLE001 - whatever a connection meets
            self._tell("connection", errors)
        finally:
            self._open.discard(connection)

    async def _serve(self, connection: _Connection) -> None:
        if self._lane is None:
            await self._serve_application(connection.stream)
        elif unanswered := await self._in_lane(self._lane, connection):
            await self._serve_application(cast(Stream, _ReadBefore(connection.stream, unanswered)))

    def _guarded(self, application: Application) -> Application:
        """Refuses websockets with 403: nothing here speaks so, and handlers of requests could not answer. A request
        that ends by an error is answered 500 by hypercorn, which would print a trace for each."""

        async def guarded(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close"})
                return
            try:
                await application(scope, receive, send)
            except* Exception as errors:  # noqa: BLE001 - whatever is asked
                self._tell("request", errors)

        return guarded

    def _tell(self, of: str, errors: BaseExceptionGroup[Exception]) -> None:
        first = next(causes(errors))
        held_back = self._bugs.admit(f"{of} {type(first).__name__}", trio.current_time())
        if held_back is not None:
            message = "a %s was broken off by %r: this is a bug of podvisor, and costs nobody else"
            log.error(message, of, first, exc_info=first, extra={"held_back": held_back})

    async def _in_lane(self, lane: Lane, connection: _Connection) -> bytes:
        with connection.in_lane, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            return await lane(connection.stream)
        return b""

    async def _serve_application(self, stream: Stream) -> None:
        await TCPServer(self._application, self._config, self._context, ConnectionState({}), cast(Any, stream))

    async def break_off_in_the_end(self, stop: trio.Event, ended: trio.Event) -> None:
        """hypercorn shields what it sends, without a deadline: a client that does not read would hold up the end."""
        try:
            await stop.wait()
            await trio.sleep(GRACEFUL_SEC)
        finally:
            with trio.move_on_after(UNREAD_SEC, shield=True):
                await ended.wait()
            for connection in tuple(self._open):
                connection.break_off()


def _config() -> Config:
    config = Config()
    config.keep_alive_timeout = KEEP_ALIVE_SEC
    config.keep_alive_max_requests = 1_000_000
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    logging.getLogger("hypercorn.error").setLevel(logging.WARNING)
    return config


class _ReadBefore:
    """A stream of which something has been read already."""

    def __init__(self, stream: Stream, data: bytes) -> None:
        self._stream = stream
        self._data = data

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._data:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        data, self._data = self._data, b""
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
