"""One logical model replica over its pods: its facts and its state machine.

The states and the table of transitions are the reference system's (research/inference-fault-tolerance 5.3);
on top stands C6 of design 4. Who may be a member is `assembly`'s, what its members' observations
say about it `verdict`'s; how a gang is relaunched is `relaunch`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.model.fault import Fault
from controller.model.member import InstanceKey, Member, MemberKey, Observation, observed, same_boot
from supervisor.wire import ParallelConfig, Step


class InstanceStatus(StrEnum):
    INITIAL = "initial"
    ACTIVE = "active"
    INACTIVE = "inactive"
    DELETED = "deleted"


class InstanceEvent(StrEnum):
    INIT = "init"
    NORMAL = "normal"
    ABNORMAL = "abnormal"
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"


TRANSITIONS: dict[InstanceStatus, dict[InstanceEvent, InstanceStatus]] = {
    InstanceStatus.INITIAL: {
        InstanceEvent.INIT: InstanceStatus.INITIAL,
        InstanceEvent.NORMAL: InstanceStatus.ACTIVE,
        InstanceEvent.ABNORMAL: InstanceStatus.INACTIVE,
        InstanceEvent.HEARTBEAT_TIMEOUT: InstanceStatus.DELETED,
    },
    InstanceStatus.ACTIVE: {
        InstanceEvent.INIT: InstanceStatus.ACTIVE,
        InstanceEvent.NORMAL: InstanceStatus.ACTIVE,
        InstanceEvent.ABNORMAL: InstanceStatus.INACTIVE,
        InstanceEvent.HEARTBEAT_TIMEOUT: InstanceStatus.INACTIVE,
    },
    InstanceStatus.INACTIVE: {
        InstanceEvent.INIT: InstanceStatus.INITIAL,
        InstanceEvent.NORMAL: InstanceStatus.ACTIVE,
        InstanceEvent.ABNORMAL: InstanceStatus.INACTIVE,
        InstanceEvent.HEARTBEAT_TIMEOUT: InstanceStatus.DELETED,
    },
    InstanceStatus.DELETED: dict.fromkeys(InstanceEvent, InstanceStatus.DELETED),
}


@dataclass(frozen=True, slots=True)
class GangSpec:
    """What all members must agree on."""

    model_name: str
    role: str
    nnodes: int
    parallel: ParallelConfig
    endpoints_per_node: int
    config_digest: str | None = None
    one_server: bool = False
    """Only the engine of node rank 0 serves."""

    @property
    def first_serves_alone(self) -> bool:
        """So it is too where a data-parallel rank stands on several nodes."""
        return self.one_server or self.parallel.dp_size < self.nnodes

    def serves(self, node_rank: int) -> bool:
        """Whether requests can be sent to the engine of that node."""
        return node_rank == 0 or not self.first_serves_alone


class Holder(StrEnum):
    """Who keeps an instance from being started, which says what ends it."""

    OPERATOR = "operator"
    """Until an operator releases it."""
    BUDGET = "budget"
    """Until an operator resets it, or a new configuration comes."""
    FLEET = "fleet"
    """Too many others failed at the same time, or a bug of ours would break its runs again and again: until an operator
    resets or releases it."""


@dataclass(frozen=True, slots=True)
class Hold:
    by: Holder
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Instance:
    """Exists from the first registration on; ids are never reused, the epoch goes on per key."""

    id: int
    key: InstanceKey
    spec: GangSpec
    members: tuple[Member, ...]
    """In rank order; fewer than spec.nnodes while it is being assembled."""
    epoch: int = 0
    """Of the last start; 0 before the first."""
    highest_epoch: int = 0
    """Ever commanded or reported; the next run takes one more."""
    status: InstanceStatus = InstanceStatus.INITIAL
    since: float = 0.0
    """When it came into this status."""
    reason: str = ""
    """Why it is in this status, in words."""
    held: Hold | None = None
    """Why it is assembled but not started, and has no engines."""
    terminating: str = ""
    """Why it ends, from an operator's word until its run has closed and it is DELETED."""
    abandoned_epoch: int | None = None
    """An operator gave the relaunch of this epoch's engines up."""
    abandoned_at: float = 0.0
    """What was seen before says nothing of the engines that this relaunch may have stopped."""
    last_registration_at: float = 0.0
    faults: tuple[Fault, ...] = ()
    """Of its devices: present until they are reported healthy, or until the pod is another."""
    prev_strategy_failed: str = ""
    """A strategy that was to do without new engines failed, in words; until one succeeds (S08)."""
    scaled_to: int | None = None
    """Data-parallel ranks that the engines of this epoch were shrunk to."""
    served_epoch: int = 0
    """The last in which it was ACTIVE and others were told so; goes on per key."""
    outdated: str = ""
    """Whom its engines may remember that is no more, in words; until others are started."""

    @property
    def complete(self) -> bool:
        return len(self.members) == self.spec.nnodes and not any(m.superseded for m in self.members)

    @property
    def separated(self) -> str:
        """Why a device keeps it out of routing, in words; "" if none does."""
        return ", ".join(fault.message for fault in self.faults if fault.separates and not self._is_spared(fault))

    @property
    def model(self) -> tuple[str, str]:
        """Whose instances serve together, as routers see it: namespace and name. Those without a name are of one."""
        return self.key.namespace, self.spec.model_name

    def member(self, key: MemberKey) -> Member | None:
        return next((member for member in self.members if member.key == key), None)

    def _is_spared(self, fault: Fault) -> bool:
        """Its ranks were shrunk away: nothing runs on that device any more."""
        member = self.member(fault.identity.member)
        return self.scaled_to is not None and member is not None and ranks(self, member).start >= self.scaled_to


def kept(instance: Instance) -> Instance:
    """What outlives a controller: not what was seen of the members, which is old when it is read."""
    members = tuple(replace(member, observation=None, unreachable_since=None) for member in instance.members)
    return replace(instance, members=members)


@dataclass(frozen=True, slots=True)
class Verdict:
    event: InstanceEvent
    reason: str


def transition(instance: Instance, verdict: Verdict, now: float) -> Instance:
    """The table's next status; `since` moves only when the status does. A separated instance is never NORMAL."""
    if verdict.event is InstanceEvent.NORMAL and (separated := instance.separated):
        verdict = Verdict(InstanceEvent.ABNORMAL, separated)
    status = TRANSITIONS[instance.status][verdict.event]
    if status is instance.status:
        return instance if status is InstanceStatus.DELETED else replace(instance, reason=verdict.reason)
    changed = replace(instance, status=status, since=now, reason=verdict.reason)
    # What was given up has come up by itself: its next death is one like any other.
    return replace(changed, abandoned_epoch=None) if status is InstanceStatus.ACTIVE else changed


def endpoint_ids(instance: Instance, member: Member) -> tuple[int, ...]:
    """They count over all members by rank, so that they are unique in the instance."""
    count = instance.spec.endpoints_per_node
    return tuple(range(member.node_rank * count, (member.node_rank + 1) * count))


def ranks(instance: Instance, member: Member) -> range:
    """The data-parallel ranks on its node; one rank may stand on several nodes."""
    dp_size, nnodes = instance.spec.parallel.dp_size, instance.spec.nnodes
    first = member.node_rank * dp_size // nnodes
    return range(first, max(first + 1, (member.node_rank + 1) * dp_size // nnodes))


def observe(instance: Instance, key: MemberKey, observation: Observation) -> Instance:
    """A member was heard, by heartbeat or by a direct answer."""
    highest = max(instance.highest_epoch, observation.epoch)
    heard = _with_member(instance, key, lambda member: observed(member, observation))
    if heard != instance and all(member.unreachable_since is not None for member in instance.members):
        heard = _to_be_asked_again(heard)
    if _relaunched_alone(heard, key) or _serves_in(heard, observation.epoch):
        heard = replace(heard, epoch=observation.epoch)
    return replace(heard, highest_epoch=highest)


def heard_again(instance: Instance, key: MemberKey, observation: Observation) -> Instance:
    """As `observe`, for an observation that is no news (`silence.is_no_news`)."""
    return _with_member(instance, key, lambda member: observed(member, observation))


def answered(instance: Instance, key: MemberKey, observation: Observation, asked_at: float) -> Instance:
    """A member's own answer; what it has said of itself since it was asked may be newer, though it came first."""
    member = instance.member(key)
    return instance if member is None or member.last_heard > asked_at else observe(instance, key, observation)


def _to_be_asked_again(instance: Instance) -> Instance:
    """Nobody could be reached: it was our own path that was cut, and what was asked meanwhile proves nothing."""
    members = tuple(replace(member, unreachable_since=None) for member in instance.members)
    return replace(instance, members=members)


def _relaunched_alone(instance: Instance, key: MemberKey) -> bool:
    """Its only member relaunched its engine while nobody could be told (design 3, Arbiter): that epoch counts."""
    member = instance.member(key)
    if instance.spec.nnodes != 1 or member is None or not member.in_epoch or member.observation is None:
        return False
    seen = member.observation
    return seen.epoch > instance.epoch and seen.step is Step.DONE and seen.run_id is None


def _serves_in(instance: Instance, epoch: int) -> bool:
    """All of it, and that later epoch was begun by a controller whose store was set back since (F18)."""
    return (
        epoch > instance.epoch
        and instance.complete
        and all(
            member.in_epoch
            and (seen := member.observation)
            and (seen.epoch, seen.normal) == (epoch, True)
            and seen.step in (Step.IDLE, Step.DONE)
            for member in instance.members
        )
    )


def unreachable(instance: Instance, key: MemberKey, now: float) -> Instance:
    """A member that was to be asked directly did not answer."""
    return _with_member(instance, key, lambda member: replace(member, unreachable_since=now))


def begin_epoch(instance: Instance, epoch: int, lives: Mapping[MemberKey, str | None]) -> Instance:
    """EpochBegins of a run: these lives, by their boot ids, take part in `epoch`.

    Nobody starts a member that has joined since the run decided so.
    """
    members = tuple(replace(member, in_epoch=_is_among(member, lives)) for member in instance.members)
    highest = max(instance.highest_epoch, epoch)
    return replace(instance, epoch=epoch, highest_epoch=highest, members=members, scaled_to=None, outdated="")


def epoch_commanded(instance: Instance, epoch: int) -> Instance:
    """A run has named it to supervisors, which refuse a lower one from then on."""
    return replace(instance, highest_epoch=max(instance.highest_epoch, epoch))


def reconfigure(instance: Instance, config_digest: str, instead_of: GangSpec) -> Instance:
    """ConfigurationTaken of a run. A gang that has started over with yet another keeps that."""
    if instance.spec != instead_of:
        return instance
    return replace(instance, spec=replace(instance.spec, config_digest=config_digest))


def abandon(instance: Instance, now: float) -> Instance:
    """EpochAbandoned of a run."""
    return replace(instance, abandoned_epoch=instance.epoch, abandoned_at=now)


def hold(instance: Instance, held: Hold) -> Instance:
    """InstanceHeld of a run, or an operator."""
    return replace(instance, held=held)


def release(instance: Instance, reason: str) -> Instance:
    """By an operator."""
    return replace(instance, held=None, abandoned_epoch=None, reason=reason)


def leave_epoch(instance: Instance, keys: Collection[MemberKey]) -> Instance:
    """EpochLeft of a run: the engines of these members belong to no epoch any more."""
    members = tuple(replace(member, in_epoch=False) if member.key in keys else member for member in instance.members)
    return replace(instance, members=members)


def strand(instance: Instance, keys: Collection[MemberKey]) -> Instance:
    """MembersStranded of a run: until a new life of theirs registers, or this one is heard of."""
    members = tuple(replace(member, stranded=True) if member.key in keys else member for member in instance.members)
    return replace(instance, members=members)


def activate(instance: Instance, reason: str, now: float) -> Instance:
    """InstanceActive of a run."""
    return transition(instance, Verdict(InstanceEvent.NORMAL, reason), now)


def deactivate(instance: Instance, reason: str, now: float) -> Instance:
    """InstanceInactive of a run."""
    return transition(instance, Verdict(InstanceEvent.ABNORMAL, reason), now)


def terminate(instance: Instance, reason: str) -> Instance:
    """An operator's word: it is DELETED as soon as no run is open."""
    return replace(instance, terminating=reason)


def delete(instance: Instance, reason: str, now: float) -> Instance:
    """By an operator's terminate; no way leads back."""
    return replace(instance, status=InstanceStatus.DELETED, since=now, reason=reason)


def _is_among(member: Member, lives: Mapping[MemberKey, str | None]) -> bool:
    return member.key in lives and same_boot(lives[member.key], member.boot_id)


def _with_member(instance: Instance, key: MemberKey, change: Callable[[Member], Member]) -> Instance:
    members = tuple(change(member) if member.key == key else member for member in instance.members)
    return replace(instance, members=members)
