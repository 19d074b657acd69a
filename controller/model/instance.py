"""One logical model replica over its pods: its facts and its state machine.

The states and the table of transitions are the reference system's (research/inference-fault-tolerance 5.3);
on top stands C6 of design 4. Who may be a member is `assembly`'s; how a gang is relaunched is `relaunch`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from controller.model.member import InstanceKey, Member, MemberKey, Observation, observed
from controller.model.settings import InstanceSettings
from supervisor.wire import ParallelConfig


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
    held: bool = False
    last_registration_at: float = 0.0

    @property
    def complete(self) -> bool:
        return len(self.members) == self.spec.nnodes and not any(m.superseded for m in self.members)

    def member(self, key: MemberKey) -> Member | None:
        return next((member for member in self.members if member.key == key), None)


@dataclass(frozen=True, slots=True)
class Verdict:
    event: InstanceEvent
    reason: str


@dataclass(frozen=True, slots=True)
class AskDirectly:
    """Their heartbeats stay away: ask for their status before that counts as a time-out."""

    members: tuple[MemberKey, ...]


def transition(instance: Instance, verdict: Verdict, now: float) -> Instance:
    """The table's next status; `since` moves only when the status does."""
    status = TRANSITIONS[instance.status][verdict.event]
    if status is instance.status:
        return instance if status is InstanceStatus.DELETED else replace(instance, reason=verdict.reason)
    return replace(instance, status=status, since=now, reason=verdict.reason)


def judge(
    instance: Instance, run_open: bool, now: float, settings: InstanceSettings
) -> Verdict | AskDirectly | None:
    """What the members' last observations say about the instance; None: nothing new.

    While a run is open it alone decides between ACTIVE and INACTIVE (C6), so only the silence of all counts.
    Call it after every heartbeat and once a second.
    """
    raise NotImplementedError


def why_not_ready(instance: Instance, now: float, settings: InstanceSettings) -> str | None:
    """None only if C6 allows ACTIVE: every member fresh, of this epoch and boot, all endpoints NORMAL."""
    raise NotImplementedError


def observe(instance: Instance, key: MemberKey, observation: Observation) -> Instance:
    """A member was heard, by heartbeat or by a direct answer."""
    raise NotImplementedError


def unreachable(instance: Instance, key: MemberKey, now: float) -> Instance:
    """A member that was to be asked directly did not answer."""
    raise NotImplementedError


def begin_epoch(instance: Instance, epoch: int) -> Instance:
    """EpochBegins of a run: every member's present life takes part in `epoch`."""
    raise NotImplementedError


def activate(instance: Instance, reason: str, now: float) -> Instance:
    """InstanceActive of a run."""
    return transition(instance, Verdict(InstanceEvent.NORMAL, reason), now)


def deactivate(instance: Instance, reason: str, now: float) -> Instance:
    """InstanceInactive of a run, or of `leaving`."""
    return transition(instance, Verdict(InstanceEvent.ABNORMAL, reason), now)


def delete(instance: Instance, reason: str, now: float) -> Instance:
    """By an operator's terminate; no way leads back."""
    return replace(instance, status=InstanceStatus.DELETED, since=now, reason=reason)
