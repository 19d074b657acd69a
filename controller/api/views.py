"""Instances as tools see them (design 3, JSON that tools rely on); runs have `model.relaunch.view`."""

from __future__ import annotations

from collections.abc import Callable

from controller.entry import Entry
from controller.model.member import Member
from controller.model.need import waits_for
from controller.recovery import Recovery
from supervisor.wire import (
    EndpointStatus,
    InstanceEndpointView,
    InstanceView,
    MemberView,
    RecoveryView,
    Step,
)


def instance_view(entry: Entry, now: float, to_wall: Callable[[float], str]) -> InstanceView:
    instance = entry.instance
    return InstanceView(
        id=instance.id,
        job_name=instance.key.job_name,
        model_name=instance.spec.model_name,
        role=instance.spec.role,
        status=instance.status,
        epoch=instance.epoch,
        supervisors=tuple(_member(member, now) for member in instance.members),
        endpoints=tuple(view for member in instance.members for view in _endpoints(entry, member)),
        recovery=_recovery(entry.recovery, to_wall) if entry.recovery else None,
        namespace=instance.key.namespace,
        reason=_reason(entry),
        held=str(instance.held) if instance.held else None,
        held_by=instance.held.by if instance.held else None,
    )


def _reason(entry: Entry) -> str:
    """Why it is in its status, or what it waits for; a refused registration may be who is missing."""
    waiting = waits_for(entry.instance) if entry.recovery is None else None
    refused = f"; refused: {entry.refused}" if entry.refused and not entry.instance.complete else ""
    return (waiting or entry.instance.reason) + refused


def _member(member: Member, now: float) -> MemberView:
    seen = member.observation
    return MemberView(
        pod_ip=member.ip,
        port=member.port,
        node_rank=member.node_rank,
        boot_id=member.boot_id,
        heartbeat_age_sec=round(now - member.last_heard, 3),
        freeze_remaining_sec=seen.freeze_remaining_sec if seen else 0.0,
        step=seen.step if seen else Step.IDLE,
        epoch=seen.epoch if seen else 0,
    )


def _endpoints(entry: Entry, member: Member) -> list[InstanceEndpointView]:
    spec, seen = entry.instance.spec, member.observation
    first = member.node_rank * spec.endpoints_per_node
    statuses = seen.statuses if seen else {}
    return [
        InstanceEndpointView(
            id=id_,
            ip=member.ip,
            port=int(port),
            status=status,
            headless=not spec.serves(member.node_rank),
            role=spec.role,
            model_name=spec.model_name,
            bootstrap_port=member.bootstrap_port,
            ready=status is EndpointStatus.NORMAL,
        )
        for id_, port in enumerate(member.business_ports, first)
        # Before its first placement a pod counts its endpoints from 0.
        for status in [statuses.get(id_, statuses.get(id_ - first, EndpointStatus.INITIAL))]
    ]


def _recovery(recovery: Recovery, to_wall: Callable[[float], str]) -> RecoveryView:
    return RecoveryView(
        strategy=recovery.strategy,
        run_id=recovery.run_id,
        step=recovery.step,
        since=to_wall(recovery.since),
    )
