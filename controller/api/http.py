"""What every route of the controller shares: how its exceptions are answered."""

from __future__ import annotations

import msgspec
from quart_trio import QuartTrio

from controller.operators import Conflict, NoSuchRun
from controller.reception import Unknown
from controller.registry import NoSuchInstance
from supervisor.shared import http_app
from supervisor.shared.http_app import answer, received, refusal
from supervisor.shared.tokens import Role, TokenFile
from supervisor.wire import ErrorCode

__all__ = ["Said", "answer", "application", "received", "refusal"]

ERRORS: http_app.Errors = {
    NoSuchInstance: (404, ErrorCode.UNKNOWN),
    NoSuchRun: (404, ErrorCode.UNKNOWN),
    Conflict: (409, ErrorCode.CONFLICT),
    Unknown: (503, ErrorCode.UNKNOWN),
}


class Said(msgspec.Struct, frozen=True):
    """A body for people."""

    message: str


def application(name: str, tokens: TokenFile | None, *, without_token: frozenset[str]) -> QuartTrio:
    """See `http_app.application`."""
    return http_app.application(name, tokens, ERRORS, needs=_needed, without_token=without_token)


def _needed(method: str, path: str) -> Role:
    """What supervisors tell is theirs alone; everything else is for people and tools."""
    return Role.NODE if path.startswith("/controller/") else http_app.by_method(method, path)
