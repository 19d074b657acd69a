"""The routes of one application: each is declared once, and that both serves and describes it.

    routes = Routes("controller", tokens)

    @routes.post("/v1/instances/<int:instance_id>/hold", message=wire.Reason, answer=wire.InstanceView, errors={...})
    async def hold(message: wire.Reason, instance_id: int) -> wire.InstanceView:
        \"\"\"Stop the engines and keep them stopped.\"\"\"

The docstring's first line is the summary. A handler gets the checked body as `message`, the path's variables by
name, and answers with a struct; what it raises is answered as `errors.py` says. It is called only if the caller has
the role in the namespace of all that the path and the body name.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import ParamSpec, TypeVar

import msgspec
import trio
from quart import Response, request

from controller.api.clients import Clients
from controller.api.errors import ERRORS
from controller.api.route import Parameter, Route
from controller.api.tenancy import Places
from controller.model.limits import Limits
from supervisor.shared import http_app
from supervisor.shared.http_app import answer, caller, demand, malformed, received, whole_number
from supervisor.shared.tokens import Role, TokenFile

P = ParamSpec("P")
A = TypeVar("A", bound=msgspec.Struct)
Handler = Callable[P, Awaitable[A]]
Raw = Callable[P, Awaitable[Response]]


class Routes:
    def __init__(
        self, name: str, tokens: TokenFile | None, places: Places | None = None, limits: Limits | None = None
    ) -> None:
        """`places` say in which namespace lies what a path or a message names by its id."""
        self._places = places or {}
        self.clients = Clients(limits or Limits())
        self.app = http_app.application(name, tokens, ERRORS, needs=self._role)
        # `//v1/events` is no route: nobody is sent elsewhere by a mistake.
        self.app.url_map.merge_slashes = False
        self._declared: dict[tuple[str, str], Route] = {}

    @property
    def declared(self) -> tuple[Route, ...]:
        """In the order in which they were added."""
        return tuple(self._declared.values())

    def get(
        self,
        path: str,
        *,
        answer: type[A],
        role: Role | None = Role.READ,
        query: tuple[Parameter, ...] = (),
        errors: Mapping[int, str] | None = None,
    ) -> Callable[[Handler[P, A]], Handler[P, A]]:
        def add(handler: Handler[P, A]) -> Handler[P, A]:
            route = Route(
                method="GET",
                path=path,
                summary=_summary(handler),
                role=role,
                query=query,
                answer=answer,
                errors=errors or {},
            )
            self._add(route, _json(route, handler))
            return handler

        return add

    def post(
        self,
        path: str,
        *,
        answer: type[A],
        message: type[msgspec.Struct] | None = None,
        role: Role = Role.OPERATE,
        vital: bool = False,
        status: int = 200,
        errors: Mapping[int, str] | None = None,
        location: Callable[[A], str] | None = None,
    ) -> Callable[[Handler[P, A]], Handler[P, A]]:
        def add(handler: Handler[P, A]) -> Handler[P, A]:
            route = Route(
                method="POST",
                path=path,
                summary=_summary(handler),
                role=role,
                message=message,
                vital=vital,
                status=status,
                answer=answer,
                errors=errors or {},
                location=location,
            )
            self._add(route, _json(route, handler))
            return handler

        return add

    def text(
        self,
        path: str,
        *,
        media: tuple[str, ...],
        role: Role | None,
        query: tuple[Parameter, ...] = (),
        headers: tuple[Parameter, ...] = (),
        lines: type[msgspec.Struct] | None = None,
        errors: Mapping[int, str] | None = None,
    ) -> Callable[[Raw[P]], Raw[P]]:
        """What no single struct describes: the handler makes the response itself. `lines` are of that struct."""

        def add(handler: Raw[P]) -> Raw[P]:
            route = Route(
                method="GET",
                path=path,
                summary=_summary(handler),
                role=role,
                query=query,
                headers=headers,
                answer=lines,
                media=media,
                errors=errors or {},
            )
            self._add(route, handler)
            return handler

        return add

    def _add(self, route: Route, handler: Callable[..., Awaitable[Response]]) -> None:
        key = (route.method, route.rule)
        if key in self._declared:
            raise ValueError(f"{route.method} {route.path} is declared twice")
        self._declared[key] = route

        async def limited(**variables: str) -> Response:
            with self.clients.request((request.remote_addr or "", caller()), trio.current_time()):
                return await served(**variables)

        async def served(**variables: str) -> Response:
            _check_query(route)
            _check_headers(route)
            arguments = _arguments(route, variables)
            if route.message is not None:
                arguments["message"] = await received(route.message)
            if route.role is not None:
                for namespace in self._namespaces(arguments):
                    demand(route.role, namespace)
            return await handler(**arguments)

        self.app.add_url_rule(
            route.rule,
            " ".join(key),
            limited if route.is_limited else served,
            methods=[route.method],
            provide_automatic_options=False,
        )

    def _namespaces(self, arguments: Mapping[str, object]) -> Iterator[str]:
        """Of all that is named. A message that names its namespace lies there, whatever ids it names as well."""
        message = arguments.get("message")
        namespace = getattr(message, "namespace", None)
        if isinstance(namespace, str):
            yield namespace
        for name, place in self._places.items():
            value = arguments.get(name, getattr(message, name, None) if namespace is None else None)
            if value is not None:
                yield place(value)

    def _role(self, method: str, rule: str | None) -> Role | None:
        """What is not declared is refused anyhow; who may look is told so."""
        route = self._declared.get(("GET" if method == "HEAD" else method, rule or ""))
        return route.role if route is not None else Role.READ


def _json(route: Route, handler: Callable[..., Awaitable[A]]) -> Callable[..., Awaitable[Response]]:
    async def answered(**arguments: object) -> Response:
        body = await handler(**arguments)
        response = answer(body, route.status)
        if route.location is not None:
            response.headers["Location"] = route.location(body)
        return response

    return answered


def _arguments(route: Route, variables: Mapping[str, str]) -> dict[str, object]:
    """Raise Refusal."""
    kinds = dict(route.variables)
    return {name: whole_number(name, text) if kinds[name] is int else text for name, text in variables.items()}


def _check_query(route: Route) -> None:
    """A parameter that is misspelt must not be overlooked. Raise Refusal."""
    known = {query.name: query for query in route.query}
    for name, values in request.args.lists():
        if name not in known:
            takes = ", ".join(known) or "none"
            raise malformed(f"{name[:50]!r} is no parameter of {route.method} {route.template}; it takes: {takes}")
        if len(values) > 1:
            raise malformed(f"{name}: given {len(values)} times, expected once")
        _check(known[name], values[0])


def _check_headers(route: Route) -> None:
    """Raise Refusal."""
    for header in route.headers:
        if (written := request.headers.get(header.name)) is not None:
            _check(header, written)


def _check(parameter: Parameter, written: str) -> None:
    if not parameter.fits(written):
        raise malformed(f"{parameter.name}: found {written[:50]!r}, expected {parameter.meaning}")


def _summary(handler: Callable[..., object]) -> str:
    words = (inspect.getdoc(handler) or "").partition("\n")[0].rstrip(".")
    if not words:
        raise ValueError(f"{handler.__name__} needs a docstring: its first line describes the route")
    return words
