"""One HTTP request of a probe, over h11: a page of code where a full client would be imported into PID 1 for it.

Imported on first use only. Certificates are not verified, redirects are answers, as for Kubernetes' probes.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

import h11
import msgspec
import trio

from supervisor.service.connecting import why_not_connected
from supervisor.unit.model import HttpCheck

MAX_BODY = 64 * 1024
"""So much of an answer is read and searched, unless more is asked for."""
_CHUNK = 16 * 1024

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]


class NoAnswer(Exception):
    """No HTTP answer came: refused, broken, not HTTP."""


class HttpAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


async def fetch(check: HttpCheck, *, connect: Connect = trio.open_tcp_stream, max_body: int = MAX_BODY) -> HttpAnswer:
    """Send the request and read the answer. No time-out of its own. Raise NoAnswer, and ValueError for a bad URL."""
    url = urlsplit(check.url)
    if url.hostname is None or url.scheme not in ("http", "https"):
        raise ValueError(f"expected http://HOST… or https://HOST…, found {check.url!r}")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        stream = await connect(url.hostname, port)
    except OSError as error:
        raise NoAnswer(f"cannot connect to {url.hostname} port {port}: {why_not_connected(error)}") from error
    if url.scheme == "https":
        stream = trio.SSLStream(stream, _unverified(), server_hostname=url.hostname, https_compatible=True)
    try:
        return await _exchange(stream, _request(check, url), (check.body or "").encode(), max_body)
    except (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError) as error:
        raise NoAnswer(f"the connection broke: {error.__cause__ or error}") from error
    except h11.ProtocolError as error:
        whose = "the answer" if isinstance(error, h11.RemoteProtocolError) else "the request"
        raise NoAnswer(f"{whose} is not HTTP: {error}") from error
    finally:
        await trio.aclose_forcefully(stream)


def complaint(check: HttpCheck, answer: HttpAnswer) -> str | None:
    """What is wrong with the answer; None if it is as expected."""
    if not any(low <= answer.status <= high for low, high in check.expect_status):
        return f"HTTP {answer.status}"
    body = answer.body.decode("utf-8", "replace")
    if check.expect_body is not None and re.search(check.expect_body, body) is None:
        return f"HTTP {answer.status}, but its body does not match {check.expect_body!r}"
    return None


def _request(check: HttpCheck, url: SplitResult) -> h11.Request:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.netloc.rpartition("@")[2]
    headers = {"host": host, "user-agent": "podvisor-probe", "accept": "*/*", "connection": "close"}
    if check.body is not None:
        headers |= {"content-type": "application/json", "content-length": str(len(check.body.encode()))}
    headers |= {name.lower(): value for name, value in check.headers}
    return h11.Request(method=check.method, target=target, headers=list(headers.items()))


async def _exchange(stream: trio.abc.Stream, request: h11.Request, body: bytes, max_body: int) -> HttpAnswer:
    connection = h11.Connection(h11.CLIENT)
    message = connection.send(request) or b""
    if body:
        message += connection.send(h11.Data(body)) or b""
    await stream.send_all(message + (connection.send(h11.EndOfMessage()) or b""))
    status: int | None = None
    read = bytearray()
    while True:
        match event := connection.next_event():
            case h11.Response():
                status = event.status_code
            case h11.Data() if len(read) < max_body:
                read += event.data
            case _ if status is not None and (event is not h11.NEED_DATA or len(read) >= max_body):
                return HttpAnswer(status, bytes(read[:max_body]))
            case h11.ConnectionClosed():
                raise NoAnswer("the connection was closed without an answer")
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_CHUNK)))


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
