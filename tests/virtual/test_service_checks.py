"""HTTP and TCP checks over streams in memory, and their words for everything that goes wrong."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from supervisor.service.checks import split_address
from supervisor.service.http_check import MAX_BODY, HttpAnswer, NoAnswer, complaint, fetch
from supervisor.unit.model import HttpCheck

CHECK = HttpCheck("http://10.0.0.7:8000/health?full=1")


class Server:
    """Answers one connection with fixed bytes; keeps what was asked."""

    def __init__(self, answer: bytes, *, asks: bytes = b"\r\n\r\n") -> None:
        self.asked = b""
        self.where: tuple[str, int] | None = None
        self._answer = answer
        self._until = asks

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        self.where = host, port
        ours, theirs = trio.testing.memory_stream_pair()
        trio.lowlevel.spawn_system_task(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        while not self.asked.endswith(self._until):
            part = await stream.receive_some(100)
            if not part:
                return
            self.asked += part
        try:
            await stream.send_all(self._answer)
        except trio.BrokenResourceError:
            pass
        await stream.aclose()


async def test_a_request_says_who_asks_and_wants_no_second(autojump_clock: MockClock) -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert await fetch(CHECK, connect=server.connect) == HttpAnswer(200, b"ok")
    assert server.where == ("10.0.0.7", 8000)
    head, *lines = server.asked.decode().split("\r\n")
    assert head == "GET /health?full=1 HTTP/1.1"
    assert "host: 10.0.0.7:8000" in lines
    assert "connection: close" in lines


async def test_a_body_is_json_unless_headers_say_otherwise(autojump_clock: MockClock) -> None:
    server = Server(b"HTTP/1.1 204 No Content\r\n\r\n", asks=b'{"a": 1}')
    await fetch(HttpCheck("http://h/", "POST", body='{"a": 1}'), connect=server.connect)
    assert b"content-type: application/json\r\ncontent-length: 8" in server.asked
    server = Server(b"HTTP/1.1 204 No Content\r\n\r\n", asks=b"PING")
    check = HttpCheck("http://h/", "POST", headers=(("Content-Type", "text/plain"),), body="PING")
    await fetch(check, connect=server.connect)
    assert b"application/json" not in server.asked


@pytest.mark.parametrize(
    "answer, expected",
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", HttpAnswer(503, b"")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", HttpAnswer(200, b"until the end")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", HttpAnswer(200, b"")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", HttpAnswer(200, b"abc")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b"x" * 999999, HttpAnswer(200, b"x" * MAX_BODY)),
    ],
)
async def test_answers_of_every_form_are_read(answer: bytes, expected: HttpAnswer, autojump_clock: MockClock) -> None:
    assert await fetch(CHECK, connect=Server(answer).connect) == expected


@pytest.mark.parametrize(
    "answer, words",
    [
        (b"", "closed without an answer|is not HTTP"),
        (b"+PONG\r\n\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "is not HTTP"),
    ],
)
async def test_what_is_no_answer_is_said_so(answer: bytes, words: str, autojump_clock: MockClock) -> None:
    with pytest.raises(NoAnswer, match=words):
        await fetch(CHECK, connect=Server(answer).connect)


@pytest.mark.parametrize("url", ["ftp://h/", "http:///path", "nonsense"])
async def test_a_url_that_cannot_be_asked_is_a_value_error(url: str, autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="expected http"):
        await fetch(HttpCheck(url), connect=Server(b"").connect)


@pytest.mark.parametrize(
    "check, answer, expected",
    [
        (HttpCheck("u"), HttpAnswer(302, b""), None),
        (HttpCheck("u"), HttpAnswer(404, b""), "HTTP 404"),
        (HttpCheck("u", expect_status=((401, 401), (200, 200))), HttpAnswer(401, b""), None),
        (HttpCheck("u", expect_body='"ok"'), HttpAnswer(200, b'{"state": "ok"}'), None),
        (HttpCheck("u", expect_body="^ok$"), HttpAnswer(200, b"no"), "HTTP 200, but its body does not match '^ok$'"),
    ],
)
def test_what_is_wrong_with_an_answer(check: HttpCheck, answer: HttpAnswer, expected: str | None) -> None:
    assert complaint(check, answer) == expected


@pytest.mark.parametrize(
    "address, expected", [("127.0.0.1:6379", ("127.0.0.1", 6379)), ("[::1]:80", ("::1", 80)), ("redis:1", ("redis", 1))]
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["127.0.0.1", ":80", "host:port", ""])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        split_address(address)
