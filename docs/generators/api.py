"""api.md: every route of the controller, as it is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio

from controller.api.openapi import errors
from controller.api.route import Route
from controller.app import compose
from controller.election import Leadership
from controller.policy import Policy
from controller.store.memory import MemoryStore
from controller.supervisors import Supervisors
from generators import markdown
from generators.markdown import code
from supervisor.shared.http_app import JSON
from supervisor.shared.tokens import Role

SOURCES = ("controller/api/*_routes.py",)
INTRODUCTION = """
What the controller answers on its `port`; it describes itself in the same way at `/openapi.json`. How to call it, and
what its limits are, stands in [the API](../api.md), what each role may do in [security](../security.md). Messages and
answers are [described by their fields](messages.md); every error is an `ErrorBody`.
"""
CHAPTERS: tuple[tuple[str, Callable[[Route], bool]], ...] = (
    ("For people and tools", lambda route: route.role in (Role.READ, Role.OPERATE)),
    ("For supervisors", lambda route: route.role is Role.NODE),
    ("Without a token", lambda route: route.role is None),
)
HEADER = ("route", "role", "what it does", "body", "answer", "errors")


def page() -> str:
    routes = trio.run(_declared)
    tables = (
        part
        for title, belongs in CHAPTERS
        for part in (f"## {title}", markdown.table(HEADER, (_row(route) for route in routes if belongs(route))))
    )
    return markdown.page(
        "Routes of the controller",
        SOURCES,
        INTRODUCTION,
        *tables,
        "## Parameters of queries",
        _parameters(routes),
        "## Errors",
        _errors(routes),
    )


async def _declared() -> tuple[Route, ...]:
    return (await compose(Policy(), Leadership(MemoryStore(1)), Supervisors(), None)).routes.declared


def _row(route: Route) -> tuple[str, ...]:
    return (
        code(f"{route.method} {route.template}"),
        route.role.name.lower() if route.role else "-",
        route.summary,
        code(route.message.__name__) if route.message else "-",
        f"{route.status} {_answer(route)}",
        ", ".join(map(str, errors(route))),
    )


def _answer(route: Route) -> str:
    if route.media == (JSON,):
        return code(route.answer.__name__) if route.answer else "JSON"
    return markdown.codes(route.media, " or ") + (f", lines of {code(route.answer.__name__)}" if route.answer else "")


def _parameters(routes: tuple[Route, ...]) -> str:
    rows = [
        (code(route.template), code(parameter.name), parameter.meaning)
        for route in routes
        for parameter in (*route.query, *route.headers)
    ]
    return markdown.table(("route", "parameter or header", "meaning"), rows)


def _errors(routes: tuple[Route, ...]) -> str:
    return markdown.table(("status", "when"), _told(routes))


def _told(routes: tuple[Route, ...]) -> Iterator[tuple[str, str]]:
    """Each reason once, with the routes that have it if they are few."""
    reasons: dict[tuple[int, str], list[str]] = {}
    for route in routes:
        for status, why in errors(route).items():
            reasons.setdefault((status, why), []).append(route.template)
    for (status, why), paths in sorted(reasons.items()):
        where = f" ({markdown.codes(dict.fromkeys(paths))})" if len(paths) < 4 else ""
        yield str(status), why + where
