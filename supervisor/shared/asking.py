"""What all commands share that ask a program over HTTP: exit codes, `--json`, and refusals as messages (design 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
import httpx

from supervisor import wire

EXIT_REFUSED = 1
"""The answer was no; the reason is printed."""
EXIT_NOT_FOUND = 4
"""There is no such unit, instance or run."""
EXIT_UNREACHABLE = 69
"""No supervisor, or no controller, can be reached. EX_UNAVAILABLE of sysexits.h."""

F = TypeVar("F", bound=Callable[..., object])


class CommandFailed(click.ClickException):
    def __init__(self, message: str, exit_code: int, body: bytes = b"") -> None:
        """`body`: what was answered, for those who want it in JSON."""
        super().__init__(message)
        self.body = body
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


EXIT_WRONG_FILES = 78
"""Unit files or settings are wrong; every problem is printed. EX_CONFIG of sysexits.h."""

_EXIT_CODES = {404: EXIT_NOT_FOUND, 421: EXIT_UNREACHABLE, 422: EXIT_WRONG_FILES, 503: EXIT_UNREACHABLE}
"""421, 503: the one who was asked answers, and somebody it needs does not."""


def refused(response: httpx.Response) -> CommandFailed:
    """What an answer of 4xx or 5xx says, for people."""
    code = _EXIT_CODES.get(response.status_code, EXIT_REFUSED)
    try:
        return CommandFailed(wire.decode(wire.ErrorBody, response.content).message, code, response.content)
    except wire.WireError:
        return CommandFailed(f"{response.url} answers {response.status_code}: {response.text[:200]}", code)
