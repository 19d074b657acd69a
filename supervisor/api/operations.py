"""The operations API on the Unix socket: for people and tools in the pod (design 3). Routes only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from quart import Response, request
from quart_trio import QuartTrio

from supervisor import wire
from supervisor.shared.http_app import Errors, Refusal, answer, application
from supervisor.shared.tokens import TokenFile

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

    def overview(self) -> wire.UnitsView: ...

    def unit(self, name: str) -> wire.UnitView: ...

    def exits(self, name: str) -> wire.ExitsView: ...

    async def change(self, name: str, verb: str, *, asked_by: str, local: bool) -> wire.UnitView: ...

    async def relaunch(self, asked_by: str) -> wire.RelaunchBegun: ...

    async def reload(self, asked_by: str, *, dry_run: bool) -> wire.ReloadView:
        """Raises WrongFiles."""

    def graph(self) -> wire.GraphView: ...

    def lines(self, name: str, count: int) -> list[str]: ...

    def follow(self, name: str, count: int) -> AsyncIterator[str]: ...


def operations_app(operations: Operations, token: TokenFile | None) -> QuartTrio:
    app = application("operations", token, ERRORS)

    @app.get("/v1/units")
    async def overview() -> Response:
        return answer(operations.overview())

    @app.get("/v1/units/<name>")
    async def unit(name: str) -> Response:
        return answer(operations.unit(name))

    @app.get("/v1/units/<name>/exits")
    async def exits(name: str) -> Response:
        return answer(operations.exits(name))

    @app.get("/v1/units/<name>/logs")
    async def logs(name: str) -> Response:
        operations.unit(name)  # an unknown unit is an error before the answer begins
        count = _count(request.args.get("lines"))
        if request.args.get("follow") is None:
            return _text(_joined(operations.lines(name, count)))
        response = _text(_encoded(operations.follow(name, count)))
        response.timeout = None  # Quart would end the stream after a minute
        return response

    @app.post("/v1/units/<name>/<any(start, stop, restart, 'reset-failed'):verb>")
    async def change(name: str, verb: str) -> Response:
        local = request.args.get("local") is not None
        return answer(await operations.change(name, verb, asked_by=API_USER, local=local))

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

    return app


def _flag(name: str, written: str | None) -> bool:
    if written not in (None, "0", "1"):
        message = f"{name}: found {written!r}, expected 0 or 1"
        raise Refusal(400, wire.ErrorBody(error=wire.ErrorCode.MALFORMED, message=message))
    return written == "1"


def _text(body: str | AsyncIterator[bytes]) -> Response:
    return Response(body, content_type="text/plain; charset=utf-8")


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield f"{line}\n".encode()


def _count(written: str | None) -> int:
    if written is None:
        return DEFAULT_LINES
    if not written.isdecimal():
        message = f"lines: found {written!r}, expected a number"
        raise Refusal(400, wire.ErrorBody(error=wire.ErrorCode.MALFORMED, message=message))
    return int(written)
