"""Requests to the controller. Every outcome is a value or one of three errors; no policy lives here.

Importing this module imports httpx, which costs tens of milliseconds: it belongs to the part of the start that
comes after the first units (trio-notes §6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx
import msgspec
import trio

from supervisor import wire
from supervisor.engine.controller_errors import ControllerForgot, ControllerRefused, ControllerUnreachable
from supervisor.process.threads import NoThread, thread_shortage
from supervisor.shared.tls import Tls

CONNECT_SEC = 2.0
ANSWER_SEC = 5.0
KEEP_ALIVE_SEC = 10.0
"""Below the controller's own keep-alive, so that the idle connection is never closed under a request."""

HOPS = 2
"""From a standby to the leader that it names, and once more if that one has just been followed by another."""

Answer = TypeVar("Answer", bound=msgspec.Struct)


class ControllerClient:
    """A connection pool to the controller, at whichever of its addresses leads. Close it with `aclose`.

    A standby is passed over, and the leader that it names is asked in its place, with the token too: who names it was
    shown the token just before, and may be trusted no less. The leader's address is forgotten as soon as it fails, so
    that what is configured, and resolved anew for each connection, has the last word; and it is never less than that:
    a controller at https names none at http.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: Callable[[], str | None],
        transport: httpx.AsyncBaseTransport | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._urls = deque(url.rstrip("/") for url in urls)
        self._named: str | None = None
        """The leader, as a standby has named it."""
        self._token = token
        self._transport = transport
        self._tls = tls
        self._client = self._open()

    @property
    def url(self) -> str:
        """The address that is being used."""
        return self._named or self._urls[0]

    def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self._transport,
            timeout=httpx.Timeout(ANSWER_SEC, connect=CONNECT_SEC),
            limits=httpx.Limits(max_connections=4, keepalive_expiry=KEEP_ALIVE_SEC),
            verify=self._tls.client if self._tls is not None else False,
            trust_env=False,
        )

    async def register(self, message: wire.RegisterMsg) -> wire.RegisterAnswer:
        return await self._post("/controller/register", message, wire.RegisterAnswer, wire.RegisterAnswer())

    async def reregister(self, message: wire.ReregisterMsg) -> wire.RegisterAnswer:
        return await self._post("/controller/reregister", message, wire.RegisterAnswer, wire.RegisterAnswer())

    async def heartbeat(self, message: wire.HeartbeatMsg) -> wire.HeartbeatAnswer:
        return await self._post("/controller/heartbeat", message, wire.HeartbeatAnswer, wire.HeartbeatAnswer())

    async def report(self, message: wire.SoftwareFaultMsg) -> wire.FaultAnswer:
        return await self._post("/controller/report_software_fault", message, wire.FaultAnswer, wire.FaultAnswer())

    async def relaunch(self, instance_id: int, reason: str) -> wire.RunView:
        """Ask for a gang relaunch of `instance_id`; the run that was begun, or that was under way already."""
        request = wire.Reason(reason=reason)
        return await self._post(f"/v1/instances/{instance_id}/relaunch", request, wire.RunView)

    async def instance(self, instance_id: int) -> wire.InstanceView:
        response = await self._ask_the_leader("GET", f"/v1/instances/{instance_id}")
        return self._understood(response, wire.InstanceView)

    async def hold(self, instance_id: int, reason: str) -> wire.InstanceView:
        """Ask that all engines of `instance_id` are stopped and stay so."""
        return await self._post(f"/v1/instances/{instance_id}/hold", wire.Reason(reason=reason), wire.InstanceView)

    async def release(self, instance_id: int, reason: str) -> wire.InstanceView:
        """Ask that the engines of `instance_id` are started again, if they are held."""
        return await self._post(f"/v1/instances/{instance_id}/release", wire.Reason(reason=reason), wire.InstanceView)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _post(
        self, path: str, message: msgspec.Struct, answer: type[Answer], if_it_says_nothing: Answer | None = None
    ) -> Answer:
        """Cancelled: the request may or may not have had its effect; every message here may be sent again.

        `if_it_says_nothing`: what a peer of the reference system means that takes the message and answers without
        fields. A page of some other server is no such answer.
        """
        response = await self._ask_the_leader("POST", path, wire.encode(message))
        if response.is_success and if_it_says_nothing is not None and _says_nothing(response.content):
            return if_it_says_nothing
        return self._understood(response, answer)

    def _understood(self, response: httpx.Response, answer: type[Answer]) -> Answer:
        if response.is_success:
            return self._decoded(response, answer)
        refused = _refusal(response)
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE and refused.code == wire.ErrorCode.UNKNOWN:
            raise ControllerForgot(f"{self.url} does not know this supervisor")
        raise refused

    async def _ask_the_leader(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        for _ in range(len(self._urls) + HOPS):
            response = await self._exchange(method, path, body)
            if response.status_code != httpx.codes.MISDIRECTED_REQUEST:
                return response
            leader = _leader(response)
            if leader is not None and leader.rstrip("/") != self.url and _scheme(leader) == _scheme(self._urls[0]):
                self._named = leader.rstrip("/")
            else:
                self._pass_over()
        raise ControllerUnreachable(f"none of {', '.join(sorted(self._urls))} leads, or knows who does")

    def _pass_over(self) -> None:
        """Go on with what is configured: the next one, if it was such a one."""
        if self._named is None:
            self._urls.rotate(-1)
        self._named = None

    async def _exchange(self, method: str, path: str, body: bytes) -> httpx.Response:
        if self._client.is_closed:  # the API on which somebody asks is served a moment longer
            raise ControllerUnreachable(f"{self.url} is asked nothing any more: this supervisor ends")
        token = self._token()
        if self._tls is not None:
            self._tls.look()
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            # httpx has no total time-out: a dripping body would go on for ever.
            with thread_shortage(), trio.fail_after(CONNECT_SEC + ANSWER_SEC):
                return await self._client.request(method, self.url + path, content=body, headers=headers)
        except httpx.PoolTimeout as error:
            # A cancelled request can lose its slot in the pool for good (httpcore#1093).
            await self._renew()
            raise ControllerUnreachable(f"{self.url}: no free connection") from error
        except (httpx.HTTPError, NoThread, trio.TooSlowError) as error:
            unreachable = self.url
            self._pass_over()
            raise ControllerUnreachable(f"{unreachable}: {str(error) or type(error).__name__}") from error

    async def _renew(self) -> None:
        old, self._client = self._client, self._open()
        await old.aclose()

    def _decoded(self, response: httpx.Response, answer: type[Answer]) -> Answer:
        try:
            return wire.decode(answer, response.content)
        except wire.WireError as error:
            raise ControllerUnreachable(f"{self.url} answered something unreadable: {error}") from error


def _says_nothing(body: bytes) -> bool:
    """JSON without fields: `null`, a word, a number."""
    try:
        return not isinstance(msgspec.json.decode(body or b"null"), dict)
    except msgspec.DecodeError:
        return False


def _leader(response: httpx.Response) -> str | None:
    """Of a standby's answer; a peer of another kind names nobody."""
    try:
        return wire.decode(wire.ErrorBody, response.content).leader
    except wire.WireError:
        return None


def _scheme(url: str) -> str | None:
    """None: it is no address of a server."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return None
    return parsed.scheme if parsed.host else None


def _refusal(response: httpx.Response) -> ControllerRefused:
    try:
        body = wire.decode(wire.ErrorBody, response.content)
    except wire.WireError:
        return ControllerRefused(wire.ErrorCode.UNKNOWN, f"HTTP {response.status_code}: {response.text[:200]}")
    return ControllerRefused(body.error, body.message)
