"""Which pods are deleted because phase 2 has waited for their containers in vain: the last resort.

Decided anew at each look, by what the instances are then, so that nothing is deleted that is heard of again meanwhile.
The API has the last word: a request names the uid and the state of the pod that was judged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.model.fleet import NEVER_BELOW
from controller.model.instance import Instance, InstanceStatus
from controller.model.kubernetes.pods import Pod, PodRef, Pods, pod_of, ref_of
from controller.model.member import Member
from controller.model.settings import FleetSettings, InstanceSettings


@dataclass(frozen=True, slots=True)
class Admitted:
    """That this pod is deleted was decided."""

    ref: PodRef
    at: float
    is_touched: bool = True
    """It was or will be deleted by us: it counts against how many may be at a time."""


def admitted(
    instances: Collection[Instance],
    pods: Pods,
    before: tuple[Admitted, ...],
    now: float,
    fleet: FleetSettings,
    settings: InstanceSettings,
) -> tuple[Admitted, ...]:
    """With those that may be deleted now: never one twice, and of all members no more at a time than of instances may
    enter phase 2 (`model.fleet`)."""
    stranded = {ref for instance in instances for _, ref in stranded_in(instance)}
    counted = {each.ref for each in before if each.is_touched and now - each.at < fleet.window_sec}
    kept = tuple(each for each in before if each.ref in counted or each.ref in stranded)
    known = {each.ref for each in kept}
    members = sum(len(instance.members) for instance in instances)
    most = max(NEVER_BELOW, int(fleet.max_phase2_fraction * members))
    free = max(0, most - len(counted))
    new = [ref for ref in _deletable(instances, pods, now, settings) if ref not in known]
    return (*kept, *(Admitted(ref, now) for ref in new[:free]))


def withdrawn(before: tuple[Admitted, ...], ref: PodRef) -> tuple[Admitted, ...]:
    """It is not to be deleted any more; should it be later, that is decided anew."""
    return tuple(each for each in before if each.ref != ref)


def untouched(before: tuple[Admitted, ...], ref: PodRef) -> tuple[Admitted, ...]:
    """There is nothing left to be deleted, and that was not us: another may have its turn."""
    return tuple(replace(each, is_touched=False) if each.ref == ref else each for each in before)


def is_wanted(instances: Collection[Instance], pods: Pods, ref: PodRef, now: float, settings: InstanceSettings) -> bool:
    """Still, a moment before it is done."""
    return ref in _deletable(instances, pods, now, settings)


def stranded_in(instance: Instance) -> tuple[tuple[Member, PodRef], ...]:
    return tuple((member, ref) for member in instance.members if member.stranded and (ref := ref_of(member)))


class Verdict(StrEnum):
    DELETE = "delete"
    OVER = "over"
    """It is gone, another has its name, or somebody deletes it already."""
    LATER = "later"
    """The kubelet is about to start its container again."""


def judge(pod: Pod | None, ref: PodRef) -> Verdict:
    """`pod` has just been read under the name of `ref`."""
    if pod is None or pod.ref != ref or pod.is_being_deleted:
        return Verdict.OVER
    return Verdict.LATER if pod.is_restarting else Verdict.DELETE


def _deletable(
    instances: Collection[Instance], pods: Pods, now: float, settings: InstanceSettings
) -> tuple[PodRef, ...]:
    """Each once, in the fleet's order; none while all of the fleet are silent: it may be us who are cut off."""
    if not any(_is_heard(member, now, settings) for instance in instances for member in instance.members):
        return ()
    return tuple(dict.fromkeys(ref for instance in instances for ref in _of(instance, pods, now, settings)))


def _of(instance: Instance, pods: Pods, now: float, settings: InstanceSettings) -> tuple[PodRef, ...]:
    """An instance that somebody holds or ends is theirs; one that serves has lost nobody. What is not among `pods` we
    were not told to look at."""
    if instance.held or instance.terminating or instance.status not in _BROKEN:
        return ()
    return tuple(
        ref
        for member, ref in stranded_in(instance)
        if pod_of(member, pods) is not None and not _is_heard(member, now, settings)
    )


def _is_heard(member: Member, now: float, settings: InstanceSettings) -> bool:
    return now - member.last_heard <= settings.heartbeat_timeout_active_sec


_BROKEN = (InstanceStatus.INITIAL, InstanceStatus.INACTIVE)
