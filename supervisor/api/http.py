"""What every HTTP application of the supervisor shares: JSON answers, errors as `ErrorBody`, the token check.

All handlers are `async` though they wait for nothing: Quart runs plain functions in a worker thread, where the
state they read could change under them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from supervisor import wire
from supervisor.shared.tokens import TokenFile

MAX_BODY_BYTES = 1 << 20
JSON = "application/json"

Message = TypeVar("Message", bound=msgspec.Struct)


class Refusal(Exception):
    """An HTTP answer that is not the one that was asked for."""

    def __init__(self, status: int, body: wire.ErrorBody) -> None:
        super().__init__(body.message)
        self.status = status
        self.body = body


def application(name: str, token: TokenFile | None) -> QuartTrio:
    """An empty application; with `token`, every request has to show it."""
    app = QuartTrio(name)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["RESPONSE_TIMEOUT"] = None
    if token is not None:
        app.before_request(_checked(token))
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(wire.WireError, _malformed)
    app.register_error_handler(HTTPException, _http_error)
    return app


def answer(body: msgspec.Struct, status: int = 200) -> Response:
    return Response(wire.encode(body), status=status, content_type=JSON)


async def received(message: type[Message]) -> Message:
    """The request's body. Raises WireError, answered 400 with the field and the reason."""
    body = await request.get_data(as_text=False)
    assert isinstance(body, bytes), "asked for as bytes"
    return wire.decode(message, body)


def _checked(token: TokenFile) -> Callable[[], Awaitable[None]]:
    async def check() -> None:
        if not token.accepts(request.headers.get("authorization"), trio.current_time()):
            raise Refusal(401, wire.ErrorBody(error=wire.ErrorCode.UNAUTHORIZED, message="a bearer token is needed"))

    return check


async def _refused(refusal: Refusal) -> Response:
    return answer(refusal.body, refusal.status)


async def _malformed(error: wire.WireError) -> Response:
    return answer(wire.ErrorBody(error=wire.ErrorCode.MALFORMED, message=str(error)), 400)


async def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    code = wire.ErrorCode.FAILED if status >= 500 else wire.ErrorCode.MALFORMED
    return answer(wire.ErrorBody(error=code, message=f"{request.method} {request.path}: {error.name}"), status)
