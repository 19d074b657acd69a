"""A small Kubernetes API as an ASGI application, true enough for `kubectl`: get, get -w, describe, patch, delete.

What may go wrong with the real one can be made to go wrong here: `faults`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import trio
from quart import Response, request
from quart_trio import QuartTrio

from tests.support.fake_kubernetes.access import Access
from tests.support.fake_kubernetes.errors import ApiError
from tests.support.fake_kubernetes.objects import KINDS, Kind, Objects, Selector, labelled, with_fields
from tests.support.fake_kubernetes.patches import merge, strategic_merge

Json = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
BOOKMARK_SEC = 60.0
PATCHES = {"application/merge-patch+json": merge, "application/strategic-merge-patch+json": strategic_merge}


@dataclass
class Faults:
    refuse: ApiError | None = None
    """Every request but watches that go on, until it is taken away."""
    refuse_writes: ApiError | None = None
    refuse_reads: ApiError | None = None
    """Of one object by its name; lists and watches go on."""
    slow_sec: float = 0.0
    """Before each answer."""
    hang: bool = False
    """No answer at all."""
    swallow: int = 0
    """So many writes yet are carried out and never answered."""
    expire_in_stream: bool = False
    """A forgotten version is told in a stream that has begun, as a real API does when it notices late."""
    mute_watches: bool = False
    """Those that are open say nothing any more, and do not end: their connection is none, and nobody noticed."""
    watches_cut: int = 0
    """So often were they all cut off."""


@dataclass
class FakeKubernetes:
    objects: Objects = field(default_factory=Objects)
    access: Access = field(default_factory=Access)
    faults: Faults = field(default_factory=Faults)
    watching: int = 0
    """Watches that are open."""
    requests: list[str] = field(default_factory=list)
    """Method and path of each, in order."""
    _cut: trio.Event = field(default_factory=trio.Event)

    def cut_watches(self) -> None:
        """In the midst of the stream, without an end."""
        self.faults.watches_cut += 1
        self._cut.set()
        self._cut = trio.Event()

    def app(self) -> QuartTrio:
        app = QuartTrio("fake-kubernetes")

        @app.errorhandler(ApiError)
        async def refused(error: ApiError) -> Response:
            answer = _json(error.body, error.status)
            if error.retry_after_sec is not None:
                answer.headers["Retry-After"] = str(error.retry_after_sec)
            return answer

        @app.before_request
        async def weather() -> None:
            self.requests.append(f"{request.method} {request.path}")
            if self.faults.hang:
                await trio.sleep_forever()
            await trio.sleep(self.faults.slow_sec)
            if self.faults.refuse:
                raise self.faults.refuse
            if self.faults.refuse_writes and request.method != "GET":
                raise self.faults.refuse_writes

        _add_discovery(app)
        for kind in KINDS:
            self._add_kind(app, kind)
        return app

    def _add_kind(self, app: QuartTrio, kind: Kind) -> None:
        base = f"{kind.prefix}/namespaces/<namespace>/{kind.plural}"

        @app.get(f"{kind.prefix}/{kind.plural}", endpoint=f"all-{kind.plural}")
        async def everywhere() -> Response:
            return await self._list_or_watch(kind, None)

        @app.get(base, endpoint=f"list-{kind.plural}")
        async def here(namespace: str) -> Response:
            return await self._list_or_watch(kind, namespace)

        @app.post(base, endpoint=f"create-{kind.plural}")
        async def create(namespace: str) -> Response:
            self._let_in("create", kind)
            return await self._answer(self.objects.create(kind, namespace, await _body()), 201)

        @app.get(f"{base}/<name>", endpoint=f"get-{kind.plural}")
        async def get(namespace: str, name: str) -> Response:
            if self.faults.refuse_reads:
                raise self.faults.refuse_reads
            self._let_in("get", kind)
            return _json(self.objects.get(kind, namespace, name))

        @app.put(f"{base}/<name>", endpoint=f"put-{kind.plural}")
        async def put(namespace: str, name: str) -> Response:
            self._let_in("update", kind)
            return await self._answer(self.objects.replace(kind, namespace, name, await _body()))

        @app.patch(f"{base}/<name>", endpoint=f"patch-{kind.plural}")
        async def patch(namespace: str, name: str) -> Response:
            self._let_in("patch", kind)
            return await self._answer(await self._patched(kind, namespace, name))

        @app.delete(f"{base}/<name>", endpoint=f"delete-{kind.plural}")
        async def delete(namespace: str, name: str) -> Response:
            self._let_in("delete", kind)
            return await self._answer(self.objects.delete(kind, namespace, name, await _body()))

        if "status" in kind.subresources:

            @app.get(f"{base}/<name>/status", endpoint=f"get-status-{kind.plural}")
            async def get_status(namespace: str, name: str) -> Response:
                self._let_in("get", kind, "/status")
                return _json(self.objects.get(kind, namespace, name))

            @app.patch(f"{base}/<name>/status", endpoint=f"status-{kind.plural}")
            async def patch_status(namespace: str, name: str) -> Response:
                self._let_in("patch", kind, "/status")
                return await self._answer(await self._patched(kind, namespace, name, only="status"))

        if "eviction" in kind.subresources:

            @app.post(f"{base}/<name>/eviction", endpoint=f"evict-{kind.plural}")
            async def evict(namespace: str, name: str) -> Response:
                self._let_in("create", kind, "/eviction")
                options = (await _body()).get("deleteOptions") or {}
                self.objects.delete(kind, namespace, name, options)
                return _json({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    def _let_in(self, verb: str, kind: Kind, subresource: str = "") -> None:
        user = self.access.user(request.headers.get("Authorization"))
        group = "" if kind.api_version == "v1" else kind.api_version.partition("/")[0]
        self.access.check(user, verb, group, kind.plural + subresource)

    async def _answer(self, body: Json, status: int = 200) -> Response:
        if self.faults.swallow:
            self.faults.swallow -= 1
            await trio.sleep_forever()
        return _json(body, status)

    async def _patched(self, kind: Kind, namespace: str, name: str, only: str | None = None) -> Json:
        """Whoever names a uid or a version in a patch means that one and no other."""
        media = request.headers.get("Content-Type", "").partition(";")[0]
        if media not in PATCHES:
            raise ApiError(415, f"the body of the request was in an unknown format: {media}")
        before, patch = self.objects.get(kind, namespace, name), await _body()
        changed = PATCHES[media](before, patch)
        if only is not None:
            changed = {**before, only: changed.get(only), "metadata": {**before["metadata"], **_named(patch)}}
        elif "status" in before and "status" in kind.subresources:
            changed["status"] = before["status"]
        return self.objects.replace(kind, namespace, name, changed)

    async def _list_or_watch(self, kind: Kind, namespace: str | None) -> Response:
        labels, fields = request.args.get("labelSelector", ""), request.args.get("fieldSelector", "")
        by_label, by_field = labelled(labels), with_fields(fields)

        def selector(found: Json) -> bool:
            return by_label(found) and by_field(found)

        if request.args.get("watch") in ("true", "1"):
            self._let_in("watch", kind)
            return self._watch(kind, namespace, selector)
        self._let_in("list", kind)
        return _json(self._page(kind, namespace, selector))

    def _page(self, kind: Kind, namespace: str | None, selector: Selector) -> Json:
        found = self.objects.list(kind, namespace, selector)
        limit, begins = int(request.args.get("limit") or len(found) or 1), int(request.args.get("continue") or 0)
        more = begins + limit < len(found)
        meta = {"resourceVersion": str(self.objects.version)} | ({"continue": str(begins + limit)} if more else {})
        items = found[begins : begins + limit]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def _watch(self, kind: Kind, namespace: str | None, selector: Selector) -> Response:
        version, first = request.args.get("resourceVersion", ""), []
        streams_list = request.args.get("sendInitialEvents") == "true"
        if version in ("", "0") or streams_list:
            first = [{"type": "ADDED", "object": found} for found in self.objects.list(kind, namespace, selector)]
            version = str(self.objects.version)
        if streams_list:
            first.append(_bookmark(kind, self.objects.version, {"k8s.io/initial-events-end": "true"}))
        if int(version) < self.objects.oldest and not self.faults.expire_in_stream:
            raise ApiError(410, f"too old resource version: {version} ({self.objects.oldest})")
        lasts = float(request.args.get("timeoutSeconds") or 1800)
        bookmarks = request.args.get("allowWatchBookmarks") == "true"
        stream = self._stream(kind, namespace, selector, int(version), first, trio.current_time() + lasts, bookmarks)
        response = Response(stream, content_type="application/json")
        response.timeout = None
        return response

    async def _stream(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector,
        version: int,
        first: list[Json],
        until: float,
        bookmarks: bool,
    ) -> AsyncGenerator[bytes, None]:
        self.watching += 1
        cut = self._cut
        try:
            yield _lines(first)
            while trio.current_time() < until:
                changed = self.objects.changed
                if self.faults.mute_watches:
                    await trio.sleep_forever()
                try:
                    found = list(self.objects.since(version, kind, namespace, selector))
                except ApiError as error:
                    yield _lines([{"type": "ERROR", "object": error.body}])
                    return
                version = self.objects.version
                yield _lines(found)
                if await _either(changed, cut, min(until, trio.current_time() + BOOKMARK_SEC)):
                    raise ConnectionResetError("the test cuts the watches")
                if bookmarks and not changed.is_set():
                    yield _lines([_bookmark(kind, self.objects.version)])
        finally:
            self.watching -= 1


async def _either(changed: trio.Event, cut: trio.Event, deadline: float) -> bool:
    """Until one of them or the deadline; whether it was the second."""
    with trio.CancelScope(deadline=deadline):
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, changed)
            nursery.start_soon(wait, cut)
    return cut.is_set()


def _bookmark(kind: Kind, version: int, annotations: Json | None = None) -> Json:
    meta = {"resourceVersion": str(version), "creationTimestamp": None, "annotations": annotations or {}}
    return {"type": "BOOKMARK", "object": {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}}


def _named(patch: Json) -> Json:
    """What a patch of the status may say of the metadata: which object it means."""
    meta = patch.get("metadata") or {}
    return {key: meta[key] for key in ("uid", "resourceVersion") if key in meta}


def _add_discovery(app: QuartTrio) -> None:
    groups = sorted({kind.prefix for kind in KINDS})

    @app.get("/version")
    async def version() -> Response:
        return _json({"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"})

    @app.get("/api")
    async def core() -> Response:
        return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})

    @app.get("/apis")
    async def apis() -> Response:
        names = {"groupVersion": "apps/v1", "version": "v1"}
        group = {"name": "apps", "versions": [names], "preferredVersion": names}
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})

    for prefix in groups:

        @app.get(prefix, endpoint=f"resources-{prefix}")
        async def resources(prefix: str = prefix) -> Response:
            kinds = [kind for kind in KINDS if kind.prefix == prefix]
            listed = [line for kind in kinds for line in _resources(kind)]
            group_version = kinds[0].api_version
            return _json({"kind": "APIResourceList", "groupVersion": group_version, "resources": listed})


def _resources(kind: Kind) -> list[Json]:
    common: Json = {"singularName": "", "namespaced": True, "kind": kind.kind}
    whole = {"name": kind.plural, **common, "verbs": VERBS, "shortNames": list(kind.short)}
    parts = {
        "status": {"name": f"{kind.plural}/status", **common, "verbs": ["get", "patch", "update"]},
        "eviction": {
            "name": f"{kind.plural}/eviction",
            **common,
            "kind": "Eviction",
            "group": "policy",
            "version": "v1",
            "verbs": ["create"],
        },
    }
    return [whole, *(parts[name] for name in kind.subresources)]


async def _body() -> Json:
    data = await request.get_data(as_text=False)
    return json.loads(data) if data else {}


def _lines(events: list[Json]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _json(body: Json, status: int = 200) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")


def pod(name: str, *, labels: dict[str, str] | None = None, owner: Json | None = None) -> Json:
    """As a manifest and a scheduler would have made it; whoever runs it writes its status."""
    meta: Json = {"name": name, "labels": labels or {}}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    spec = {"nodeName": "node-1", "containers": [{"name": "engine", "image": "engine"}]}
    return {
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
