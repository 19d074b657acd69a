"""A router in front of the instances of one model: it sends requests only to those that are ACTIVE.

    python router.py --listen 0.0.0.0:8000 --model llama http://controller-0:1026 http://controller-1:1026

Where requests may go it learns from the controller: it lists the instances once and follows the events from there.
It needs what podvisor's own environment has (httpx, hypercorn, trio). What to expect of it is in docs/routing.md.
"""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import httpx
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

SILENCE_SEC = 40.0
"""The controller says something every 15 s; after so long the connection counts as broken."""
AGAIN_SEC = 1.0
ANSWER_SEC = 300.0
"""Between two pieces of an engine's answer."""
UNAVAILABLE = 503
"""An engine answers so while it loads, which the next one may do before the event of the last one's death is heard."""
OF_ONE_CONNECTION = {b"connection", b"host", b"keep-alive", b"transfer-encoding"}

Message = MutableMapping[str, Any]
"""Of ASGI."""
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Told = Mapping[str, Any]
"""By the controller."""


@dataclass(frozen=True)
class Instance:
    active: bool
    endpoints: tuple[str, ...]
    """`IP:PORT` of those that take requests."""


class Routes:
    """Where requests may go. Changed only by what the controller says, in its order."""

    def __init__(self, model: str | None = None) -> None:
        self._model = model
        self._instances: dict[int, Instance] = {}
        self._turn = 0
        self.heard = "0"
        """The last event that has its effect here."""

    def begin(self, listing: Told) -> None:
        """With the answer of `GET /v1/instances`."""
        self._instances = {view["id"]: _listed(view) for view in listing["instances"] if self._concerns(view)}
        self.heard = listing["last_event"]

    def hear(self, event: Told) -> None:
        """A line of `GET /v1/events`. An `identity` comes before the `instance` that says active."""
        self.heard, id_ = str(event["id"]), event.get("instance_id", 0)
        known = self._instances.get(id_)
        if event["kind"] == "identity" and self._concerns(event):
            self._instances[id_] = Instance(known is not None and known.active, tuple(event["endpoints"]))
        elif event["kind"] == "instance" and known is not None:
            self._instances[id_] = replace(known, active=event["status"] == "active")

    def each(self) -> Iterator[str]:
        """Every endpoint of an ACTIVE instance, once; another one first each time; what is heard meanwhile counts."""
        self._turn += 1
        tried: set[str] = set()
        while left := [endpoint for endpoint in self._active() if endpoint not in tried]:
            tried.add(endpoint := left[self._turn % len(left)])
            yield endpoint

    def _active(self) -> list[str]:
        return [endpoint for instance in self._instances.values() if instance.active for endpoint in instance.endpoints]

    def _concerns(self, told: Told) -> bool:
        """Clients do not ask prefill instances."""
        return self._model in (None, told.get("model_name")) and told.get("role") != "prefill"


def _listed(view: Told) -> Instance:
    serving = ((each["ip"], each["port"]) for each in view["endpoints"] if not each["headless"])
    return Instance(view["status"] == "active", tuple(f"[{ip}]:{p}" if ":" in ip else f"{ip}:{p}" for ip, p in serving))


async def follow(controllers: Sequence[str], routes: Routes, token: str | None) -> None:
    """Keep the routes right, for ever. While no controller can be reached they stay as they are."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(5.0, read=SILENCE_SEC)
    async with httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as client:
        for controller in cycle(controllers):
            try:
                await _follow(client, controller, routes)
            except httpx.HTTPError as error:  # gone, silent, or another one leads (421)
                print(f"{controller}: {error!r}", file=sys.stderr, flush=True)
            await trio.sleep(AGAIN_SEC)


async def _follow(client: httpx.AsyncClient, controller: str, routes: Routes) -> None:
    """Until the connection ends, or events were lost: then the instances have to be listed again."""
    listing = (await client.get(f"{controller}/v1/instances")).raise_for_status().json()
    routes.begin(listing)
    events = f"{controller}/v1/events?since={listing['last_event']}"
    async with client.stream("GET", events) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line:  # it only says that it is still there
                continue
            event = json.loads(line)
            if event["kind"] == "gap":
                return
            routes.hear(event)


class Router:
    """The ASGI application. What it cannot finish it breaks off, so that half an answer never looks whole."""

    def __init__(self, routes: Routes, client: httpx.AsyncClient) -> None:
        self._routes = routes
        self._client = client

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"cannot route {scope['type']}")
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            await self._route(scope, body, send)
            nursery.cancel_scope.cancel()

    async def _route(self, scope: Message, body: bytes, send: Send) -> None:
        for endpoint in self._routes.each():
            print(json.dumps({"to": endpoint, "asks": scope["path"], "heard": self._routes.heard}), flush=True)
            try:
                answer = await self._client.send(self._request(scope, body, endpoint), stream=True)
            except httpx.TransportError as error:  # nothing has come of it yet, so another one may be asked
                print(f"{endpoint}: {error!r}", file=sys.stderr, flush=True)
                continue
            if answer.status_code == UNAVAILABLE:
                print(f"{endpoint}: answers {UNAVAILABLE}", file=sys.stderr, flush=True)
                await _let_go(answer)
                continue
            await _pass_on(answer, send)
            return
        await send({"type": "http.response.start", "status": UNAVAILABLE, "headers": [(b"retry-after", b"1")]})
        await send({"type": "http.response.body", "body": b'{"error": {"message": "no instance is active"}}\n'})

    def _request(self, scope: Message, body: bytes, endpoint: str) -> httpx.Request:
        url = httpx.URL(f"http://{endpoint}{scope['path']}", query=scope["query_string"] or None)
        headers = [header for header in scope["headers"] if header[0] not in OF_ONE_CONNECTION]
        return self._client.build_request(scope["method"], url, headers=headers, content=body)


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    """A client that has left is not worth an engine's time."""
    while (await receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def _pass_on(answer: httpx.Response, send: Send) -> None:
    headers = [header for header in answer.headers.raw if header[0].lower() not in OF_ONE_CONNECTION]
    try:
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        async for part in answer.aiter_raw():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await _let_go(answer)


async def _let_go(answer: httpx.Response) -> None:
    with trio.move_on_after(1, shield=True):
        await answer.aclose()


async def run(listen: str, controllers: Sequence[str], model: str | None, token: str | None) -> None:
    routes, config = Routes(model), Config()
    config.bind = [listen]
    # A new connection for each request: one that was kept might lead to an engine that is gone.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    timeout = httpx.Timeout(5.0, read=ANSWER_SEC)
    async with (
        httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(follow, controllers, routes, token)
        await serve(Router(routes, client), config, mode="asgi")  # type: ignore[arg-type]  # hypercorn names every message's fields
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("controllers", nargs="+", metavar="CONTROLLER_URL")
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT")
    parser.add_argument("--model", help="whose instances are meant; default: all")
    options = parser.parse_args()
    trio.run(run, options.listen, options.controllers, options.model, os.environ.get("PODVISOR_TOKEN"))


if __name__ == "__main__":
    main()
