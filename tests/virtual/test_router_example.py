"""What the router of docs/routing.md sends on, and what it answers itself."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from docs.examples.router import Router, Routes
from tests.unit.test_router_example import listing, view

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
REFUSED = None
LOADING = 503
CANNOT_BEGIN = pytest.mark.parametrize("state", [REFUSED, LOADING], ids=["refused", "loading"])


class Engines(httpx.AsyncBaseTransport):
    """By address: the status that each answers with, or that it refuses the connection."""

    def __init__(self, states: Mapping[str, int | None]) -> None:
        self.states = states
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.asked.append(host)
        status = self.states[host]
        if status is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(status, stream=httpx.ByteStream(f"of {host}".encode()))


async def ask(engines: Engines) -> httpx.Response:
    """The router knows each of them as an instance that is ACTIVE."""
    routes = Routes()
    routes.begin(listing(*(view(id_, host) for id_, host in enumerate(engines.states))))
    async with httpx.AsyncClient(transport=engines) as client:
        app = httpx.ASGITransport(Router(routes, client))
        async with httpx.AsyncClient(transport=app, base_url="http://router") as asking:
            return await asking.post("/v1/completions", json={"prompt": "Hello"})


@CANNOT_BEGIN
async def test_an_engine_that_cannot_begin_leaves_the_request_to_another(state: int | None) -> None:
    """Between the death of an engine and its event the next one may listen already, and say that it loads."""
    engines = Engines({A: 200, B: state, C: state})
    answer = await ask(engines)
    assert (answer.status_code, answer.text) == (200, f"of {A}")
    assert engines.asked == [B, C, A]


@CANNOT_BEGIN
async def test_where_none_can_begin_the_client_is_told_to_come_again(state: int | None) -> None:
    engines = Engines({A: state, B: state})
    answer = await ask(engines)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert sorted(engines.asked) == [A, B]


@pytest.mark.parametrize("status", [200, 400, 404, 429, 500])
async def test_any_other_answer_is_the_clients(status: int) -> None:
    engines = Engines({A: status, B: status})
    answer = await ask(engines)
    assert (answer.status_code, answer.text) == (status, f"of {engines.asked[0]}")
    assert len(engines.asked) == 1
