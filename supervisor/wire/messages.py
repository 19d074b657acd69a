"""What supervisors and the controller say to each other (design 7).

Field names are those of the reference system (MindIE-PyMotor, June 2026), so that either side can be swapped against
it; the fields below the comment "ours" are optional and ignored by an unextended peer. Times on the wire are RFC 3339
UTC with milliseconds, durations are seconds, signals are names.
"""

from __future__ import annotations

import msgspec

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

FEATURES = ("prepare", "epoch", "orders", "hold")


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    device_id: str
    rank_id: str
    device_ip: str | None = None
    super_device_id: str | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process tree's serving identity; `id` is its data-parallel rank."""

    id: int
    ip: str
    business_port: str
    mgmt_port: str
    status: EndpointStatus = EndpointStatus.INITIAL
    device_infos: tuple[DeviceInfo, ...] = ()
    headless: bool = False
    """It serves nobody itself: the endpoint of node rank 0 does, for an engine that spans nodes."""
    # ours
    ranks: tuple[int, int] | None = None
    """First data-parallel rank and their number; absent where the id is the rank."""
    bootstrap_port: str | None = None
    role: str | None = None
    model_name: str | None = None
    ready: bool = False


class ParallelConfig(msgspec.Struct, frozen=True, kw_only=True):
    dp_size: int = 1
    pcp_size: int = 1
    tp_size: int = 1
    ep_size: int = 1
    pp_size: int = 1
    world_size: int = 1
    local_world_size: int = 1


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

    job_name: str
    model_name: str
    role: str
    pod_ip: str
    nm_port: str
    parallel_config: ParallelConfig = ParallelConfig()
    enable_multi_endpoints: bool = True
    device_num: int = 0
    nnodes: int = 1
    # ours
    enable_engine_relaunch: bool = True
    freeze_sec: float | None = None
    """`engine_restart_freeze_sec` of this supervisor."""
    namespace: str = "default"
    pod_name: str | None = None
    pod_uid: str | None = None
    boot_id: str | None = None
    """Of one supervisor process: tells a container restart from a network fault."""
    node_index: int | None = None
    bootstrap_port: str | None = None
    rendezvous_ports: str | None = None
    """`FIRST-LAST`; a block of them for each epoch (`rendezvous.py`)."""
    one_server: bool = False
    """Node rank 0 alone serves, though other nodes hold whole data-parallel ranks."""
    config_digest: str | None = None
    """All members of an instance must have the same; a new one brings a new budget."""
    version: str | None = None
    protocol: int | None = None
    features: tuple[str, ...] = ()
    """What this peer knows beyond the reference system: FEATURES; and `recover`, if its unit can."""
    previous_container: str | None = None
    """`killed`: the container before did not end in order."""
    epoch: int = 0
    """The highest seen here, so that a controller without memory never commands a lower one."""
    term: int = 0


class RegisterMsg(SupervisorIdentity, frozen=True, kw_only=True):
    business_port: tuple[str, ...]
    mgmt_port: tuple[str, ...]
    ranktable: Ranktable | None = None
    held: str | None = None
    """Why the gang is held, for a controller that does not know it any more."""


class ReregisterMsg(SupervisorIdentity, frozen=True, kw_only=True):
    """When the controller forgot a supervisor whose engines of an epoch still run; never after a new boot."""

    instance_id: int
    endpoints: tuple[Endpoint, ...]
    node_rank: int = 0
    freeze_remaining_sec: float = 0.0


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that travels in an answer, for when the other direction is cut."""

    order: str
    """An OrderKind, or one of a newer controller."""
    term: int = 0
    run_id: str | None = None
    boot_id: str | None = None
    reason: str | None = None


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: int = 0
    term: int = 0
    message: str = "registered"


class HeartbeatMsg(msgspec.Struct, frozen=True, kw_only=True):
    job_name: str
    ins_id: int
    """0 until assembled."""
    ip: str
    status: dict[str, EndpointStatus]
    """By endpoint id (JSON object keys are text)."""
    # ours
    namespace: str = "default"
    nm_port: str | None = None
    pod_uid: str | None = None
    epoch: int = 0
    term: int = 0
    boot_id: str | None = None
    sequence: int = 0
    """Counts up in one boot, so that an overtaken heartbeat is known; 0: not told."""
    freeze_remaining_sec: float = 0.0
    relaunch_count: int = 0
    prepared: bool = False
    """The engine's dependencies are active, it is stopped and the gate has passed: it can be started."""
    step: Step = Step.IDLE
    run_id: str | None = None
    progress_age_sec: float | None = None
    """Since the loading engine last showed progress."""
    config_digest: str | None = None
    leaving: bool = False
    """This supervisor is on its way out."""
    drained: bool = False
    """Its engine was given the time to finish its requests, and was stopped."""
    gone: bool = False
    """The last word of a supervisor that leaves: nothing runs there any more."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    term: int = 0
    instance_id: int = 0
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
    exception_type: str
    exception_message: str
    engine_id: int
    engine_status: EngineHealth
    """2 (unhealthy) is advisory."""
    pod_ip: str
    additional_info: dict[str, str] | None = None
    # ours
    job_name: str | None = None
    namespace: str = "default"
    instance_id: int | None = None
    epoch: int | None = None
    term: int = 0
    boot_id: str | None = None
    pid: int | None = None
    exit: ExitInfo | None = None
    category: FaultCategory = FaultCategory.SOFTWARE
    """`hardware`: DeviceHealthProbe failed after the death; it must not be tried again in place."""


class FaultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    recovery: Recovery = Recovery.ENGINE_RELAUNCH
    """A peer that does not say counts as yes."""
    run_id: str | None = None
    term: int = 0
    orders: tuple[Order, ...] = ()


class HardwareFaultMsg(msgspec.Struct, frozen=True, kw_only=True):
    fault_code: int
    fault_level: str
    message: str = ""
    pod_ip: str | None = None
    node_name: str | None = None
    device: str | None = None


class TerminateInstanceMsg(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: int
    reason: str = ""


class StartCmdMsg(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engines of this pod stand in their gang."""

    job_name: str
    role: str
    instance_id: int
    endpoints: tuple[Endpoint, ...]
    """This pod's only."""
    master_dp_ip: str
    ranktable: Ranktable | None = None
    d2d_peer_ips: tuple[str, ...] | None = None
    node_rank: int = 0
    # ours
    epoch: int | None = None
    term: int = 0
    run_id: str | None = None
    nnodes: int = 1
    master_port: int | None = None
    """The first of this epoch's block of rendezvous ports, at `master_dp_ip`."""
    dp_size: int = 1
    node_addrs: tuple[str, ...] = ()
    """Addresses by node rank."""


class EngineRestartMsg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    action: Action
    instance_id: int | None = None
    # ours
    epoch: int | None = None
    term: int = 0
    run_id: str | None = None
    boot_id: str | None = None
    """The boot the sender means; another boot answers 409 wrong_boot."""
    start: StartCmdMsg | None = None
    """The new placement, already with `prepare`; its epoch must equal the outer one."""
    recovery: str | None = None
    """With `recover`: which one is meant, as `token_reinference` or `uce`; RecoverExec is told."""
    fault_code: int | None = None
    """With `recover`: of the fault that it answers; RecoverExec is told."""
    reason: str | None = None


class StopMsg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    term: int = 0
    instance_id: int | None = None
    epoch: int | None = None
    boot_id: str | None = None
    run_id: str | None = None
    reason: str | None = None


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """200 of engine-restart, start and stop."""

    step: Step
    epoch: int
    term: int
    boot_id: str
    run_id: str | None = None
    message: str = ""
    will_exit: bool | None = None
    """Answer to abort: whether the arbiter now ends this supervisor (its engine is dead or prepared)."""
    recovery: RecoveryState | None = None
    """Answer to recover."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every 4xx/5xx body of both programs."""

    error: ErrorCode
    message: str
    step: Step | None = None
    term: int | None = None
    epoch: int | None = None
    boot_id: str | None = None
    category: FaultCategory | None = None
    """Of what `failed`, where that is known: `hardware` if DeviceHealthProbe failed."""
    leader: str | None = None
    """With `not_leader`: the URL of the controller that leads, if that is known."""


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    step: Step
    since: str
    run_id: str | None = None
    epoch: int = 0
    error: str | None = None
    category: FaultCategory | None = None
    """Of the error."""


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
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
    instance_id: int = 0
    epoch: int = 0
    boot_id: str | None = None
    term: int = 0
    freeze_remaining_sec: float = 0.0
    relaunch_count: int = 0
    operation: OperationView | None = None
    endpoints: tuple[EndpointView, ...] = ()
    prepared: bool = False
    config_digest: str | None = None
    leaving: bool = False
    drained: bool = False
