"""How a supervisor finds the controller that leads (F19): whom it asks, whom it trusts, when it gives up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from quart import Response, request
from quart_trio import QuartTrio
from trio.testing import MockClock

from controller.api.leader_routes import standby_app
from controller.election import Leader
from supervisor import wire
from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.controller_errors import ControllerForgot, ControllerRefused, ControllerUnreachable
from tests.support.memory_network import MemoryNetwork, open_memory_network

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

BEAT = wire.HeartbeatMsg(job_name="job", ins_id=1, ip="10.0.0.1", status={})
A, B = "http://a:1026", "http://b:1026"


class Fleet:
    """Controllers by name."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.asked: list[tuple[str, str | None]] = []
        """Who leads and took a heartbeat, and the token that it was shown."""

    def leads(
        self,
        name: str,
        status: int = 200,
        body: wire.HeartbeatAnswer | wire.ErrorBody = wire.HeartbeatAnswer(term=2),  # noqa: B008 - frozen
    ) -> None:
        app = QuartTrio(name)

        @app.post("/controller/heartbeat")
        async def heartbeat() -> Response:
            self.asked.append((name, request.headers.get("authorization")))
            return Response(wire.encode(body), status)

        self._listen(name, app)

    def stands_by(self, name: str, leader: str | None) -> None:
        found = Leader(leader, 2) if leader else None
        self._listen(name, standby_app(lambda: found, lambda: True))

    def dies(self, name: str) -> None:
        self.network.close(name, 1026)

    def _listen(self, name: str, app: QuartTrio) -> None:
        self.network.listen(name, 1026, app)


@asynccontextmanager
async def fleet(*urls: str) -> AsyncIterator[tuple[Fleet, ControllerClient]]:
    async with open_memory_network() as network:
        client = ControllerClient(urls, lambda: "secret", network.transport("pod"))
        yield Fleet(network), client
        await client.aclose()


async def test_who_asks_after_the_end_is_told_that_it_is_the_end(autojump_clock: MockClock) -> None:
    """An operator's command that came while the supervisor was ending."""
    async with fleet(A) as (controllers, client):
        controllers.leads("a")
        await client.heartbeat(BEAT)
        await client.aclose()
        with pytest.raises(ControllerUnreachable, match="this supervisor ends"):
            await client.relaunch(1, "asked for")


async def test_the_leader_that_a_standby_names_gets_the_message_at_once_and_all_that_follow(
    autojump_clock: MockClock,
) -> None:
    async with fleet(A) as (controllers, client):
        controllers.stands_by("a", B)
        controllers.leads("b")
        assert (await client.heartbeat(BEAT)).term == 2
        controllers.dies("a")
        await client.heartbeat(BEAT)
        assert controllers.asked == [("b", "Bearer secret")] * 2
        assert client.url == B


async def test_a_standby_that_names_nobody_is_passed_over_for_the_next_that_is_configured(
    autojump_clock: MockClock,
) -> None:
    async with fleet(A, B) as (controllers, client):
        controllers.stands_by("a", None)
        controllers.leads("b")
        await client.heartbeat(BEAT)
        assert client.url == B


async def test_a_named_leader_that_fails_is_forgotten_and_what_is_configured_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with fleet(A) as (controllers, client):
        controllers.stands_by("a", B)
        with pytest.raises(ControllerUnreachable, match="b:1026"):
            await client.heartbeat(BEAT)
        controllers.dies("a")
        controllers.leads("a")  # it has taken over
        await client.heartbeat(BEAT)
        assert [name for name, _ in controllers.asked] == ["a"]


async def test_standbys_that_name_each_other_are_not_asked_for_ever(autojump_clock: MockClock) -> None:
    async with fleet(A, B) as (controllers, client):
        controllers.stands_by("a", B)
        controllers.stands_by("b", A)
        with pytest.raises(ControllerUnreachable, match=f"none of {A}, {B} leads"):
            await client.heartbeat(BEAT)


@pytest.mark.parametrize("named", ["https://b:1026", "ftp://b:1026", "b:1026", "http://", "http://b:x", "nonsense"])
async def test_an_address_of_another_kind_is_not_followed(autojump_clock: MockClock, named: str) -> None:
    async with fleet(A) as (controllers, client):
        controllers.stands_by("a", named)
        controllers.leads("b")
        with pytest.raises(ControllerUnreachable, match=f"none of {A} leads"):
            await client.heartbeat(BEAT)
        assert controllers.asked == []


async def test_to_be_unknown_to_the_leader_is_not_to_be_answered_by_a_standby(autojump_clock: MockClock) -> None:
    async with fleet(A) as (controllers, client):
        controllers.stands_by("a", None)
        with pytest.raises(ControllerUnreachable):
            await client.heartbeat(BEAT)
        controllers.dies("a")
        controllers.leads("a", status=503)
        with pytest.raises(ControllerForgot):
            await client.heartbeat(BEAT)


async def test_who_cannot_write_now_has_forgotten_nobody(autojump_clock: MockClock) -> None:
    async with fleet(A) as (controllers, client):
        full = wire.ErrorBody(error=wire.ErrorCode.FAILED, message="the journal cannot be written: make room")
        controllers.leads("a", status=503, body=full)
        with pytest.raises(ControllerRefused, match="make room"):
            await client.heartbeat(BEAT)
        controllers.dies("a")
        controllers.leads("a", status=503, body=wire.ErrorBody(error=wire.ErrorCode.UNKNOWN, message="register"))
        with pytest.raises(ControllerForgot):
            await client.heartbeat(BEAT)
