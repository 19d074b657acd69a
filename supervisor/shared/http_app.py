"""What every HTTP application of both programs shares: bodies in, JSON out, every refusal as `wire.ErrorBody`.

Which exceptions are answered how, each application says itself. All handlers are `async` although most wait for
nothing: Quart runs plain functions in a worker thread, where the state they read could change under them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast

import msgspec
import trio
from quart import Response, g, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from supervisor import wire
from supervisor.shared.error_window import ErrorWindow
from supervisor.shared.serving import Application
from supervisor.shared.tokens import EVERY_RIGHT, Rights, Role, TokenFile
from supervisor.wire import ErrorCode

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
BODY_SEC = 15.0
MAX_DIGITS = 15
"""Of a number in a query: more than anything that is counted here."""
JSON = "application/json"

Message = TypeVar("Message", bound=msgspec.Struct)

Errors = Mapping[type[Exception], tuple[int, ErrorCode]]
"""How an exception that a route lets pass is answered; its text is the message."""


class Refusal(Exception):
    """An answer that a route has decided on itself."""

    def __init__(self, status: int, body: wire.ErrorBody, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body.message)
        self.status = status
        self.body = body
        self.headers = headers or {}


def malformed(message: str) -> Refusal:
    return Refusal(400, wire.ErrorBody(error=ErrorCode.MALFORMED, message=message))


def whole_number(name: str, written: str) -> int:
    """Of a query. Raise Refusal, also for what is too large to be meant."""
    if not written.isdecimal() or len(written) > MAX_DIGITS:
        raise malformed(f"{name}: found {written[:MAX_DIGITS]!r}, expected a number of at most {MAX_DIGITS} digits")
    return int(written)


Needs = Callable[[str, str | None], Role | None]
"""Which role a method and a rule of the router need; the rule is None where there is none, the role where nobody is
asked."""


def by_method(method: str, rule: str | None) -> Role:
    return Role.READ if method in ("GET", "HEAD", "OPTIONS") else Role.OPERATE


class Denied(Exception):
    """No token, or a wrong one, or one that may do less, or nothing there."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def application(
    name: str,
    tokens: TokenFile | None,
    errors: Errors,
    *,
    needs: Needs = by_method,
    namespace: str | None = None,
) -> QuartTrio:
    """An empty application; with `tokens`, every request has to show one with the role that it needs.

    `namespace` is the one in which all of it lies; without one, routes ask for themselves (`demand`).
    """
    app = QuartTrio(name, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["BODY_TIMEOUT"] = BODY_SEC
    if tokens is not None:
        app.before_request(_checked(tokens, needs, namespace))
    for kind, (status, code) in errors.items():
        app.register_error_handler(kind, _refusing(status, code))
    app.register_error_handler(wire.WireError, _refusing(400, ErrorCode.MALFORMED))
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(Denied, _denying())
    app.register_error_handler(HTTPException, _http_error)
    return app


def asgi(app: QuartTrio | Application) -> Application:
    """As what is served: Quart's own type names the fields of every message, ours leaves them to who reads them."""
    return cast(Application, app)


def answer(body: msgspec.Struct, status: int = 200, **headers: str) -> Response:
    return Response(wire.encode(body), status, headers=headers, content_type=JSON)


def refusal(status: int, code: ErrorCode, message: str, term: int | None = None) -> Response:
    return answer(wire.ErrorBody(error=code, message=message, term=term), status)


async def received(message: type[Message]) -> Message:
    """The request's body. Raises WireError, answered 400 with the field and the reason, and Refusal if its type is
    none that is read here; a body that does not tell its type is taken for JSON."""
    body = await request.get_data(as_text=False)
    if body and request.mimetype not in ("", JSON):
        raise Refusal(
            415,
            wire.ErrorBody(
                error=ErrorCode.MALFORMED, message=f"Content-Type: found {request.mimetype[:50]!r}, expected {JSON}"
            ),
        )
    assert isinstance(body, bytes), "asked for as bytes"
    return wire.decode(message, body)


def caller() -> Rights:
    """What the sender of the present request may do."""
    rights: Rights = g.get("rights", EVERY_RIGHT)
    return rights


def demand(role: Role, namespace: str) -> None:
    """Raise Denied unless the sender of the present request may do that there."""
    if not caller().may(role, namespace):
        needed = f"{request.method} {request.path} needs the role {role.name.lower()} in namespace {namespace}"
        raise Denied(403, f"{needed}; this token grants {caller()}")


def _checked(tokens: TokenFile, needs: Needs, namespace: str | None) -> Callable[[], Awaitable[None]]:
    async def check() -> None:
        needed = needs(request.method, request.url_rule.rule if request.url_rule else None)
        if needed is None:
            return
        shown = request.headers.get("authorization")
        if shown is None:
            raise Denied(401, "a token is needed: send `Authorization: Bearer TOKEN`")
        rights = tokens.rights_of(shown, trio.current_time())
        if rights is None:
            raise Denied(403, "this token is not the right one")
        role = rights.role if namespace is None else rights.role_in(namespace)
        if role is None or role < needed:
            what = f"{request.method} {request.path} needs the role {needed.name.lower()}"
            where = f" in namespace {namespace}" if namespace is not None and role is None else ""
            raise Denied(403, f"{what}{where}; this token grants {rights}")
        g.rights = rights

    return check


def _denying() -> Callable[[Denied], Awaitable[Response]]:
    """Every refusal of a caller is logged, but the same one from the same address once in a while only."""
    told = ErrorWindow()

    async def deny(error: Denied) -> Response:
        client = request.remote_addr or "the socket"
        held_back = told.admit(f"{client} {error}", trio.current_time())
        if held_back is not None:
            log.warning("refused %s: %s", client, error, extra={"status": error.status, "held_back": held_back})
        response = refusal(error.status, ErrorCode.UNAUTHORIZED, str(error))
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    return deny


def _refusing(status: int, code: ErrorCode) -> Callable[[Exception], Awaitable[Response]]:
    async def refuse(error: Exception) -> Response:
        return refusal(status, code, str(error))

    return refuse


async def _refused(refused: Refusal) -> Response:
    return answer(refused.body, refused.status, **refused.headers)


async def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    code = {404: ErrorCode.UNKNOWN}.get(status, ErrorCode.FAILED if status >= 500 else ErrorCode.MALFORMED)
    reason = f"the body is larger than {MAX_BODY_BYTES} bytes" if status == 413 else error.name.lower()
    response = refusal(status, code, f"{request.method} {request.path}: {reason}")
    if isinstance(error, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
    return response
