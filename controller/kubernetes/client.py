"""The few requests to the Kubernetes API that are ever made: one request, one answer, or one of three errors.

When they are made, and what is done after an error, is the callers'.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeVar

import httpx
import msgspec
import trio

from controller.kubernetes.messages import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Bookmark,
    PodList,
    PodObject,
    Status,
    WatchLine,
    condition_patch,
    delete_options,
    pod_of,
)
from controller.kubernetes.service_account import ServiceAccount
from controller.model.kubernetes.condition import Condition
from controller.model.kubernetes.pods import Pod, PodRef

PAGE = 500
WATCH_SEC = 240
"""The API ends a watch then; the next goes on from where it was."""
WATCH_SILENCE_SEC = 100.0
"""Bookmarks come every minute: a watch that is silent for longer hangs on a connection that is no more."""
OUR_SHARE = 0.9
"""Of a time-out for httpx's own, so that its pool stays in order."""
FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 403, 404, 409, 410, 429
PASSING = frozenset({401, 408, TOO_MANY})

Decoded = TypeVar("Decoded")


class ApiUnavailable(Exception):
    """It cannot be reached, is too slow, or asks to be left alone: what was asked for may be done, and may be asked
    for again."""

    def __init__(self, message: str, retry_after_sec: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_sec = retry_after_sec


class ApiRefused(Exception):
    """A definite no; nothing was done."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Expired(ApiRefused):
    """The API does not remember so old a version: list anew."""


class WatchEvent(msgspec.Struct, frozen=True):
    version: str
    """To go on from."""
    pod: Pod | None = None
    """None: nothing but the version is new."""
    is_deleted: bool = False


class ApiClient:
    """Connections to the API. Close them with `aclose`. Every request raises ApiUnavailable and ApiRefused."""

    def __init__(
        self,
        account: ServiceAccount,
        timeout_sec: float,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        self._account = account
        self._timeout_sec = timeout_sec
        self._http = httpx.AsyncClient(
            base_url=account.url,
            transport=transport() if transport else None,
            timeout=httpx.Timeout(timeout_sec * OUR_SHARE),
            # Without TLS nobody has to be trusted, and httpx would make a context all the same.
            verify=account.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def pod(self, ref: PodRef) -> Pod | None:
        """Whoever has that name now."""
        try:
            body = await self._call("GET", _pod_path(ref))
        except ApiRefused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise
        return pod_of(_decode(body, PodObject))

    async def pods(self, namespace: str, selector: str) -> tuple[list[Pod], str]:
        """All of them, and the version from which a watch goes on. Raises Expired if they change too fast."""
        found: list[Pod] = []
        next_page = ""
        while True:
            asked = {"limit": str(PAGE), "labelSelector": selector, "continue": next_page}
            params = {name: value for name, value in asked.items() if value}
            page = _decode(await self._call("GET", _pods_path(namespace), params=params), PodList)
            found += [pod_of(item) for item in page.items or ()]
            if not (next_page := page.metadata.next_page or ""):
                return found, page.metadata.resource_version

    @asynccontextmanager
    async def watch(self, namespace: str, selector: str, version: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """What happens to them after `version`, until the API ends the stream. Raises Expired, also in the midst."""
        params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        params |= {"timeoutSeconds": str(WATCH_SEC)} | ({"labelSelector": selector} if selector else {})
        patience = httpx.Timeout(self._timeout_sec * OUR_SHARE, read=WATCH_SILENCE_SEC)
        request = self._request("GET", _pods_path(namespace), params=params)
        request.extensions["timeout"] = patience.as_dict()
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code != 200:
                    self._refuse(response, await response.aread())
                yield _events(response)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise ApiUnavailable(f"{self._account.url}: the watch of {namespace} broke: {_words(error)}") from error

    async def set_condition(self, ref: PodRef, condition: Condition, changed_at: str | None) -> None:
        body = condition_patch(ref, condition, changed_at)
        await self._call("PATCH", f"{_pod_path(ref)}/status", body, STRATEGIC_MERGE_PATCH)

    async def create_event(self, namespace: str, body: bytes) -> None:
        await self._call("POST", f"/api/v1/namespaces/{namespace}/events", body)

    async def patch_event(self, namespace: str, name: str, body: bytes) -> None:
        await self._call("PATCH", f"/api/v1/namespaces/{namespace}/events/{name}", body, MERGE_PATCH)

    async def delete(self, pod: Pod) -> None:
        """Gently: its grace period is its own. Refused with CONFLICT if it is not exactly as it was read."""
        await self._call("DELETE", _pod_path(pod.ref), delete_options(pod))

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media: str = "application/json",
        *,
        params: dict[str, str] | None = None,
    ) -> bytes:
        """Cancelled: it may or may not have been done."""
        response = await self._send(self._request(method, path, body, media, params))
        if response.status_code == 401 and self._account.read_again():
            response = await self._send(self._request(method, path, body, media, params))
        if not response.is_success:
            self._refuse(response, response.content)
        return response.content

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> httpx.Request:
        headers = {"Authorization": f"Bearer {self._account.token()}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = media
        return self._http.build_request(method, path, content=body, headers=headers, params=params)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            with trio.fail_after(self._timeout_sec):
                return await self._http.send(request)
        except (httpx.TimeoutException, trio.TooSlowError) as error:
            raise ApiUnavailable(f"{self._account.url}: no answer within {self._timeout_sec:g} s") from error
        except httpx.HTTPError as error:
            raise ApiUnavailable(f"{self._account.url}: {_words(error)}") from error

    def _refuse(self, response: httpx.Response, body: bytes) -> NoReturn:
        status = response.status_code
        if status == 401:
            self._account.read_again()
        request = response.request
        message = f"{request.method} {request.url.path} was answered {status}: {_said(body)}"
        if status in PASSING or status >= 500 or status < 400:
            raise ApiUnavailable(message, _seconds(response.headers.get("Retry-After")))
        raise (Expired if status == GONE else ApiRefused)(message, status)


async def _events(response: httpx.Response) -> AsyncIterator[WatchEvent]:
    async for line in response.aiter_lines():
        told = _decode(line.encode(), WatchLine)
        if told.type == "ERROR":
            status = _decode(bytes(told.object), Status)
            message = f"the watch ended: {status.message}"
            if status.code == GONE:
                raise Expired(message, GONE)
            raise ApiUnavailable(message, status.details.retry_after_seconds if status.details else None)
        if told.type == "BOOKMARK":
            yield WatchEvent(_decode(bytes(told.object), Bookmark).metadata.resource_version)
        else:
            pod = pod_of(_decode(bytes(told.object), PodObject))
            yield WatchEvent(pod.resource_version, pod, told.type == "DELETED")


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _pod_path(ref: PodRef) -> str:
    return f"{_pods_path(ref.namespace)}/{ref.name}"


def _decode(body: bytes, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiUnavailable(f"an answer that is none of the Kubernetes API: {error}: {body[:200]!r}") from error


def _said(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Status).message or "no reason given"
    except msgspec.MsgspecError:
        return body[:200].decode(errors="replace")


def _seconds(header: str | None) -> float | None:
    """As a date it is not understood: the back-off has to do."""
    return float(header) if header and header.isdecimal() else None


def _words(error: Exception) -> str:
    return str(error) or repr(error)
