"""What the members' last observations say about their instance: whether it serves, and what to do about silence.

C6 of design 4 says when it may be ACTIVE. What becomes of its status is the table's in `instance`.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.model.instance import Instance, InstanceEvent, InstanceStatus, Verdict, endpoint_ids
from controller.model.member import Member, MemberKey, why_not_normal
from controller.model.settings import InstanceSettings

ALL_LEFT = "all members have left"


@dataclass(frozen=True, slots=True)
class AskDirectly:
    """Their heartbeats stay away: ask for their status before that counts as a time-out."""

    members: tuple[MemberKey, ...]


def judge(instance: Instance, run_open: bool, now: float, settings: InstanceSettings) -> Verdict | AskDirectly | None:
    """What the members' last observations say about the instance; None: nothing new.

    While a run is open it alone decides between ACTIVE and INACTIVE (C6), so only the silence of all counts.
    Call it after every heartbeat and once a second.
    """
    if instance.status is InstanceStatus.DELETED or not instance.members:
        return None
    present = [m for m in instance.members if not m.gone]
    if not present:
        return Verdict(InstanceEvent.HEARTBEAT_TIMEOUT, ALL_LEFT)
    stale = [m for m in present if now - m.last_heard > settings.heartbeat_timeout_active_sec]
    if unasked := tuple(m.key for m in stale if m.unreachable_since is None):
        return AskDirectly(unasked)
    if len(stale) == len(present) and (over := _all_silent(instance, now, settings)):
        return Verdict(InstanceEvent.HEARTBEAT_TIMEOUT, over)
    if run_open:
        return None
    if stale and instance.status is not InstanceStatus.INITIAL:
        is_news = instance.status is InstanceStatus.ACTIVE
        event = InstanceEvent.HEARTBEAT_TIMEOUT if is_news else InstanceEvent.ABNORMAL
        return Verdict(event, f"{_addresses(stale)} cannot be reached")
    return _judge_observations(instance, now, settings)


def _all_silent(instance: Instance, now: float, settings: InstanceSettings) -> str | None:
    if all(member.leaving for member in instance.members):
        return ALL_LEFT
    limit = settings.heartbeat_timeout_inactive_sec
    if instance.status is InstanceStatus.ACTIVE:
        limit = settings.heartbeat_timeout_active_sec
    if all(now - member.last_heard > limit for member in instance.members):
        return f"no member has been heard of for {limit:g} s"
    return None


def _judge_observations(instance: Instance, now: float, settings: InstanceSettings) -> Verdict | None:
    if leaving := [m for m in instance.members if m.leaving and not m.gone]:
        return Verdict(InstanceEvent.ABNORMAL, f"{_addresses(leaving)} is leaving: draining")
    if gone := [m for m in instance.members if m.gone]:
        return Verdict(InstanceEvent.ABNORMAL, f"{_addresses(gone)} has left")
    if instance.epoch == 0:
        return None
    if abnormal := abnormal_endpoints(instance) or instance.separated:
        return Verdict(InstanceEvent.ABNORMAL, abnormal)
    if not all_heard(instance):
        return None
    why = why_not_ready(instance, now, settings)
    if why is None:
        return Verdict(InstanceEvent.NORMAL, "all endpoints are normal")
    if instance.status is not InstanceStatus.ACTIVE:
        return Verdict(InstanceEvent.INIT, why)
    not_serving = _why_not_serving(instance)
    return Verdict(InstanceEvent.ABNORMAL, not_serving) if not_serving else None


def all_heard(instance: Instance) -> bool:
    """Of those who take part; when a controller has just started it knows only what was kept of them."""
    return all(member.observation is not None for member in instance.members if member.in_epoch)


def abnormal_endpoints(instance: Instance) -> str | None:
    """In words, those that are ABNORMAL in the present epoch and boot."""
    found = [
        f"endpoint {id_} on {member.address} is abnormal"
        for member in instance.members
        if (seen := member.observation) and member.in_epoch
        if seen.epoch == instance.epoch or not member.tells_epoch
        for id_ in seen.abnormal
    ]
    return ", ".join(found) or None


def why_not_ready(instance: Instance, now: float, settings: InstanceSettings) -> str | None:
    """None only if C6 allows ACTIVE: every member fresh, of this epoch and boot, all endpoints NORMAL."""
    if not_serving := _why_not_serving(instance):
        return not_serving
    stale = [m for m in instance.members if now - m.last_heard > settings.fresh_sec]
    return f"the heartbeats of {_addresses(stale)} stay away" if stale else None


def _why_not_serving(instance: Instance) -> str | None:
    """The part of C6 that does not change with time alone."""
    if not instance.complete:
        return f"{len(instance.members)} of {instance.spec.nnodes} members"
    for member in instance.members:
        if not member.in_epoch and instance.held:
            return str(instance.held)
        if not member.in_epoch:
            return f"{member.address} restarted and has not been started since"
        if member.last_heard < instance.abandoned_at:
            return f"{member.address} has not been heard of since its relaunch was given up"
        ids = endpoint_ids(instance, member)
        if why := why_not_normal(member, member.observation, instance.epoch, ids):
            return why
    return None


def _addresses(members: list[Member]) -> str:
    return ", ".join(member.address for member in members)
