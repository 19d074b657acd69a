"""`GET /openapi.json`: the declared routes as OpenAPI 3.1, for tools that read, draw, call or test an API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from quart import Response

from controller.api import clients
from controller.api.route import Parameter, Route
from controller.api.routes import Routes
from supervisor.shared.http_app import JSON, MAX_BODY_BYTES, MAX_DIGITS
from supervisor.shared.tokens import Role
from supervisor.version import VERSION
from supervisor.wire import ErrorBody

Object = dict[str, object]

DESCRIPTION = """What supervisors tell the controller, and what people and tools ask it.

Every error is an ErrorBody. Unknown fields of a body are ignored, unknown parameters of a query are refused."""
SCHEMAS = "#/components/schemas/"


def add_openapi_route(routes: Routes) -> None:
    """To be added last: it describes what is there when it is asked."""

    @routes.text("/openapi.json", media=(JSON,), role=Role.READ)
    async def openapi() -> Response:
        """This API as OpenAPI 3.1."""
        return Response(msgspec.json.encode(document(routes.declared)), content_type=JSON)


def document(routes: Sequence[Route]) -> Object:
    structs = {kind for route in routes for kind in (route.message, route.answer) if kind is not None}
    ordered = sorted(structs | {ErrorBody}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=SCHEMAS + "{name}")
    paths: dict[str, Object] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "podvisor controller", "version": VERSION, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def errors(route: Route) -> dict[int, str]:
    """Every error that this route may answer, and why."""
    found = {500: "a mistake of the controller's"} | dict(route.errors)
    if route.message or route.query or route.headers or any(kind is int for _, kind in route.variables):
        found[400] = "malformed: the message names the field or parameter, what was found and what is expected"
    if route.role is not None:
        found[401] = "no token was shown"
        found[421] = "this controller stands by: `leader` is the URL of the one that leads, if it is known"
        found[403] = f"the token is wrong, or its role is less than `{route.role.name.lower()}`"
    if route.is_limited:
        found[clients.STATUS] = clients.WHY
    if route.method == "POST":
        found.setdefault(503, "the journal cannot be written now: what was asked is not promised")
    if route.message is not None:
        found[408] = "the body came too slowly"
        found[413] = f"the body is larger than {MAX_BODY_BYTES} bytes"
        found[415] = f"the body is declared to be something else than {JSON}"
    return dict(sorted(found.items()))


def _operation(route: Route) -> Object:
    operation: Object = {
        "summary": route.summary,
        "operationId": f"{route.method} {route.template}",
        "tags": [_tag(route)],
        "security": [{"token": []}] if route.role else [],
        "responses": {
            str(route.status): _success(route),
            **{str(status): _error(route, why) for status, why in errors(route).items()},
        },
    }
    if route.role is not None:
        operation["description"] = f"Needs a token of the role `{route.role.name.lower()}`, where tokens are asked for."
    if parameters := list(_parameters(route)):
        operation["parameters"] = parameters
    if route.message is not None:
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.message)),
            "content": {JSON: {"schema": _reference(route.message)}},
        }
    return operation


def _tag(route: Route) -> str:
    if route.role is None:
        return "probes"
    return "supervisors" if route.role is Role.NODE else "tools"


def _parameters(route: Route) -> Iterator[Object]:
    for name, kind in route.variables:
        schema: Object = (
            {"type": "integer", "minimum": 0, "maximum": 10**MAX_DIGITS - 1} if kind is int else {"type": "string"}
        )
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    yield from (_parameter("query", parameter) for parameter in route.query)
    yield from (_parameter("header", parameter) for parameter in route.headers)


def _parameter(place: str, parameter: Parameter) -> Object:
    schema = {"type": "string", "pattern": f"^{parameter.pattern}$"}
    return {"name": parameter.name, "in": place, "description": parameter.meaning, "schema": schema}


def _success(route: Route) -> Object:
    described: Object = {"description": route.summary}
    if route.media == (JSON,):
        schema = {"type": "object"} if route.answer is None else _reference(route.answer)
        described["content"] = {JSON: {"schema": schema}}
    else:
        lines = f"each line is a {route.answer.__name__}" if route.answer else "text"
        described["content"] = {kind: {"schema": {"type": "string", "description": lines}} for kind in route.media}
    if route.location is not None:
        where = {"description": "where to look at what was begun", "schema": {"type": "string"}}
        described["headers"] = {"Location": where}
    return described


def _error(route: Route, why: str) -> Object:
    """A probe's refusal is text, as its success is."""
    is_probe = route.role is None and why in route.errors.values()
    content = {kind: {"schema": {"type": "string"}} for kind in route.media} if is_probe else _error_content()
    described: Object = {"description": why, "content": content}
    if why == clients.WHY:
        described["headers"] = {"Retry-After": {"description": "in seconds", "schema": {"type": "string"}}}
    return described


def _error_content() -> Object:
    return {JSON: {"schema": _reference(ErrorBody)}}


def _reference(kind: type[msgspec.Struct]) -> Object:
    return {"$ref": SCHEMAS + kind.__name__}
