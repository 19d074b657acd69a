"""The Kubernetes API's objects, as far as they are read, the bodies that are sent, and pods as decisions see them."""

from __future__ import annotations

import msgspec

from controller.model.kubernetes.condition import TYPE, Condition
from controller.model.kubernetes.pods import Owner, Pod, PodRef
from controller.model.kubernetes.series import Series

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""Merges conditions by their type; a plain merge patch would take all the others away."""
COMPONENT = "podvisor-controller"


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class ContainerState(msgspec.Struct, frozen=True):
    waiting: dict[str, str] | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    state: ContainerState | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class PodObject(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: PodStatus = PodStatus()


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    next_page: str | None = msgspec.field(default=None, name="continue")


class PodList(msgspec.Struct, frozen=True):
    metadata: ListMeta
    items: tuple[PodObject, ...] | None = None


class WatchLine(msgspec.Struct, frozen=True):
    """`object` is a pod, for BOOKMARK one with nothing but a resource version, for ERROR a Status."""

    type: str
    object: msgspec.Raw


class VersionMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True):
    metadata: VersionMeta


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, frozen=True):
    """The body of an error."""

    message: str | None = None
    code: int = 0
    details: StatusDetails | None = None


def pod_of(found: PodObject) -> Pod:
    meta, containers = found.metadata, found.status.container_statuses or ()
    return Pod(
        PodRef(meta.namespace, meta.name, meta.uid),
        meta.resource_version,
        _owner(meta.owner_references or ()),
        is_being_deleted=meta.deletion_timestamp is not None,
        is_restarting=any(each.state and each.state.waiting is not None for each in containers),
        condition=_condition(found.status.conditions or ()),
    )


def _owner(references: tuple[OwnerReference, ...]) -> Owner | None:
    found = next((each for each in references if each.controller), None)
    return Owner(found.api_version, found.kind, found.name, found.uid) if found else None


def _condition(conditions: tuple[PodCondition, ...]) -> Condition | None:
    found = next((each for each in conditions if each.type == TYPE), None)
    return Condition(found.status == "True", found.reason or "", found.message or "") if found else None


def condition_patch(ref: PodRef, condition: Condition, changed_at: str | None) -> bytes:
    """For that life of the pod and no other: the API compares the uid. `changed_at` is when its status changed."""
    written: dict[str, object] = {
        "type": TYPE,
        "status": str(condition.is_true),
        "reason": condition.reason,
        "message": condition.message,
    }
    if changed_at is not None:
        written["lastTransitionTime"] = changed_at
    return msgspec.json.encode({"metadata": {"uid": ref.uid}, "status": {"conditions": [written]}})


def delete_options(pod: Pod) -> bytes:
    """Of the pod as it was read: any other life, or any later state of this one, is left alone."""
    return msgspec.json.encode(
        {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": pod.ref.uid, "resourceVersion": pod.resource_version},
        }
    )


def event_body(series: Series, first_at: str, last_at: str) -> bytes:
    involved = series.involved
    return msgspec.json.encode(
        {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": series.name, "namespace": involved.namespace},
            "involvedObject": {
                "apiVersion": involved.api_version,
                "kind": involved.kind,
                "namespace": involved.namespace,
                "name": involved.name,
                "uid": involved.uid,
            },
            "reason": series.reason,
            "type": _level(series),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": first_at,
            "message": series.message,
            "count": series.count,
            "lastTimestamp": last_at,
        }
    )


def event_patch(series: Series, last_at: str) -> bytes:
    changed = {"message": series.message, "type": _level(series), "count": series.count, "lastTimestamp": last_at}
    return msgspec.json.encode(changed)


def _level(series: Series) -> str:
    return "Warning" if series.is_warning else "Normal"
