"""How registrations become an instance: who may join, at which rank (design 5, 8).

What one message says for itself is `registration`'s; where each member's engines then stand, `placement`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from controller.model.instance import GangSpec, Hold, Holder, Instance, InstanceStatus, hold
from controller.model.member import InstanceKey, Member, MemberKey
from controller.model.registration import difference, malformed, member_of, spec_of
from controller.model.settings import InstanceSettings
from supervisor.wire import ErrorCode, RegisterMsg, ReregisterMsg


class Life(StrEnum):
    """What a registration means for the life of a member."""

    NEW = "new"
    """Not known before."""
    SAME = "same"
    """The same boot again: its registration, or our answer to it, was lost."""
    NEW_BOOT = "new_boot"
    """The container restarted: the old life is over (tell an open run `Registered`)."""


@dataclass(frozen=True, slots=True)
class Joined:
    instance: Instance
    member: MemberKey
    life: Life
    place: MemberKey
    """Whose place it has taken, which is how an open run knows it; `member` itself but for recreated pods."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Answered 409 (400 when MALFORMED); the message names both values.

    `instance` is given if the old life of a known member was seen to be over, which counts although its new
    life may not join yet; `superseded` then names the member (tell an open run `Registered`).
    """

    code: ErrorCode
    message: str
    instance: Instance | None = None
    superseded: MemberKey | None = None


def instance_key(message: RegisterMsg | ReregisterMsg) -> InstanceKey:
    return InstanceKey(message.namespace, message.job_name)


def find_member(
    instance: Instance, *, ip: str, port: str | None, pod_uid: str | None = None, boot_id: str | None = None
) -> Member | None:
    """Whose heartbeat or report this is: by boot id, else pod uid, else address.

    A known address with an unknown boot id is that member in another boot, which the caller has to compare.
    """
    if boot_id and (found := [m for m in instance.members if m.boot_id == boot_id]):
        return found[0]
    if pod_uid and (found := [m for m in instance.members if m.pod_uid == pod_uid]):
        return found[0]
    found = [m for m in instance.members if m.ip == ip and (port is None or str(m.port) == port)]
    return found[0] if found else None


def register(
    instance: Instance | None, message: RegisterMsg, *, now: float, new_id: int, settings: InstanceSettings
) -> Joined | Rejected:
    """A supervisor that has just booted.

    `instance` is the newest of this key, also if it is DELETED, so that the epoch goes on; `new_id` is used
    only if one has to be made.
    """
    if problem := malformed(message, message.business_port, message.mgmt_port):
        return Rejected(ErrorCode.MALFORMED, problem)
    spec = spec_of(message, len(message.business_port))
    member = member_of(message, message.business_port, message.mgmt_port, now)
    if instance is None or instance.status is InstanceStatus.DELETED:
        return _held_as_told(_first(instance, member, spec, message.epoch, now, new_id), message.held)
    return _held_as_told(_join(instance, member, spec, message.epoch, now, settings), message.held)


def _held_as_told(joined: Joined | Rejected, reason: str | None) -> Joined | Rejected:
    """Only a controller that has lost its memory learns so that an instance is held."""
    if isinstance(joined, Rejected) or reason is None or joined.instance.held:
        return joined
    return replace(joined, instance=hold(joined.instance, Hold(Holder.OPERATOR, reason)))


def reregister(
    instance: Instance | None, message: ReregisterMsg, *, now: float, new_id: int, settings: InstanceSettings
) -> Joined | Rejected:
    """A supervisor whose engines run, after the controller forgot it: it is taken over as it is.

    So is one whose engines were started without a controller, and so belong to no instance yet (instance_id 0).
    `instance` and `new_id` as in `register`. Refused as STALE_EPOCH, it has to stop its engines and register anew.
    """
    business = tuple(endpoint.business_port for endpoint in message.endpoints)
    mgmt = tuple(endpoint.mgmt_port for endpoint in message.endpoints)
    if problem := malformed(message, business, mgmt):
        return Rejected(ErrorCode.MALFORMED, problem)
    spec = spec_of(message, len(message.endpoints))
    member = replace(member_of(message, business, mgmt, now), node_rank=message.node_rank, in_epoch=message.epoch > 0)
    alone = message.instance_id == 0
    if instance is None or (alone and instance.status is InstanceStatus.DELETED):
        return _adopt(instance, member, spec, message, now, new_id if alone else message.instance_id)
    if problem := _outdated(instance, message):
        return Rejected(ErrorCode.STALE_EPOCH, problem)
    joined = _join(instance, member, spec, message.epoch, now, settings)
    if isinstance(joined, Rejected) or message.epoch == instance.epoch:
        return joined
    return replace(joined, instance=_into_epoch(joined.instance, member.key, message.epoch))


def missing(instance: Instance) -> str:
    """For people: `2 of 4 members: node 1, node 3 missing`; "" if complete."""
    here = {member.node_rank for member in instance.members if not member.superseded}
    gone = [f"node {rank}" for rank in range(instance.spec.nnodes) if rank not in here]
    return f"{len(here)} of {instance.spec.nnodes} members: {', '.join(gone)} missing" if gone else ""


def _first(previous: Instance | None, member: Member, spec: GangSpec, epoch: int, now: float, new_id: int) -> Joined:
    instance = Instance(
        id=new_id,
        key=member.key.instance,
        spec=spec,
        members=(replace(member, node_rank=member.node_index or 0),),
        highest_epoch=max(epoch, previous.highest_epoch if previous else 0),
        served_epoch=previous.served_epoch if previous else 0,
        since=now,
        last_registration_at=now,
    )
    return Joined(replace(instance, reason=missing(instance)), member.key, Life.NEW, member.key)


def _adopt(
    previous: Instance | None, member: Member, spec: GangSpec, message: ReregisterMsg, now: float, instance_id: int
) -> Joined:
    instance = Instance(
        id=instance_id,
        key=member.key.instance,
        spec=spec,
        members=(member,),
        epoch=message.epoch,
        highest_epoch=max(message.epoch, previous.highest_epoch if previous else 0),
        served_epoch=previous.served_epoch if previous else 0,
        since=now,
        reason="taken over with running engines",
        last_registration_at=now,
    )
    return Joined(instance, member.key, Life.NEW, member.key)


def _join(
    instance: Instance, member: Member, spec: GangSpec, epoch: int, now: float, settings: InstanceSettings
) -> Joined | Rejected:
    known = instance.member(member.key)
    life = Life.NEW if known is None else _life(known, member)
    others = tuple(m for m in instance.members if m.key != member.key)
    living = [m for m in others if _lives(m, now, settings)]
    if differing := difference(instance.spec, spec):
        if living:
            return _reject(instance, member, life, f"{differing}, as {living[0].address} has registered")
        return _start_over(instance, member, spec, life, epoch, now)
    if known is None and len(instance.members) >= spec.nnodes:
        replaced = next((m for m in others if not _lives(m, now, settings)), None)
        if replaced is None:
            return _reject(instance, member, life, f"all {spec.nnodes} members are here and alive")
        return _seat(instance, replaced, member, Life.NEW_BOOT, epoch, now)
    if known is not None:
        return _seat(instance, known, member, life, epoch, now)
    seated = _seated(instance, member)
    if isinstance(seated, str):
        return _reject(instance, member, life, seated)
    return Joined(_with_members(instance, seated, epoch, now), member.key, Life.NEW, member.key)


def _seat(instance: Instance, old: Member, new: Member, life: Life, epoch: int, now: float) -> Joined:
    """`new` takes the rank of `old`; the same life keeps what was seen of it."""
    seated = replace(new, node_rank=old.node_rank)
    if life is Life.SAME:
        seated = replace(seated, observation=old.observation, in_epoch=old.in_epoch or new.in_epoch)
    members = tuple(seated if member.key == old.key else member for member in instance.members)
    return Joined(_with_members(instance, members, epoch, now), new.key, life, old.key)


def _start_over(instance: Instance, member: Member, spec: GangSpec, life: Life, epoch: int, now: float) -> Joined:
    """Nobody of the old configuration lives: a rollout begins (design 8, Rollouts)."""
    held = instance.held if instance.held and instance.held.by is Holder.OPERATOR else None
    fresh = replace(instance, spec=spec, members=(), held=held, abandoned_epoch=None)
    seated = replace(member, node_rank=member.node_index or 0)
    return Joined(_with_members(fresh, (seated,), epoch, now), member.key, life, member.key)


def _with_members(instance: Instance, members: tuple[Member, ...], epoch: int, now: float) -> Instance:
    changed = replace(
        instance,
        members=tuple(sorted(members, key=lambda member: member.node_rank)),
        highest_epoch=max(instance.highest_epoch, epoch),
        last_registration_at=now,
    )
    if changed.complete and not instance.complete:
        return replace(changed, reason=f"all {len(members)} members have registered")
    return replace(changed, reason=missing(changed) or instance.reason)


def _reject(instance: Instance, member: Member, life: Life, why: str) -> Rejected:
    message = f"{member.address} cannot join {instance.key}: {why}"
    known = instance.member(member.key)
    if known is None or life is not Life.NEW_BOOT:
        return Rejected(ErrorCode.CONFLICT, message)
    over = replace(known, superseded=True, stranded=False)
    members = tuple(over if m == known else m for m in instance.members)
    return Rejected(ErrorCode.CONFLICT, message, replace(instance, members=members, reason=message), member.key)


def _life(known: Member, told: Member) -> Life:
    """An unextended peer tells no boot id; once it takes part in an epoch, it registers only after a boot."""
    if known.boot_id and told.boot_id:
        return Life.SAME if known.boot_id == told.boot_id else Life.NEW_BOOT
    if known.pod_uid and told.pod_uid and known.pod_uid != told.pod_uid:
        return Life.NEW_BOOT
    return Life.NEW_BOOT if known.in_epoch and not told.in_epoch else Life.SAME


def _lives(member: Member, now: float, settings: InstanceSettings) -> bool:
    silent = now - member.last_heard > settings.heartbeat_timeout_active_sec
    return not (member.superseded or member.leaving or silent)


def _seated(instance: Instance, member: Member) -> tuple[Member, ...] | str:
    """With `member` at its node index, at the rank its engines run with, else at the lowest free; words if it is taken.

    Who sits there by order alone moves on, as long as it runs no engine: with peers that tell no index, the order in
    which pods come up must not decide whether they come together.
    """
    taken = {m.node_rank: m for m in instance.members}
    free = next(rank for rank in range(len(taken) + 1) if rank not in taken)
    wanted = member.node_rank if member.in_epoch else member.node_index
    holder = None if wanted is None else taken.get(wanted)
    if holder is None:
        return (*instance.members, replace(member, node_rank=free if wanted is None else wanted))
    if holder.node_index is not None or holder.in_epoch:
        return f"its node rank {wanted} is that of {holder.address} ({holder.key.node})"
    others = tuple(m for m in instance.members if m != holder)
    return (*others, replace(holder, node_rank=free), replace(member, node_rank=holder.node_rank))


def _into_epoch(instance: Instance, key: MemberKey, epoch: int) -> Instance:
    """A member came further than the others with engines: unknown at their next heartbeat, they register again.

    Those that are behind then give their engines up; kept as members, they would run them on, and nobody would ask.
    """
    members = tuple(m for m in instance.members if m.key == key or not m.in_epoch)
    return replace(instance, epoch=epoch, members=members)


def _outdated(instance: Instance, message: ReregisterMsg) -> str | None:
    if instance.status is InstanceStatus.DELETED:
        return f"instance {message.instance_id} is deleted ({instance.reason}): stop the engines, register anew"
    alone = message.instance_id == 0
    if alone and instance.spec.nnodes == 1:
        return None  # nobody else runs engines of this key, whatever epoch it had when its life before was known
    if not alone and message.instance_id != instance.id:
        return (
            f"{instance.key} is instance {instance.id} by now, not {message.instance_id}:"
            " stop the engines and register anew"
        )
    if message.epoch < instance.epoch:
        return (
            f"{instance.key} is in epoch {instance.epoch}, your engines in {message.epoch}: stop them and register anew"
        )
    return None
