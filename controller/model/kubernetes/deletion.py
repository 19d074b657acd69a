"""Which pods are deleted because phase 2 has waited for their containers in vain: the last resort.

Decided anew at each look, by what the instances are then, so that nothing is deleted that is heard of again meanwhile.
The API has the last word: a request names the uid and the state of the pod that was judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from controller.model.fleet import NEVER_BELOW
from controller.model.instance import Instance, InstanceStatus
from controller.model.kubernetes.pods import Pod, PodRef, ref_of
from controller.model.member import Member
from controller.model.settings import FleetSettings, InstanceSettings


@dataclass(frozen=True, slots=True)
class Admitted:
    """That this pod is deleted was decided."""

    ref: PodRef
    at: float


def admitted(
    instances: Collection[Instance],
    before: tuple[Admitted, ...],
    now: float,
    fleet: FleetSettings,
    settings: InstanceSettings,
) -> tuple[Admitted, ...]:
    """With those that may be deleted now: never one twice, and of all members no more at a time than of instances may
    enter phase 2 (`model.fleet`)."""
    stranded = {ref for instance in instances for _, ref in stranded_in(instance)}
    kept = tuple(each for each in before if now - each.at < fleet.window_sec or each.ref in stranded)
    known = {each.ref for each in kept}
    members = sum(len(instance.members) for instance in instances)
    most = max(NEVER_BELOW, int(fleet.max_phase2_fraction * members))
    free = max(0, most - sum(1 for each in kept if now - each.at < fleet.window_sec))
    new = [ref for ref in _deletable(instances, now, settings) if ref not in known]
    if not any(_is_heard(member, now, settings) for instance in instances for member in instance.members):
        # It may be us who are cut off.
        new = []
    return (*kept, *(Admitted(ref, now) for ref in new[:free]))


def withdrawn(before: tuple[Admitted, ...], ref: PodRef) -> tuple[Admitted, ...]:
    """It came to nothing: the pod was not touched."""
    return tuple(each for each in before if each.ref != ref)


def is_wanted(instance: Instance, ref: PodRef, now: float, settings: InstanceSettings) -> bool:
    """Still, a moment before it is done."""
    return ref in _of(instance, now, settings)


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


def _deletable(instances: Iterable[Instance], now: float, settings: InstanceSettings) -> tuple[PodRef, ...]:
    """Each once, who was stranded first in the fleet's order first."""
    return tuple(dict.fromkeys(ref for instance in instances for ref in _of(instance, now, settings)))


def _of(instance: Instance, now: float, settings: InstanceSettings) -> tuple[PodRef, ...]:
    """An instance that somebody holds or ends is theirs; one that serves has lost nobody."""
    if instance.held or instance.terminating or instance.status not in _BROKEN:
        return ()
    return tuple(ref for member, ref in stranded_in(instance) if not _is_heard(member, now, settings))


def _is_heard(member: Member, now: float, settings: InstanceSettings) -> bool:
    return now - member.last_heard <= settings.heartbeat_timeout_active_sec


_BROKEN = (InstanceStatus.INITIAL, InstanceStatus.INACTIVE)
