"""The lane for heartbeats: what it answers, what it leaves to the application, and how a connection ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.api.heartbeat_lane import MAX_BODY_BYTES, MAX_HEAD_BYTES, BackToTheLane
from supervisor import wire
from supervisor.shared.serving import KEEP_ALIVE_SEC
from supervisor.shared.tokens import TokenFile
from supervisor.wire import EndpointStatus
from tests.support.heartbeat_routes import both, heartbeat, open_route, request


async def test_a_plain_heartbeat_never_reaches_the_application(autojump_clock: MockClock) -> None:
    async with open_route(in_lane=True) as route:
        [said] = await route.send([request(heartbeat())])
        assert (said.status, route.application_asked) == ("HTTP/1.1 200 ", 0)
        assert wire.decode(wire.HeartbeatAnswer, said.body).instance_id == 1


async def test_heartbeats_that_come_in_pieces_and_together_are_answered_in_order(autojump_clock: MockClock) -> None:
    sent = b"".join(request(heartbeat(sequence=number)) for number in (1, 2, 3))
    async with open_route(in_lane=True) as route:
        said = await route.send([sent[:20], sent[20:400], sent[400:]])
        assert [answer.status for answer in said] == ["HTTP/1.1 200 "] * 3
        assert route.heard_in_lane == [heartbeat(sequence=number) for number in (1, 2, 3)]
        assert route.application_asked == 0


@pytest.mark.parametrize(
    "sent",
    [
        request(heartbeat(job_name="unknown")),
        request(heartbeat(status={"x": EndpointStatus.NORMAL})),
        request(b"{"),
        request(heartbeat(), "Connection: close"),
        request(heartbeat(), "Transfer-Encoding: chunked"),
        request(heartbeat(), "Expect: 100-continue"),
        request(heartbeat(), "X-Anything: 1"),
        request(heartbeat(), "User-Agent: " + "x" * MAX_HEAD_BYTES),
        request(heartbeat(namespace="x" * MAX_BODY_BYTES)),
        request(b"{}", first="POST /controller/reregister HTTP/1.1"),
        b"GET /readiness HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_whatever_else_comes_is_the_applications(autojump_clock: MockClock, sent: bytes) -> None:
    async with open_route(in_lane=True) as route:
        await route.send([request(heartbeat()), sent])
        assert route.application_asked == 1


@pytest.mark.parametrize("twice", ["Host: another", "Content-Length: 5"])
async def test_a_header_that_is_given_twice_is_refused_before_anybody_is_asked(
    autojump_clock: MockClock, twice: str
) -> None:
    async with open_route(in_lane=True) as route:
        [said] = await route.send([request(heartbeat(), twice)])
        assert (said.status, route.heard_in_lane, route.application_asked) == ("HTTP/1.1 400 ", [], 0)


async def test_only_a_supervisors_token_of_the_namespace_is_let_into_the_lane(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(
        "read reader\noperate operator\nnode supervisor\nnode@other stranger\nnode@default own\n"
    )
    refused = dict.fromkeys(("operator", "reader", "stranger", "wrong"), ("403", 1))
    for token, (status, asked) in {"supervisor": ("200", 0), "own": ("200", 0), **refused}.items():
        tokens = TokenFile(tmp_path / "tokens", trio.current_time())
        async with open_route(in_lane=True, tokens=tokens) as route:
            [said] = await route.send([request(heartbeat(), f"Authorization: Bearer {token}")])
            assert (said.status.split()[1], route.application_asked) == (status, asked)


async def test_a_bug_behind_a_heartbeat_costs_one_answer_and_no_server(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_route(in_lane=True) as route:
        monkeypatch.setattr(route.controller.registry, "observe", lambda *_: 1 / 0)
        [said] = await route.send([request(heartbeat())])
        assert said.status == "HTTP/1.1 500 "
        monkeypatch.undo()
        [said] = await route.send([request(heartbeat())])
        assert said.status == "HTTP/1.1 200 "


def test_who_sends_half_a_heartbeat_is_told_what_the_application_tells() -> None:
    half = request(heartbeat())[:-5]
    for then_eof in (True, False):
        in_lane, by_the_application = both([half], then_eof=then_eof)
        assert in_lane == by_the_application


async def test_an_idle_connection_is_closed_as_soon_as_the_application_would(autojump_clock: MockClock) -> None:
    async with open_route(in_lane=True) as route:
        await route.send([request(heartbeat())])
        assert trio.current_time() == pytest.approx(KEEP_ALIVE_SEC, abs=0.1)


async def test_who_registers_comes_back_to_the_lane(autojump_clock: MockClock) -> None:
    """Every answer of the application to a supervisor ends its connection."""
    async with open_route(in_lane=True, outside=BackToTheLane) as route:
        for first in ("POST /controller/register HTTP/1.1", "POST /controller/heartbeat HTTP/1.1"):
            said = await route.send([request(b"{}", first=first), request(heartbeat())])
            assert [dict(answer.headers).get("connection") for answer in said] == ["close"]


async def test_the_connection_of_a_tool_is_kept(autojump_clock: MockClock) -> None:
    async with open_route(in_lane=True, outside=BackToTheLane) as route:
        get = b"GET /v1/instances HTTP/1.1\r\nHost: a\r\n\r\n"
        assert [answer.status for answer in await route.send([get, get])] == ["HTTP/1.1 200 "] * 2
