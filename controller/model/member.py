"""One supervisor as a member of an instance: who it is, where it is, what was last seen of it.

How members come together is `assembly`'s, what follows from what was seen is `instance`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from supervisor.wire import EndpointStatus, HeartbeatMsg, NodeManagerStatus, Ranktable, Step


@dataclass(frozen=True, slots=True, order=True)
class InstanceKey:
    namespace: str
    job_name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.job_name}"


@dataclass(frozen=True, slots=True, order=True)
class MemberKey:
    """Outlives containers and pods (design 8, Identity)."""

    namespace: str
    job_name: str
    node: str
    """`#3` for node index 3, else the pod's name, else its address."""

    @property
    def instance(self) -> InstanceKey:
        return InstanceKey(self.namespace, self.job_name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.job_name}/{self.node}"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a member said of itself, in a heartbeat or in an answer to `status`."""

    received_at: float
    epoch: int
    """0: an unextended peer, or one that was never started."""
    boot_id: str | None
    normal: bool
    """It has endpoints and every one is NORMAL."""
    statuses: Mapping[int, EndpointStatus]
    """By endpoint id; empty if only `normal` is known."""
    step: Step = Step.IDLE
    run_id: str | None = None
    prepared: bool = False
    freeze_remaining_sec: float = 0.0
    progress_age_sec: float | None = None
    leaving: bool = False
    drained: bool = False
    gone: bool = False
    sequence: int = 0

    @property
    def abnormal(self) -> tuple[int, ...]:
        return tuple(id_ for id_, status in self.statuses.items() if status is EndpointStatus.ABNORMAL)


@dataclass(frozen=True, slots=True)
class Member:
    """`observation` is of this life only: a registration in a new boot clears it."""

    key: MemberKey
    ip: str
    port: int
    node_rank: int
    registered_at: float
    business_ports: tuple[str, ...]
    mgmt_ports: tuple[str, ...]
    boot_id: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    node_name: str | None = None
    """The machine's, by which device faults may be reported."""
    node_index: int | None = None
    bootstrap_port: str | None = None
    rendezvous_ports: str | None = None
    features: tuple[str, ...] = ()
    previous_container: str | None = None
    """How the container before ended, if not in order, as its successor says."""
    ranktable: Ranktable | None = None
    observation: Observation | None = None
    in_epoch: bool = False
    """This life takes part in the instance's current epoch; false until it was told to start."""
    superseded: bool = False
    """A newer boot was seen, but refused: this life is over and nobody has taken its place yet."""
    unreachable_since: float | None = None
    """It was asked directly, because its heartbeats stay away, and did not answer."""
    stranded: bool = False
    """Phase 2 has waited for it in vain: its container did not restart, and it was not heard of since."""

    @property
    def address(self) -> str:
        """For people and URLs: `10.0.0.2:1026`, `[fd00::2]:1026`."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        """Its address without a port, as URLs have it."""
        return f"[{self.ip}]" if ":" in self.ip else self.ip

    @property
    def knows_prepare(self) -> bool:
        """Else it has only the seed's `restart` and `abort`."""
        return "prepare" in self.features

    @property
    def tells_epoch(self) -> bool:
        return "epoch" in self.features

    @property
    def knows_hold(self) -> bool:
        return "hold" in self.features

    @property
    def knows_reload(self) -> bool:
        return "reload" in self.features

    @property
    def last_heard(self) -> float:
        return self.observation.received_at if self.observation else self.registered_at

    @property
    def leaving(self) -> bool:
        return self.observation is not None and self.observation.leaving

    @property
    def gone(self) -> bool:
        """It has left, and said so: its silence is no news."""
        return self.observation is not None and self.observation.gone


def seen_in_heartbeat(message: HeartbeatMsg, now: float) -> Observation:
    statuses = {int(id_): status for id_, status in message.status.items()}
    return Observation(
        received_at=now,
        epoch=message.epoch,
        boot_id=message.boot_id,
        normal=all_normal(statuses),
        statuses=statuses,
        step=message.step,
        run_id=message.run_id,
        prepared=message.prepared,
        freeze_remaining_sec=message.freeze_remaining_sec,
        progress_age_sec=message.progress_age_sec,
        leaving=message.leaving,
        drained=message.drained,
        gone=message.gone,
        sequence=message.sequence,
    )


def seen_in_status(message: NodeManagerStatus, now: float) -> Observation:
    """The slowest loading endpoint's progress counts for the member."""
    ages = [view.progress_age_sec for view in message.endpoints if view.progress_age_sec is not None]
    operation = message.operation
    return Observation(
        received_at=now,
        epoch=message.epoch,
        boot_id=message.boot_id,
        normal=message.status,
        statuses={view.id: view.status for view in message.endpoints},
        step=operation.step if operation else Step.IDLE,
        run_id=operation.run_id if operation else None,
        prepared=message.prepared,
        freeze_remaining_sec=message.freeze_remaining_sec,
        progress_age_sec=max(ages, default=None),
        leaving=message.leaving,
        drained=message.drained,
    )


def all_normal(statuses: Mapping[int, EndpointStatus]) -> bool:
    """An empty table is not normal: nothing serves there."""
    return bool(statuses) and all(status is EndpointStatus.NORMAL for status in statuses.values())


def same_boot(known: str | None, told: str | None) -> bool:
    """An unextended peer tells no boot id, which proves nothing."""
    return known is None or told is None or known == told


def observed(member: Member, observation: Observation) -> Member:
    """`member` as last seen; an observation of another boot or an overtaken one changes nothing."""
    if not same_boot(member.boot_id, observation.boot_id):
        return member
    previous = member.observation
    if previous and 0 < observation.sequence < previous.sequence:
        return member
    if observation.sequence == 0 and previous:
        observation = replace(observation, sequence=previous.sequence)
    return replace(member, observation=observation, unreachable_since=None, stranded=False)


def why_not_normal(member: Member, seen: Observation | None, epoch: int, ids: tuple[int, ...]) -> str | None:
    """None only if `seen` is of this boot and epoch and shows every endpoint of `ids` NORMAL (C5, F1).

    An unextended peer tells neither, so its word has to do.
    """
    if seen is None:
        return f"{member.address} has not been heard of yet"
    if not same_boot(member.boot_id, seen.boot_id):
        return f"{member.address} is in another boot"
    if member.tells_epoch and seen.epoch != epoch:
        return f"{member.address} is in epoch {seen.epoch}, not {epoch}"
    for id_ in ids if seen.statuses else ():
        status = seen.statuses.get(id_)
        if status is not EndpointStatus.NORMAL:
            return f"endpoint {id_} on {member.address} is {status or 'not reported'}"
    return None if seen.normal else f"{member.address} reports an endpoint that is not normal"
