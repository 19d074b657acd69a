"""The lane for heartbeats beside the application's own route: whatever is sent, both answer the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.wire import EndpointStatus
from tests.support.heartbeat_routes import both, heartbeat, request

EXAMPLES = 60
TOKENS = "read reader\noperate operator\nnode supervisor\nnode@other stranger\n"


# --- what is sent ------------------------------------------------------------------------------------------

BODIES = st.sampled_from(
    [
        heartbeat(),
        heartbeat(sequence=2, epoch=3, status={"0": EndpointStatus.ABNORMAL, "1": EndpointStatus.NORMAL}),
        heartbeat(boot_id="another"),
        heartbeat(ip="10.9.9.9", boot_id=None),
        heartbeat(job_name="unknown"),
        heartbeat(ins_id=999),
        heartbeat(status={"x": EndpointStatus.NORMAL}),
        heartbeat(status={"9" * 5000: EndpointStatus.NORMAL}),
        heartbeat(status={"²": EndpointStatus.NORMAL}),
        heartbeat(namespace="x" * 20_000),
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"job_name": "j',
        b'{"job_name": 7, "ins_id": 0, "ip": "", "status": {}}',
        b"\xff\xfe",
    ]
)
FIRST_LINES = st.sampled_from(
    ["POST /controller/heartbeat HTTP/1.1"] * 8
    + [
        "GET /controller/heartbeat HTTP/1.1",
        "post /controller/heartbeat HTTP/1.1",
        "POST /controller/heartbeat HTTP/1.0",
        "POST /controller/heartbeat HTTP/1.2",
        "POST /controller/heartbeat/ HTTP/1.1",
        "POST /controller/heartbeat?x=1 HTTP/1.1",
        "POST http://controller:1026/controller/heartbeat HTTP/1.1",
        "POST  /controller/heartbeat HTTP/1.1",
        "POST /controller/heartbeat HTTP/1.1 ",
        "POST /controller/register HTTP/1.1",
        "PRI * HTTP/2.0",
    ]
)
HOSTS = st.sampled_from(
    ["Host: controller:1026"] * 8
    + ["host: [fd00::1]:1026", "HOST: a", "Host: ", "Host: a b", "Host: a,b", "Host: a/b", "Host: ü", "Host : a"]
)
# No chunked body: what the application answers to a broken one depends on which of its tasks comes first.
HEADERS = st.sampled_from(
    [
        "Content-Type: application/json",
        "Content-Type: application/json; charset=utf-8",
        "Content-Type: text/html",
        "Content-Type: ",
        "Authorization: Bearer supervisor",
        "Authorization: Bearer operator",
        "Authorization: Bearer stranger",
        "Authorization: Bearer wrong",
        "Authorization: Basic supervisor",
        "authorization:Bearer supervisor",
        "Authorization: Bearer\tsupervisor",
        "User-Agent: python-httpx/0.28.1",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        "Connection: close",
        "Connection: Upgrade",
        "Upgrade: h2c",
        "Expect: 100-continue",
        "Transfer-Encoding: identity",
        "Content-Length: 5",
        "Content-Length: 5, 5",
        "X-Request-Id: 7",
        "Content-Encoding: gzip",
        "Cookie: a=b",
        " folded",
        "no colon",
        ": no name",
        "Host: another",
        "Range: bytes=0-1",
        "Accept: \x00",
        "User-Agent: a\rb",
        "User-Agent: a\nb",
        "X: " + "y" * 5000,
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(BODIES)
    length = draw(
        st.sampled_from([f"Content-Length: {len(body)}"] * 8)
        | st.sampled_from(
            [
                f"content-length: {len(body)}",
                f"Content-Length: +{len(body)}",
                f"Content-Length: 0{len(body)}",
                f"Content-Length: {len(body)} ",
                f"Content-Length: {len(body) + 7}",
                f"Content-Length: {max(0, len(body) - 7)}",
                "Content-Length: 9999999999",
                "Content-Length: -1",
                "Content-Length: x",
                "X-None: 1",
            ]
        )
    )
    lines = draw(st.permutations([draw(HOSTS), length, *draw(st.lists(HEADERS, max_size=4))]))
    end = draw(st.sampled_from(["\r\n"] * 15 + ["\n"]))
    return end.join([draw(FIRST_LINES), *lines, "", ""]).encode("latin-1") + body


@st.composite
def split(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=5))})
    return [data[begin:end] for begin, end in pairwise(places)]


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(TOKENS)
    return path


# --- what holds --------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.lists(requests(), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_the_lane_answers_as_the_application_does(
    token_file: Path, sent: list[bytes], then_eof: bool, with_tokens: bool
) -> None:
    in_lane, by_the_application = both([b"".join(sent)], then_eof=then_eof, tokens=token_file if with_tokens else None)
    assert in_lane == by_the_application


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.data())
def test_garbage_in_a_heartbeat_is_answered_as_the_application_does(data: st.DataObject) -> None:
    good = request(heartbeat(), "Content-Type: application/json", "Connection: keep-alive", "User-Agent: x")
    at = data.draw(st.integers(0, len(good)))
    until = data.draw(st.integers(at, min(len(good), at + 8)))
    garbage = data.draw(st.binary(max_size=8) | st.sampled_from([b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b"0", b"\0"]))
    sent = good[:at] + garbage + good[until:] + data.draw(st.sampled_from([b"", good]))
    in_lane, by_the_application = both([sent], then_eof=data.draw(st.booleans()))
    assert in_lane == by_the_application


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.data())
def test_what_comes_in_pieces_is_answered_as_the_application_does(data: st.DataObject) -> None:
    """But that the application may refuse and hang up before it has read all, where the lane still reads."""
    sent = b"".join(data.draw(st.lists(requests(), min_size=1, max_size=3)))
    in_lane, by_the_application = both(data.draw(split(sent)), then_eof=data.draw(st.booleans()))
    assert in_lane.answers[: len(by_the_application.answers)] == by_the_application.answers
