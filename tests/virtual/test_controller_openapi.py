"""/openapi.json: what is served is described, what is described is served, and a validator takes it."""

from __future__ import annotations

import re

import openapi_spec_validator
import pytest
from quart import Response
from trio.testing import MockClock

from controller.api.openapi import errors
from controller.api.routes import Routes
from supervisor import wire
from supervisor.shared.tokens import Role
from tests.support.controller_world import open_world
from tests.support.memory_network import open_memory_network

AUTOMATIC = {"HEAD", "OPTIONS"}


async def test_the_document_and_the_router_name_the_same_routes(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        document = (await world.client.get("/openapi.json")).json()
        described = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
        served = {
            (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
            for rule in world.it.routes.app.url_map.iter_rules()
            for method in (rule.methods or set()) - AUTOMATIC
        }
    assert described == served
    assert ("POST", "/controller/heartbeat") in described


async def test_a_validator_of_openapi_takes_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        document = (await world.client.get("/openapi.json")).json()
    openapi_spec_validator.validate(document)
    del document["paths"]["/v1/instances/{instance_id}"]["get"]["parameters"]
    with pytest.raises(openapi_spec_validator.validation.exceptions.OpenAPIValidationError):
        openapi_spec_validator.validate(document)


async def test_every_operation_says_what_it_refuses_and_who_may(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        declared = world.it.routes.declared
        document = (await world.client.get("/openapi.json")).json()
    for route in declared:
        operation = document["paths"][route.template][route.method.lower()]
        assert operation["summary"]
        assert {int(status) for status in operation["responses"]} == {route.status, *errors(route)}
        assert bool(operation["security"]) is (route.role is not None)
    assert document["components"]["schemas"]["ErrorBody"]["properties"]["error"]


async def test_a_route_that_is_declared_is_served_checked_and_described(autojump_clock: MockClock) -> None:
    routes = Routes("example", None)

    @routes.post(
        "/v1/things/<int:thing_id>",
        message=wire.Reason,
        answer=wire.RunView,
        status=202,
        location=lambda run: f"/v1/relaunches/{run.id}",
    )
    async def change(message: wire.Reason, thing_id: int) -> wire.RunView:
        """Change a thing."""
        return wire.RunView(
            id=message.reason,
            instance_id=thing_id,
            epoch=0,
            reason="operator",
            outcome=None,
            phase=1,
            steps=(),
            supervisors=(),
        )

    async with open_memory_network() as network, network.client("tool", "http://example:80") as client:
        network.listen("example", 80, routes.app)
        answer = await client.post("/v1/things/7", json={"reason": "r"})
        assert (answer.status_code, answer.headers["Location"]) == (202, "/v1/relaunches/r")
        assert wire.decode(wire.RunView, answer.content).instance_id == 7
        for path, said in (("/v1/things/x", "thing_id: found 'x'"), ("/v1/things/7?a=1", "'a' is no parameter of")):
            refused = await client.post(path)
            assert (refused.status_code, said in refused.json()["message"]) == (400, True)
    (route,) = routes.declared
    assert (route.summary, route.template, route.role) == ("Change a thing", "/v1/things/{thing_id}", Role.OPERATE)


def test_a_route_without_words_or_declared_twice_is_a_mistake() -> None:
    routes = Routes("example", None)

    async def silent() -> Response:
        return Response("")

    async def speaking() -> Response:
        """Something."""
        return Response("")

    with pytest.raises(ValueError, match="silent needs a docstring"):
        routes.text("/x", media=("text/plain",), role=None)(silent)
    routes.text("/x", media=("text/plain",), role=None)(speaking)
    with pytest.raises(ValueError, match="GET /x is declared twice"):
        routes.text("/x", media=("text/plain",), role=None)(speaking)
