"""How the commands speak to the supervisor: HTTP over its Unix socket, errors as exit codes (design 3).

Exit codes: 1 refused, 3 not running, 4 no such unit, 69 supervisor unreachable or silent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import click
import httpx
import msgspec

from supervisor import wire
from supervisor.shared.asking import EXIT_NOT_FOUND, EXIT_UNREACHABLE, CommandFailed, json_option, refused

EXIT_NOT_RUNNING = 3
"""`status UNIT`: that unit is not active."""

__all__ = [
    "EXIT_NOT_RUNNING",
    "CommandFailed",
    "Supervisor",
    "interrupted_by_hand",
    "json_option",
    "optional_unit_argument",
    "socket_option",
    "some_units_argument",
    "unit_argument",
    "unit_path",
    "units_argument",
]

EXIT_INTERRUPTED = 130
"""As shells tell SIGINT; this is how following ends."""

ANSWER_SEC = 120.0
"""Stopping a unit may take its whole stop budget."""
CONNECT_SEC = 5.0
COMPLETION_SEC = 0.5
"""How long somebody who has pressed TAB is kept waiting."""

Answer = TypeVar("Answer", bound=msgspec.Struct)
F = TypeVar("F", bound=Callable[..., object])


def socket_option(command: F) -> F:
    """`--socket PATH`, for every command that speaks to the supervisor."""
    option = click.option(
        "--socket",
        "socket_path",
        type=click.Path(path_type=Path),
        envvar="PODVISOR_SOCKET",
        default=None,
        help="The supervisor's control socket.  [env: PODVISOR_SOCKET]",
    )
    return option(command)


def unit_argument(command: F) -> F:
    """UNIT, completed from the running supervisor."""
    return click.argument("unit", shell_complete=_known_units)(command)


def optional_unit_argument(command: F) -> F:
    return click.argument("unit", required=False, shell_complete=_known_units)(command)


def some_units_argument(command: F) -> F:
    """At least one."""
    return click.argument("units", nargs=-1, required=True, metavar="UNIT...", shell_complete=_known_units)(command)


def units_argument(command: F) -> F:
    return click.argument("units", nargs=-1, metavar="[UNIT]...", shell_complete=_known_units)(command)


def _known_units(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names that begin so; none at all if nobody answers at once: a shell is no place for an error message."""
    try:
        supervisor = Supervisor(context.params.get("socket_path"), patience_sec=COMPLETION_SEC)
        names = [unit.name for unit in supervisor.get("/v1/units", wire.UnitsView).units]
    except (CommandFailed, wire.WireError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def default_socket() -> Path:
    """Where `podvisor run` listens unless it was told otherwise (design 8, Paths)."""
    system = Path("/run/podvisor/podvisor.sock")
    own = Path(os.environ.get("TMPDIR", "/tmp")) / f"podvisor-{os.getuid()}" / "podvisor.sock"
    # Not Path.exists, which raises where the directory of another user's supervisor may not be looked into.
    return own if os.path.exists(own) and not os.path.exists(system) else system


def unit_path(name: str, *below: str) -> str:
    """The path of a unit in the operations API. Raise CommandFailed for a name that would be another path."""
    if "/" in name or name in ("", ".", ".."):
        raise CommandFailed(f"{name!r} is no name of a unit; `podvisor status` shows those there are", EXIT_NOT_FOUND)
    return "/".join(("/v1/units", quote(name), *below))


class Supervisor:
    """One conversation with the supervisor."""

    def __init__(self, socket_path: Path | None, *, patience_sec: float = ANSWER_SEC) -> None:
        self._path = socket_path or default_socket()
        self._patience_sec = patience_sec

    def get(self, path: str, answer: type[Answer]) -> Answer:
        return wire.decode(answer, self._request("GET", path, None, self._patience_sec))

    def post(self, path: str, body: msgspec.Struct | None = None) -> bytes:
        return self._request("POST", path, body, self._patience_sec)

    def post_at_leisure(self, path: str) -> bytes:
        """For what ends by itself, after a time that the settings say."""
        return self._request("POST", path, None, None)

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """The lines of an answer that may not end."""
        with self._client(read_sec=None) as client, _reachable(self._path), client.stream("GET", path) as response:
            if response.is_error:
                response.read()
                raise refused(response)
            yield response.iter_lines()

    def _request(self, method: str, path: str, body: msgspec.Struct | None, answer_sec: float | None) -> bytes:
        with self._client(read_sec=answer_sec) as client, _reachable(self._path):
            response = client.request(method, path, content=wire.encode(body) if body is not None else b"")
        if response.is_error:
            raise refused(response)
        return response.content

    def _client(self, read_sec: float | None) -> httpx.Client:
        return httpx.Client(
            base_url="http://podvisor",
            transport=httpx.HTTPTransport(uds=str(self._path)),
            timeout=httpx.Timeout(read_sec, connect=min(CONNECT_SEC, self._patience_sec)),
            trust_env=False,
        )


@contextmanager
def interrupted_by_hand() -> Iterator[None]:
    """For commands that go on until Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


@contextmanager
def _reachable(path: Path) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise CommandFailed(_words(error, path), EXIT_UNREACHABLE) from error


def _words(error: httpx.TransportError, path: Path) -> str:
    if isinstance(error, httpx.ReadTimeout):
        return (
            f"the supervisor at {path} has not answered within {ANSWER_SEC:g} s; what was asked for goes on: "
            "`podvisor status` shows how far it is"
        )
    if not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return f"the supervisor at {path} broke off the connection ({error}): it may just have ended"
    cause = _first_cause(error)
    if isinstance(cause, PermissionError):
        return f"cannot reach the supervisor at {path}: permission denied; ask as the user that it runs as"
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)
    return f"cannot reach the supervisor at {path}: {why}; is `podvisor run` running, and with this --socket?"


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
