"""The client side of the node-manager API: one request, one answer, and every failure is an answer too.

Retries, and what an answer means, are the plan's (`controller.model.relaunch`); nothing is decided here.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

import httpx
import msgspec
import trio

from controller.model.member import Member, seen_in_status
from controller.model.relaunch.exchange import (
    Accepted,
    Answer,
    Probe,
    Refused,
    Request,
    Silence,
    Unreachable,
)
from supervisor import wire
from supervisor.shared.tls import Tls
from supervisor.wire import Action, EngineRestartMsg, ErrorCode, StartCmdMsg, Step, StopMsg

CONNECT_SEC = 1.0
MAX_ANSWER_BYTES = 1 << 20
IDLE_SEC = 300.0
"""Longer than any request may take."""
KEEP_ALIVE_SEC = 10.0
"""Below the supervisors' keep-alive, so that it is us who close an idle connection."""
OUR_SHARE = 0.95
"""Of a time-out for httpx's own: a request that ends so keeps its pool in order, one cut off by a cancel may
leave a connection marked as busy for ever (httpcore#1093)."""

Transport = Callable[[], httpx.AsyncBaseTransport]


class Supervisors:
    """One connection pool for each address, so that a stuck supervisor starves nobody else.

    httpx's transports without its client: nobody is to redirect us, and its share of a request's cost is a third.

    `token` says what is shown to the supervisors of a namespace: nothing that they may not see (design 8, Tenancy).
    """

    def __init__(
        self,
        token: Callable[[str], str | None] = lambda _: None,
        transport: Transport | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._token = token
        self._tls = tls
        self._transport = transport or self._tcp
        # Shared, because each costs a millisecond; without TLS it is not used, and httpx would make one all the same.
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls is None else tls.client
        self._pools: dict[str, httpx.AsyncBaseTransport] = {}
        self._used: dict[str, float] = {}

    async def ask(self, member: Member, request: Request, timeout_sec: float) -> Answer:
        """Send one request to the supervisor of `member` and say what came of it, in `timeout_sec` at most.

        Cancelled, the request may or may not have been carried out, as after Silence.SILENT.
        """
        address = member.address
        pool = self._pool(address)
        try:
            with trio.fail_after(timeout_sec):
                status, body = await _exchange(pool, self._build(member, request, timeout_sec))
        except httpx.ConnectError as error:
            return Unreachable(Silence.REFUSED, f"{address}: {error}")
        except httpx.PoolTimeout:
            await self._forget(address)
            return Unreachable(Silence.SILENT, f"{address}: all connections to it are stuck")
        except (httpx.TimeoutException, trio.TooSlowError):
            return Unreachable(Silence.SILENT, f"{address}: no answer within {timeout_sec:g} s")
        except httpx.RequestError as error:
            return Unreachable(Silence.SILENT, f"{address}: the connection broke: {error!r}")
        if status != 200:
            return _refused(status, body)
        return _observed(body) if isinstance(request, Probe) else _accepted(request, body)

    async def close_idle(self, now: float) -> None:
        """Forget addresses that nobody has asked for long: pods come back under others."""
        for address, used in list(self._used.items()):
            if now - used > IDLE_SEC:
                await self._forget(address)

    async def aclose(self) -> None:
        for address in list(self._pools):
            await self._forget(address)

    async def _forget(self, address: str) -> None:
        pool = self._pools.pop(address, None)
        self._used.pop(address, None)
        if pool is not None:
            await pool.aclose()

    def _tcp(self) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(
            verify=self._trust, limits=httpx.Limits(max_connections=8, keepalive_expiry=KEEP_ALIVE_SEC)
        )

    def _pool(self, address: str) -> httpx.AsyncBaseTransport:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools[address] = self._transport()
        self._used[address] = trio.current_time()
        return pool

    def _build(self, member: Member, request: Request, timeout_sec: float) -> httpx.Request:
        token = self._token(member.key.namespace)
        if self._tls is not None:
            self._tls.look()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        patience = httpx.Timeout(timeout_sec * OUR_SHARE, connect=min(CONNECT_SEC, timeout_sec * OUR_SHARE))
        extensions = {"timeout": patience.as_dict()}
        url = f"{'http' if self._tls is None else 'https'}://{member.address}"
        if isinstance(request, Probe):
            asked = {"run_id": request.run_id} if request.run_id else {}
            return httpx.Request(
                "GET", f"{url}/node-manager/status", params=asked, headers=headers, extensions=extensions
            )
        headers["Content-Type"] = "application/json"
        return httpx.Request(
            "POST", url + _route(request), content=wire.encode(request), headers=headers, extensions=extensions
        )


def _route(request: EngineRestartMsg | StartCmdMsg | StopMsg) -> str:
    match request:
        case EngineRestartMsg():
            return "/node-manager/engine-restart"
        case StartCmdMsg():
            return "/node-manager/start"
        case StopMsg():
            return "/node-manager/stop"


async def _exchange(pool: httpx.AsyncBaseTransport, request: httpx.Request) -> tuple[int, bytes]:
    response = await pool.handle_async_request(request)
    try:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise httpx.RemoteProtocolError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        return response.status_code, bytes(body)
    finally:
        await response.aclose()


def _observed(body: bytes) -> Answer:
    try:
        return seen_in_status(wire.decode(wire.NodeManagerStatus, body), trio.current_time())
    except wire.WireError as error:
        return Refused(ErrorCode.FAILED, f"its status cannot be read: {error}")


def _accepted(request: EngineRestartMsg | StartCmdMsg | StopMsg, body: bytes) -> Accepted:
    try:
        answer = wire.decode(wire.CommandAnswer, body)
    except wire.WireError:
        # An unextended peer says 200 and something for people.
        return Accepted(step=_step_after(request))
    return Accepted(
        step=answer.step,
        epoch=answer.epoch,
        boot_id=answer.boot_id,
        will_exit=answer.will_exit,
        message=answer.message,
        config_digest=answer.config_digest,
        recovery=answer.recovery,
    )


def _step_after(request: EngineRestartMsg | StartCmdMsg | StopMsg) -> Step:
    match request:
        case EngineRestartMsg(action=Action.ABORT):
            return Step.ABORTED
        case EngineRestartMsg(action=Action.PREPARE):
            return Step.PREPARED
        case EngineRestartMsg() | StartCmdMsg():
            return Step.STARTING
        case StopMsg():
            return Step.STOPPING


def _refused(status: int, body: bytes) -> Refused:
    try:
        said = msgspec.json.decode(body, type=wire.ErrorBody)
    except msgspec.DecodeError:
        code = ErrorCode.BUSY if status == 409 else ErrorCode.FAILED
        text = body[:200].decode(errors="replace")
        return Refused(code, f"answered {status}: {text}")
    return Refused(
        code=said.error,
        message=said.message,
        step=said.step,
        epoch=said.epoch,
        boot_id=said.boot_id,
        term=said.term,
    )
