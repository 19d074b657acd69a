"""etcd's v3 API as JSON over HTTP: leases, reads, transactions; several endpoints, of which one that answers is used.

What is kept there and who may write it is not known here. Keys and values are bytes, which the gateway wants as
base64, as msgspec writes them; its 64-bit numbers come as text.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec
import trio

from controller.store.etcd_messages import (
    Authenticated,
    Compare,
    Found,
    GatewayError,
    Granted,
    Kept,
    KeyValue,
    Operation,
    Outcome,
)

CONNECTIONS = 20
OUR_SHARE = 0.9
"""Of a time-out for httpx's own: a request that ends so keeps its pool in order, one cut off by a cancel may not."""
UNAVAILABLE = frozenset({1, 2, 4, 13, 14})
"""gRPC codes by which one endpoint says that it cannot tell now; another may."""
UNAUTHENTICATED = 16

Answer = TypeVar("Answer", bound=msgspec.Struct)


class EtcdUnavailable(Exception):
    """No endpoint answered, each says why. What was asked for may have been done all the same."""


class EtcdRefused(Exception):
    """A definite no; nothing was done."""

    def __init__(self, endpoint: str, code: int, message: str) -> None:
        super().__init__(f"{endpoint} refuses: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Access:
    """How to get at etcd; the same for every conversation with it."""

    endpoints: Sequence[str]
    user: str = ""
    password: Callable[[], str] = str
    """Read anew for each log-in. Raises OSError."""
    tls: ssl.SSLContext | None = None
    """None: the CAs of this machine, should an endpoint be https."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None


class EtcdClient:
    """Connections to etcd. Close them with `aclose`."""

    def __init__(self, access: Access, try_sec: float) -> None:
        """`try_sec`: how long one endpoint may take to answer one request."""
        self._access = access
        self._try_sec = try_sec
        self._endpoints = deque(url.rstrip("/") for url in access.endpoints)
        self._token: str | None = None
        patience = try_sec * OUR_SHARE
        self._http = httpx.AsyncClient(
            transport=access.transport() if access.transport else None,
            timeout=httpx.Timeout(patience),
            limits=httpx.Limits(max_connections=CONNECTIONS),
            verify=access.tls if access.tls is not None else True,
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def grant(self, ttl_sec: int) -> Granted:
        """A new lease; etcd may give a longer one."""
        return await self._call("/v3/lease/grant", {"TTL": ttl_sec}, Granted)

    async def keep_alive(self, lease: int) -> int:
        """The seconds that the lease has from now on; 0: it is over."""
        return (await self._call("/v3/lease/keepalive", {"ID": lease}, Kept)).result.TTL

    async def revoke(self, lease: int) -> None:
        """End it, and with it the keys that hang on it."""
        await self._call("/v3/lease/revoke", {"ID": lease}, Found)

    async def get(self, key: bytes) -> KeyValue | None:
        found = await self._call("/v3/kv/range", {"key": key}, Found)
        return found.kvs[0] if found.kvs else None

    async def page(self, first: bytes, end: bytes, limit: int) -> Found:
        """Keys from `first` up to `end`, which is not among them, in order; `limit` at most."""
        return await self._call("/v3/kv/range", {"key": first, "range_end": end, "limit": limit}, Found)

    async def transact(self, compare: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """All operations if every comparison holds, else none. May be sent again if it was not answered."""
        return await self._call("/v3/kv/txn", {"compare": compare, "success": operations}, Outcome)

    async def _call(self, path: str, request: object, answer: type[Answer]) -> Answer:
        """Raises EtcdUnavailable and EtcdRefused. Cancelled: it may or may not have been done."""
        body = msgspec.json.encode(request)
        said = []
        for _ in range(len(self._endpoints)):
            try:
                return await self._ask(self._endpoints[0], path, body, answer)
            except EtcdUnavailable as error:
                said.append(str(error))
                self._endpoints.rotate(-1)
        raise EtcdUnavailable("; ".join(said))

    async def _ask(self, endpoint: str, path: str, body: bytes, answer: type[Answer]) -> Answer:
        if self._access.user and self._token is None:
            await self._log_in(endpoint)
        try:
            return _decoded(endpoint, await self._post(endpoint, path, body), answer)
        except EtcdRefused as refused:
            if refused.code != UNAUTHENTICATED or self._token is None:
                raise
        # A token lasts for some minutes, and for no restart of etcd.
        await self._log_in(endpoint)
        return _decoded(endpoint, await self._post(endpoint, path, body), answer)

    async def _log_in(self, endpoint: str) -> None:
        self._token = None
        try:
            request = {"name": self._access.user, "password": self._access.password()}
        except OSError as error:
            raise EtcdUnavailable(f"{endpoint}: cannot read the password of {self._access.user}: {error}") from error
        answered = await self._post(endpoint, "/v3/auth/authenticate", msgspec.json.encode(request))
        self._token = _decoded(endpoint, answered, Authenticated).token

    async def _post(self, endpoint: str, path: str, body: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/json"} | ({"Authorization": self._token} if self._token else {})
        try:
            with trio.fail_after(self._try_sec):
                return await self._http.post(endpoint + path, content=body, headers=headers)
        except (httpx.TimeoutException, trio.TooSlowError) as error:
            raise EtcdUnavailable(f"{endpoint}: no answer within {self._try_sec:g} s") from error
        except httpx.HTTPError as error:
            raise EtcdUnavailable(f"{endpoint}: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """What went wrong below, where the error itself says nothing: a certificate that does not fit, for one."""
    name, cause = type(error).__name__, error
    while not str(cause) and (below := cause.__cause__ or cause.__context__):
        cause = below
    return str(cause) or name


def _decoded(endpoint: str, response: httpx.Response, answer: type[Answer]) -> Answer:
    try:
        if response.is_success:
            return msgspec.json.decode(response.content, type=answer, strict=False)
        said = msgspec.json.decode(response.content, type=GatewayError)
    except msgspec.MsgspecError as error:
        what = f"HTTP {response.status_code}: {response.text[:200]}"
        raise EtcdUnavailable(f"{endpoint} does not answer as etcd ({error}): {what}") from error
    if said.code in UNAVAILABLE:
        raise EtcdUnavailable(f"{endpoint}: {said.error}")
    raise EtcdRefused(endpoint, said.code, said.error)
