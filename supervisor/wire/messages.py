"""What supervisors and the controller say to each other (design 7).

Field names are those of the reference system (MindIE-PyMotor, June 2026), so that either side can be swapped against
it; the fields below the comment "ours" are optional and ignored by an unextended peer. Times on the wire are RFC 3339
UTC with milliseconds, durations are seconds, signals are names.
"""

from __future__ import annotations

import msgspec

from supervisor.wire.bounds import Count, EndpointId, Name, Port, Ports, Seconds, Word
from supervisor.wire.vocabulary import (
    Action,
    EndpointStatus,
    EngineHealth,
    ErrorCode,
    FaultCategory,
    Recovery,
    RecoveryState,
    Step,
)

PROTOCOL = 1
"""Raised when a message changes its meaning; absent on the wire means the reference system's form."""

FEATURES = ("prepare", "epoch", "orders", "hold", "reload")


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    device_id: str
    rank_id: str
    device_ip: str | None = None
    super_device_id: str | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process tree's serving identity; `id` is its data-parallel rank."""

    id: Count
    ip: Word
    business_port: Port
    mgmt_port: Port
    status: EndpointStatus = EndpointStatus.INITIAL
    device_infos: tuple[DeviceInfo, ...] = ()
    headless: bool = False
    """It serves nobody itself: the endpoint of node rank 0 does, for an engine that spans nodes."""
    # ours
    ranks: tuple[Count, Count] | None = None
    """First data-parallel rank and their number; absent where the id is the rank."""
    bootstrap_port: Port | None = None
    role: Word | None = None
    model_name: Word | None = None
    ready: bool = False


class ParallelConfig(msgspec.Struct, frozen=True, kw_only=True):
    dp_size: Count = 1
    pcp_size: Count = 1
    tp_size: Count = 1
    ep_size: Count = 1
    pp_size: Count = 1
    world_size: Count = 1
    local_world_size: Count = 1


class RanktableServer(msgspec.Struct, frozen=True, kw_only=True):
    server_id: str
    container_ip: str
    device: tuple[DeviceInfo, ...] = ()


class Ranktable(msgspec.Struct, frozen=True, kw_only=True):
    version: str = "1.0"
    status: str = "completed"
    server_count: str = "0"
    server_list: tuple[RanktableServer, ...] = ()


class SupervisorIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a supervisor is: the fields that register and reregister share."""

    job_name: Name
    model_name: Word
    role: Word
    pod_ip: Word
    nm_port: Port
    parallel_config: ParallelConfig = ParallelConfig()
    enable_multi_endpoints: bool = True
    device_num: Count = 0
    nnodes: Count = 1
    # ours
    enable_engine_relaunch: bool = True
    freeze_sec: float | None = None
    """`engine_restart_freeze_sec` of this supervisor."""
    namespace: Name = "default"
    pod_name: Word | None = None
    pod_uid: Word | None = None
    node_name: Word | None = None
    """The machine's, by which `report_hardware_fault` may mean all of its pods."""
    boot_id: Word | None = None
    """Of one supervisor process: tells a container restart from a network fault."""
    node_index: Count | None = None
    bootstrap_port: Port | None = None
    rendezvous_ports: Word | None = None
    """`FIRST-LAST`; a block of them for each epoch (`rendezvous.py`)."""
    one_server: bool = False
    """Node rank 0 alone serves, though other nodes hold whole data-parallel ranks."""
    config_digest: Word | None = None
    """All members of an instance must have the same; a new one brings a new budget."""
    version: Word | None = None
    protocol: Count | None = None
    features: tuple[str, ...] = ()
    """What this peer knows beyond the reference system: FEATURES; and `recover`, if its unit can."""
    previous_container: Word | None = None
    """`killed`: the container before did not end in order."""
    epoch: Count = 0
    """The highest seen here, so that a controller without memory never commands a lower one."""
    term: Count = 0


class RegisterMsg(SupervisorIdentity, frozen=True, kw_only=True):
    business_port: Ports
    mgmt_port: Ports
    ranktable: Ranktable | None = None
    held: str | None = None
    """Why the gang is held, for a controller that does not know it any more."""


class ReregisterMsg(SupervisorIdentity, frozen=True, kw_only=True):
    """When the controller forgot a supervisor whose engines of an epoch still run; never after a new boot."""

    instance_id: Count
    endpoints: tuple[Endpoint, ...]
    node_rank: Count = 0
    freeze_remaining_sec: float = 0.0


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that travels in an answer, for when the other direction is cut."""

    order: str
    """An OrderKind, or one of a newer controller."""
    term: Count = 0
    run_id: str | None = None
    boot_id: str | None = None
    reason: str | None = None


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: Count = 0
    term: Count = 0
    message: str = "registered"


class HeartbeatMsg(msgspec.Struct, frozen=True, kw_only=True):
    job_name: Name
    ins_id: Count
    """0 until assembled."""
    ip: Word
    status: dict[EndpointId, EndpointStatus]
    """By endpoint id."""
    # ours
    namespace: Name = "default"
    nm_port: Port | None = None
    pod_uid: Word | None = None
    epoch: Count = 0
    term: Count = 0
    boot_id: Word | None = None
    sequence: Count = 0
    """Counts up in one boot, so that an overtaken heartbeat is known; 0: not told."""
    freeze_remaining_sec: float = 0.0
    relaunch_count: Count = 0
    prepared: bool = False
    """The engine's dependencies are active, it is stopped and the gate has passed: it can be started."""
    step: Step = Step.IDLE
    run_id: Word | None = None
    progress_age_sec: float | None = None
    """Since the loading engine last showed progress."""
    config_digest: Word | None = None
    leaving: bool = False
    """This supervisor is on its way out."""
    drained: bool = False
    """Its engine was given the time to finish its requests, and was stopped."""
    gone: bool = False
    """The last word of a supervisor that leaves: nothing runs there any more."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    term: Count = 0
    instance_id: Count = 0
    run_id: str | None = None
    """The open run of the instance: hearing it restarts the freeze's silence clock."""
    instance_status: str | None = None
    """initial|active|inactive|deleted: a pod is ready only while its whole instance serves."""
    drain: str | None = None
    """Why this member's engine, which takes the requests, is to finish them and stop: another member leaves."""
    released: bool = False
    """Nobody needs this leaving member's engine any more."""
    orders: tuple[Order, ...] = ()


class ExitInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: int | None = None
    signal: str | None = None
    cause: str = ""


class SoftwareFaultMsg(msgspec.Struct, frozen=True, kw_only=True):
    exception_type: Word
    exception_message: str
    engine_id: Count
    engine_status: EngineHealth
    """2 (unhealthy) is advisory."""
    pod_ip: Word
    additional_info: dict[str, str] | None = None
    # ours
    job_name: Name | None = None
    namespace: Name = "default"
    instance_id: Count | None = None
    epoch: Count | None = None
    term: Count = 0
    boot_id: Word | None = None
    pid: Count | None = None
    exit: ExitInfo | None = None
    category: FaultCategory = FaultCategory.SOFTWARE
    """`hardware`: DeviceHealthProbe failed after the death; it must not be tried again in place."""


class FaultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    recovery: Recovery = Recovery.ENGINE_RELAUNCH
    """A peer that does not say counts as yes."""
    run_id: str | None = None
    term: Count = 0
    orders: tuple[Order, ...] = ()
    strategy: str | None = None
    """The recovery that is under way, by its name."""
    wait_sec: Seconds = 0.0
    """So long the recovery lets others go first: the freeze is to last longer by that."""


class HardwareFaultMsg(msgspec.Struct, frozen=True, kw_only=True):
    fault_code: Count
    fault_level: Word
    message: str = ""
    pod_ip: Word | None = None
    node_name: Word | None = None
    device: Word | None = None


class TerminateInstanceMsg(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: Count
    reason: str = ""


class StartCmdMsg(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engines of this pod stand in their gang."""

    job_name: str
    role: str
    instance_id: Count
    endpoints: tuple[Endpoint, ...]
    """This pod's only."""
    master_dp_ip: str
    ranktable: Ranktable | None = None
    d2d_peer_ips: tuple[str, ...] | None = None
    node_rank: Count = 0
    # ours
    epoch: Count | None = None
    term: Count = 0
    run_id: str | None = None
    nnodes: Count = 1
    master_port: Count | None = None
    """The first of this epoch's block of rendezvous ports, at `master_dp_ip`."""
    dp_size: Count = 1
    node_addrs: tuple[str, ...] = ()
    """Addresses by node rank."""


class EngineRestartMsg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    action: Action
    instance_id: Count | None = None
    # ours
    epoch: Count | None = None
    term: Count = 0
    run_id: str | None = None
    boot_id: str | None = None
    """The boot the sender means; another boot answers 409 wrong_boot."""
    start: StartCmdMsg | None = None
    """The new placement, already with `prepare`; its epoch must equal the outer one."""
    config_digest: str | None = None
    """With `prepare`: what `reload` has said, to be taken in force; without it the engine keeps what it had."""
    recovery: str | None = None
    """With `recover`: which one is meant, as `token_reinference` or `uce`; RecoverExec is told."""
    fault_code: Count | None = None
    """With `recover`: of the fault that it answers; RecoverExec is told."""
    reason: str | None = None


class StopMsg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    term: Count = 0
    instance_id: Count | None = None
    epoch: Count | None = None
    boot_id: str | None = None
    run_id: str | None = None
    reason: str | None = None


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """200 of engine-restart, start and stop."""

    step: Step
    epoch: Count
    term: Count
    boot_id: str
    run_id: str | None = None
    message: str = ""
    will_exit: bool | None = None
    """Answer to abort: whether the arbiter now ends this supervisor (its engine is dead or prepared)."""
    recovery: RecoveryState | None = None
    """Answer to recover."""
    config_digest: str | None = None
    """Answer to reload: of what the files say now."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every 4xx/5xx body of both programs."""

    error: ErrorCode
    message: str
    step: Step | None = None
    term: Count | None = None
    epoch: Count | None = None
    boot_id: str | None = None
    category: FaultCategory | None = None
    """Of what `failed`, where that is known: `hardware` if DeviceHealthProbe failed."""
    leader: str | None = None
    """With `not_leader`: the URL of the controller that leads, if that is known."""


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    step: Step
    since: str
    run_id: str | None = None
    epoch: Count = 0
    error: str | None = None
    category: FaultCategory | None = None
    """Of the error."""


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    id: Count
    status: EndpointStatus
    state: str
    """The unit's sub_state."""
    pid: int | None = None
    uptime_sec: float | None = None
    progress_age_sec: float | None = None


class NodeManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /node-manager/status`."""

    status: bool
    """True only if there are endpoints and every one is NORMAL."""
    # ours
    instance_id: Count = 0
    epoch: Count = 0
    boot_id: str | None = None
    term: Count = 0
    freeze_remaining_sec: float = 0.0
    relaunch_count: Count = 0
    operation: OperationView | None = None
    endpoints: tuple[EndpointView, ...] = ()
    prepared: bool = False
    config_digest: str | None = None
    leaving: bool = False
    drained: bool = False
