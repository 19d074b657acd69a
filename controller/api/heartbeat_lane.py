"""The lane for heartbeats: on the API's own port, most requests of a fleet are answered without the framework.

A new connection is read here first. A request that is plainly a heartbeat, and whose answer is 200, is answered at
once; with the first that is anything else the connection goes on to the application, for the rest of its life and
with what was read of it. So the application alone refuses, and nothing that is not plain has to be understood here.
What a heartbeat means is the reception's.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from wsgiref.handlers import format_date_time

import trio

from controller.reception import Reception
from supervisor import wire
from supervisor.shared.http_app import JSON
from supervisor.shared.serving import KEEP_ALIVE_SEC, Application, Message, Receive, Send
from supervisor.shared.tokens import EVERY_RIGHT, Role, TokenFile

PATH = "/controller/heartbeat"
REQUEST_LINE = f"POST {PATH} HTTP/1.1\r\n".encode()
HEAD_END = b"\r\n\r\n"
MAX_HEAD_BYTES = 4096
MAX_BODY_BYTES = 16384
"""More than the endpoints of a pod need; whoever sends more is heard by the application."""
UNREAD = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Values of headers that are not looked at."""
PLAIN = {
    "host": re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](?::[0-9]{1,5})?"),
    "content-length": re.compile(r"[1-9][0-9]{0,4}"),
    "content-type": re.compile(re.escape(JSON)),
    "connection": re.compile("keep-alive"),
    "authorization": UNREAD,
    "accept": UNREAD,
    "accept-encoding": UNREAD,
    "user-agent": UNREAD,
}
"""The headers of a plain request, each at most once, with the values that they may have."""

log = logging.getLogger(__name__)

Answer = Callable[[str | None, bytes], bytes | None]
"""From the header Authorization and the body of a heartbeat: the body of a 200, or None where it is to be refused."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A whole request that can be answered here."""

    authorization: str | None
    body: bytes
    size: int
    """Bytes of all of it."""


class Unanswerable(Enum):
    INCOMPLETE = auto()
    """As far as it goes it is plain."""
    OTHER = auto()
    """Not a heartbeat, or not a plain one."""


def first_request(data: bytes) -> Plain | Unanswerable:
    """What a connection's first bytes are."""
    if not data.startswith(REQUEST_LINE):
        return Unanswerable.INCOMPLETE if REQUEST_LINE.startswith(data) else Unanswerable.OTHER
    end = data.find(HEAD_END, len(REQUEST_LINE) - 2, MAX_HEAD_BYTES)
    if end < 0:
        return Unanswerable.INCOMPLETE if len(data) < MAX_HEAD_BYTES else Unanswerable.OTHER
    headers = _plain_headers(data[len(REQUEST_LINE) : end])
    if headers is None or "host" not in headers or "content-length" not in headers:
        return Unanswerable.OTHER
    begin, length = end + len(HEAD_END), int(headers["content-length"])
    if length > MAX_BODY_BYTES:
        return Unanswerable.OTHER
    if len(data) < begin + length:
        return Unanswerable.INCOMPLETE
    return Plain(headers.get("authorization"), data[begin : begin + length], begin + length)


def _plain_headers(head: bytes) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    if not head.isascii():
        return None
    for line in head.decode("ascii").split("\r\n"):
        name, colon, value = line.partition(": ")
        name = name.lower()
        allowed = PLAIN.get(name)
        if not colon or allowed is None or name in headers or allowed.fullmatch(value) is None:
            return None
        headers[name] = value
    return headers


def answering(reception: Reception, tokens: TokenFile | None) -> Answer:
    def answer(authorization: str | None, body: bytes) -> bytes | None:
        now = trio.current_time()
        rights = EVERY_RIGHT if tokens is None else tokens.rights_of(authorization, now)
        try:
            message = wire.decode(wire.HeartbeatMsg, body)
            if rights is None or not rights.may(Role.NODE, message.namespace):
                return None
            return wire.encode(reception.heartbeat(message, now))
        except Exception:  # noqa: BLE001 - repeated by the application, which tells the sender and logs what is a bug
            return None

    return answer


class HeartbeatLane:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, stream: trio.abc.Stream) -> bytes:
        """Serve heartbeats; what is left is for the application, nothing if the connection is over.

        A request that is not complete after KEEP_ALIVE_SEC is the application's too. Raises trio.BrokenResourceError.
        Cancelled, an answer may have been sent in part.
        """
        unanswered = b""
        with trio.CancelScope() as patience:
            while True:
                patience.deadline = trio.current_time() + KEEP_ALIVE_SEC
                request = first_request(unanswered)
                while request is Unanswerable.INCOMPLETE:
                    if not (received := await stream.receive_some(MAX_HEAD_BYTES)):
                        return unanswered
                    unanswered += received
                    request = first_request(unanswered)
                if not isinstance(request, Plain):
                    return unanswered
                body = self._answer(request.authorization, request.body)
                if body is None:
                    return unanswered
                # Nothing is left for the application of a connection on which an answer got stuck.
                rest, unanswered = unanswered[request.size :], b""
                await stream.send_all(_response(body))
                unanswered = rest
        return unanswered


def _response(body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 200 \r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n"
        f"date: {format_date_time(time.time())}\r\n\r\n"
    )
    return head.encode("ascii") + body


class BackToTheLane:
    """Ends a supervisor's connection with the application's answer, so that its next one begins in the lane.

    Else it would stay with the application for its life: it registers and reports over the same one.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [(name, value) for name, value in message["headers"] if name.lower() != b"connection"]
                message = {**message, "headers": [*others, (b"connection", b"close")]}
            await send(message)

        is_supervisor = scope["type"] == "http" and scope["path"].startswith("/controller/")
        is_kept = is_supervisor and scope["http_version"] == "1.1"
        await self._application(scope, receive, ending if is_kept else send)
