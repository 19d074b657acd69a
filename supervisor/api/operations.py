"""The operations API on the Unix socket: for people and tools in the pod (design 3). Routes only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from quart import Response, request
from quart_trio import QuartTrio

from supervisor import wire
from supervisor.shared.event_ring import EventRing
from supervisor.shared.event_stream import event_stream
from supervisor.shared.http_app import Errors, answer, application, malformed, received, whole_number
from supervisor.shared.tokens import TokenFile
from supervisor.unit.process_values import signal_name
from supervisor.unit.values import UnexpectedValue

API_USER = "operator"
DEFAULT_LINES = 50


class NoSuchUnit(Exception):
    """The message names those there are."""


class Refused(Exception):
    """The operation cannot be done now; the message says why and what to do."""


class WrongFiles(Exception):
    """Problems in files; nothing was changed."""

    def __init__(self, body: wire.ProblemsBody) -> None:
        super().__init__(body.message)
        self.body = body


class ControllerAway(Exception):
    """What was asked needs the controller, and that cannot be reached; nothing was done."""


ERRORS: Errors = {
    NoSuchUnit: (404, wire.ErrorCode.UNKNOWN),
    Refused: (409, wire.ErrorCode.CONFLICT),
    ControllerAway: (503, wire.ErrorCode.UNKNOWN),
}


class Operations(Protocol):
    """What can be asked of the supervisor. Raises NoSuchUnit, Refused and ControllerAway."""

    @property
    def events(self) -> EventRing[wire.SupervisorEvent]: ...

    def overview(self) -> wire.UnitsView: ...

    def unit(self, name: str) -> wire.UnitView: ...

    def exits(self, name: str) -> wire.ExitsView: ...

    def all_exits(self) -> wire.AllExitsView: ...

    async def kill(self, name: str, signal: str, whom: wire.Whom, *, asked_by: str) -> wire.KillAnswer: ...

    async def change(self, name: str, verb: str, *, asked_by: str, local: bool) -> wire.UnitView: ...

    async def start_standalone(self, name: str, *, asked_by: str) -> wire.UnitView: ...

    async def relaunch(self, asked_by: str) -> wire.RelaunchBegun: ...

    async def reload(self, asked_by: str, *, dry_run: bool) -> wire.ReloadView:
        """Raises WrongFiles."""

    def graph(self) -> wire.GraphView: ...

    async def drain(self, asked_by: str) -> wire.Drained: ...

    def lines(self, names: Sequence[str], count: int) -> list[wire.LogLine]:
        """Of these units, or of all."""

    def lines_of_life(self, names: Sequence[str], count: int) -> list[wire.LogLine]:
        """What their present invocations have written."""

    def follow(self, names: Sequence[str], backlog: Sequence[wire.LogLine]) -> AsyncIterator[wire.LogLine]: ...


def operations_app(operations: Operations, token: TokenFile | None, namespace: str = "default") -> QuartTrio:
    """`namespace` is this pod's: tokens that are bound to another are refused."""
    app = application("operations", token, ERRORS, namespace=namespace)

    @app.get("/v1/units")
    async def overview() -> Response:
        return answer(operations.overview())

    @app.get("/v1/units/<name>")
    async def unit(name: str) -> Response:
        return answer(operations.unit(name))

    @app.get("/v1/units/<name>/exits")
    async def exits(name: str) -> Response:
        return answer(operations.exits(name))

    @app.get("/v1/exits")
    async def all_exits() -> Response:
        return answer(operations.all_exits())

    @app.get("/v1/units/<name>/logs")
    async def logs_of_unit(name: str) -> Response:
        return _logs(operations, [name], _as_text, "text/plain; charset=utf-8")

    @app.get("/v1/logs")
    async def logs() -> Response:
        return _logs(operations, request.args.getlist("unit"), _as_json, "application/x-ndjson")

    @app.post("/v1/units/<name>/kill")
    async def kill(name: str) -> Response:
        message = await received(wire.KillMsg)
        return answer(await operations.kill(name, _signal(message.signal), message.whom, asked_by=API_USER))

    @app.post("/v1/units/<name>/<any(start, stop, restart, 'reset-failed'):verb>")
    async def change(name: str, verb: str) -> Response:
        if verb == "start" and request.args.get("standalone") is not None:
            return answer(await operations.start_standalone(name, asked_by=API_USER))
        local = request.args.get("local") is not None
        return answer(await operations.change(name, verb, asked_by=API_USER, local=local))

    @app.get("/v1/events")
    async def events() -> Response:
        return event_stream(operations.events)

    @app.post("/v1/engine/relaunch")
    async def relaunch() -> Response:
        return answer(await operations.relaunch(API_USER))

    @app.post("/v1/reload")
    async def reload() -> Response:
        dry_run = _flag("dry_run", request.args.get("dry_run"))
        try:
            return answer(await operations.reload(API_USER, dry_run=dry_run))
        except WrongFiles as wrong:
            return answer(wrong.body, 422)

    @app.get("/v1/graph")
    async def graph() -> Response:
        return answer(operations.graph())

    @app.post("/v1/drain")
    async def drain() -> Response:
        return answer(await operations.drain(API_USER))

    return app


def _flag(name: str, written: str | None) -> bool:
    if written not in (None, "0", "1"):
        raise malformed(f"{name}: found {written!r}, expected 0 or 1")
    return written == "1"


def _logs(
    operations: Operations, units: Sequence[str], encode: Callable[[wire.LogLine], bytes], content_type: str
) -> Response:
    """An unknown unit, or a wrong count, is an error before the answer begins."""
    of_life = request.args.get("invocation") == "current"
    last = operations.lines_of_life if of_life else operations.lines
    lines = last(units, _count(request.args.get("lines")))
    if request.args.get("follow") in (None, "0"):
        return Response(b"".join(map(encode, lines)), content_type=content_type)
    response = Response(_encoded(operations.follow(units, lines), encode), content_type=content_type)
    response.timeout = None  # Quart would end the stream after a minute
    return response


async def _encoded(lines: AsyncIterator[wire.LogLine], encode: Callable[[wire.LogLine], bytes]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield encode(line)


def _as_text(line: wire.LogLine) -> bytes:
    return f"{line.text}\n".encode()


def _as_json(line: wire.LogLine) -> bytes:
    return wire.encode(line) + b"\n"


def _count(written: str | None) -> int:
    return DEFAULT_LINES if written is None else whole_number("lines", written)


def _signal(written: str | int) -> str:
    try:
        return signal_name(written)
    except UnexpectedValue as error:
        raise malformed(f"signal: {error}") from error
