"""Pods as the Kubernetes API tells of them, as far as anything is decided by it, and which of them is whose.

How the API writes them stands in `controller.kubernetes.messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.instance import Instance
from controller.model.kubernetes.condition import Condition
from controller.model.member import Member


@dataclass(frozen=True, slots=True, order=True)
class PodRef:
    """One life of a pod: another pod of the same name has another uid."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who makes the next pod when this one is gone: a StatefulSet, a Job."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    ref: PodRef
    resource_version: str
    """Of exactly this state: a request that names it has no effect on any later one."""
    owner: Owner | None = None
    is_being_deleted: bool = False
    is_restarting: bool = False
    """One of its containers has ended, and the kubelet is going to start it again."""
    condition: Condition | None = None
    """Ours, as it was last written."""


Pods = Mapping[tuple[str, str], Pod]
"""By namespace and name."""


def ref_of(member: Member) -> PodRef | None:
    """None of one that runs elsewhere than in a pod, or that was not told which."""
    if not member.pod_name or not member.pod_uid:
        return None
    return PodRef(member.key.namespace, member.pod_name, member.pod_uid)


def pod_of(member: Member, pods: Pods) -> Pod | None:
    """Its own pod, not one that has taken the name over; None also where nobody looks."""
    ref = ref_of(member)
    found = pods.get((ref.namespace, ref.name)) if ref else None
    return found if found and found.ref == ref else None


def pods_of(instance: Instance, pods: Pods) -> tuple[Pod, ...]:
    """Of its members, in rank order, as far as they are known."""
    found = (pod_of(member, pods) for member in instance.members)
    return tuple(pod for pod in found if pod)
