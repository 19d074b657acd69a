"""What one route is, as a declaration: enough to serve it, to check who calls, and to describe it to a tool.

How routes are served stands in `routes.py`, how they are described in `openapi.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from supervisor.shared.http_app import JSON, MAX_DIGITS
from supervisor.shared.tokens import Role

_VARIABLE = re.compile(r"<(?:(\w+):)?(\w+)>")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a query or in a header; none is required."""

    name: str
    pattern: str
    """A regular expression of the whole value."""
    meaning: str
    """In words, also what a refusal says was expected."""

    def fits(self, written: str) -> bool:
        return re.fullmatch(self.pattern, written) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    """With `<name>` or `<int:name>` where it varies."""
    summary: str
    role: Role | None
    """The least that a token must have; None: nobody is asked for one."""
    message: type[msgspec.Struct] | None = None
    """The body."""
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    status: int = 200
    answer: type[msgspec.Struct] | None = None
    """None: text, or an object that no struct describes."""
    media: tuple[str, ...] = (JSON,)
    """Content types of the answer; a client chooses with Accept where there are several."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """Beside those that every route has: in words, why."""
    vital: bool = False
    """Supervisors live by it: no limit holds it back."""
    location: Callable[[Any], str] | None = None
    """Where what was begun can be looked at, as the header Location; of the answer."""

    @property
    def is_limited(self) -> bool:
        return self.role is not None and not self.vital

    @property
    def variables(self) -> tuple[tuple[str, type], ...]:
        """Of the path: names, and whether they are `int` or `str`."""
        return tuple((name, int if kind == "int" else str) for kind, name in _VARIABLE.findall(self.path))

    @property
    def rule(self) -> str:
        """For the router, which takes any text: a wrong one is answered with words."""
        return _VARIABLE.sub(r"<\2>", self.path)

    @property
    def template(self) -> str:
        """For people and OpenAPI: `/v1/instances/{instance_id}`."""
        return _VARIABLE.sub(r"{\2}", self.path)


NUMBER = rf"[0-9]{{1,{MAX_DIGITS}}}"
