"""What the API keeps: objects with versions, and the history from which watches go on.

Of the real one it has what clients rely on: one growing resource version, uids, preconditions, graceful deletion,
selectors, and that old versions are forgotten. It validates nothing, and proves nothing about the real one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import trio

from tests.support.fake_kubernetes.errors import ApiError, conflict, not_found

Json = dict[str, Any]
Selector = Callable[[Json], bool]


@dataclass(frozen=True)
class Kind:
    """Of objects: where they are and how they are called."""

    prefix: str
    api_version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


PODS = Kind("/api/v1", "v1", "Pod", "pods", ("po",), ("status", "eviction"))
EVENTS = Kind("/api/v1", "v1", "Event", "events", ("ev",))
STATEFUL_SETS = Kind("/apis/apps/v1", "apps/v1", "StatefulSet", "statefulsets", ("sts",))
KINDS = (PODS, EVENTS, STATEFUL_SETS)


@dataclass(frozen=True)
class Change:
    version: int
    kind: Kind
    before: Json | None
    after: Json | None


@dataclass
class Objects:
    version: int = 100
    history: list[Change] = field(default_factory=list)
    oldest: int = 0
    """Versions below are forgotten."""
    changed: trio.Event = field(default_factory=trio.Event)
    ended_gracefully: Callable[[Json], None] = lambda pod: None
    """Told of each pod that is to end; whoever runs it calls `remove` when it has."""
    _kept: dict[tuple[str, str, str], Json] = field(default_factory=dict)

    # --- what is there -------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        if (found := self._kept.get((kind.plural, namespace, name))) is None:
            raise not_found(kind.plural, name)
        return copy.deepcopy(found)

    def list(self, kind: Kind, namespace: str | None, selector: Selector = lambda _: True) -> list[Json]:
        found = sorted(self._kept.items())
        return [
            copy.deepcopy(each)
            for (plural, where, _), each in found
            if plural == kind.plural and namespace in (None, where) and selector(each)
        ]

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self.get(PODS, namespace, name)

    # --- what is done --------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Json) -> Json:
        made = copy.deepcopy(body)
        meta = made.setdefault("metadata", {})
        name = meta.setdefault("name", meta.pop("generateName", "made-") + uuid4().hex[:5])
        if (kind.plural, namespace, name) in self._kept:
            raise ApiError(409, f'{kind.plural} "{name}" already exists', "AlreadyExists")
        meta |= {"namespace": namespace, "uid": meta.get("uid") or str(uuid4()), "creationTimestamp": _now()}
        made |= {"kind": kind.kind, "apiVersion": kind.api_version}
        return self._put(kind, made)

    def replace(self, kind: Kind, namespace: str, name: str, changed: Json) -> Json:
        """As patch and put do it: another uid or an old version in it is a conflict."""
        before, meta = self.get(kind, namespace, name), changed["metadata"]
        was = before["metadata"]
        if meta["uid"] != was["uid"]:
            raise conflict(kind.plural, name, f"the UID in the precondition ({meta['uid']}) is not {was['uid']}")
        if meta.get("resourceVersion") != was["resourceVersion"]:
            raise conflict(kind.plural, name, "the object has been modified; please apply your changes to the latest")
        return self._put(kind, changed)

    def delete(self, kind: Kind, namespace: str, name: str, options: Json) -> Json:
        """A pod ends in its grace period, and goes on being there until whoever runs it has seen its end."""
        found = self.get(kind, namespace, name)
        for key, told in (options.get("preconditions") or {}).items():
            if told != found["metadata"][key]:
                raise conflict(kind.plural, name, f"the {key} in the precondition ({told}) does not match the record")
        grace = options.get("gracePeriodSeconds")
        if kind is not PODS or grace == 0 or not found.get("spec", {}).get("nodeName"):
            return self.remove(kind, namespace, name)
        if "deletionTimestamp" in found["metadata"]:
            return found
        found["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 30 if grace is None else grace}
        told = self._put(kind, found)
        self.ended_gracefully(told)
        return told

    def remove(self, kind: Kind, namespace: str, name: str) -> Json:
        before = self.get(kind, namespace, name)
        del self._kept[kind.plural, namespace, name]
        self.version += 1
        gone = copy.deepcopy(before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._note(Change(self.version, kind, before, None), gone)
        return gone

    def forget_history(self) -> None:
        """Compaction: every version so far is too old to be watched from."""
        self.version += 1
        self.oldest = self.version
        self.history.clear()
        self._announce()

    # --- watching ------------------------------------------------------------------------------------------

    def since(self, version: int, kind: Kind, namespace: str | None, selector: Selector) -> Iterator[Json]:
        """Watch events after `version`. Raises ApiError 410 if those are forgotten."""
        if version < self.oldest:
            raise ApiError(410, f"too old resource version: {version} ({self.oldest})")
        for change in self.history:
            is_news = change.version > version and change.kind is kind
            if is_news and (event := _event(change, namespace, selector)) is not None:
                yield event

    def _put(self, kind: Kind, changed: Json) -> Json:
        meta = changed["metadata"]
        key = kind.plural, meta["namespace"], meta["name"]
        before = self._kept.get(key)
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        self._kept[key] = changed
        self._note(Change(self.version, kind, before, copy.deepcopy(changed)), changed)
        return copy.deepcopy(changed)

    def _note(self, change: Change, last: Json) -> None:
        before = last if change.after is None else change.before
        self.history.append(Change(change.version, change.kind, copy.deepcopy(before), change.after))
        self._announce()

    def _announce(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


def _event(change: Change, namespace: str | None, selector: Selector) -> Json | None:
    def is_seen(found: Json | None) -> bool:
        return found is not None and namespace in (None, found["metadata"]["namespace"]) and selector(found)

    was, is_now = is_seen(change.before), is_seen(change.after)
    if is_now:
        return {"type": "MODIFIED" if was else "ADDED", "object": change.after}
    return {"type": "DELETED", "object": change.before} if was else None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def labelled(written: str) -> Selector:
    """`app=web,tier!=db,present`: what label selectors of the forms used here mean."""
    return lambda found: all(_matches(found["metadata"].get("labels") or {}, term) for term in _terms(written))


def with_fields(written: str) -> Selector:
    """`metadata.name=web-0`: a path is compared as text."""
    return lambda found: all(_matches(_Fields(found), term) for term in _terms(written))


class _Fields:
    def __init__(self, found: Json) -> None:
        self._found = found

    def get(self, path: str) -> str | None:
        here: Any = self._found
        for name in path.split("."):
            here = here.get(name) if isinstance(here, dict) else None
        return None if here is None else str(here)


def _terms(written: str) -> list[str]:
    return [term.strip() for term in written.split(",") if term.strip()]


def _matches(found: Any, term: str) -> bool:
    for operator, is_equal in (("!=", False), ("==", True), ("=", True)):
        name, told, value = term.partition(operator)
        if told:
            return ((found.get(name.strip()) or "") == value.strip()) is is_equal
    return found.get(term.lstrip("!")) is not None if not term.startswith("!") else found.get(term[1:]) is None
