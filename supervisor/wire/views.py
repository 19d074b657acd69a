"""JSON that people's tools rely on (design 3): more fields may be added, none of these change."""

from __future__ import annotations

import msgspec

from supervisor.wire.messages import ErrorBody
from supervisor.wire.vocabulary import EndpointStatus, Step


class ExitView(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    code: int | None
    signal: str | None
    asked: bool
    cause: str
    uptime_sec: float
    at: str
    asked_by: str | None = None
    epoch: int | None = None
    oom_killed: bool = False
    core_dumped: bool = False
    log_tail: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    """What DiagnoseExec said, if the engine was sick when it was stopped."""
    boot_id: str | None = None
    """Of the supervisor in an earlier container; None: of this one."""


class UnitView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    state: str
    sub_state: str
    pid: int | None
    since: str
    restarts: int
    description: str = ""
    reason: str = ""
    """Why the unit is where it is, in words."""
    epoch: int | None = None
    next_restart_in_sec: float | None = None
    last_exit: ExitView | None = None
    uptime_sec: float | None = None
    changed: tuple[str, ...] = ()
    """Keys in which its file differs from what is in force, held back by `podvisor reload`."""
    message: str = ""
    """What was done beyond this unit, and what undoes it: in the answer to a change of a gang's engine."""


class ExitsView(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/units/NAME/exits`: the last ones, newest first."""

    exits: tuple[ExitView, ...]
    unit: str = ""


class SupervisorView(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    version: str
    boot_id: str
    uptime_sec: float
    freeze_remaining_sec: float = 0.0
    relaunch_count: int = 0
    instance_id: int | None = None
    epoch: int | None = None
    step: Step = Step.IDLE
    arbiter_count: int = 0
    controller: str | None = None
    """The controller's URL and whether it answers, for people."""
    previous_container: str | None = None
    """`killed`: the container before this one did not end in order."""
    leaving: str | None = None
    """Who asked that this pod leaves: it takes no more requests, and is to end."""


class UnitsView(msgspec.Struct, frozen=True, kw_only=True):
    units: tuple[UnitView, ...]
    supervisor: SupervisorView


class KeyChangeView(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """`Service.ExecStart`"""
    takes: str
    """nothing|restart: what it takes to apply."""


class UnitReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload makes, or would make, of one unit."""

    name: str
    change: str
    """added|removed|changed|unchanged"""
    action: str
    """start|stop|restart|apply|hold|nothing"""
    keys: tuple[KeyChangeView, ...] = ()
    reason: str = ""


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/reload`"""

    dry_run: bool
    units: tuple[UnitReloadView, ...]
    settings: tuple[str, ...] = ()
    """Keys of podvisor.toml that differ from those in force; a reload does not apply them."""
    survivors: tuple[str, ...] = ()
    """What was to stop and is not gone."""


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    line: int | None
    key: str
    message: str


class ProblemsBody(ErrorBody, frozen=True, kw_only=True):
    """422: wrong files. `message` has all of it as text."""

    problems: tuple[ProblemView, ...]


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    kind: str
    """binds-to|requires|part-of|on-dependency-restart|after|wants|conflicts: as `source` says it of `target`."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    state: str | None = None
    """None where it is drawn from files."""


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/graph`, in the order in which the units start."""

    units: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    pod_ip: str
    port: int
    node_rank: int
    boot_id: str | None
    heartbeat_age_sec: float
    freeze_remaining_sec: float
    step: Step = Step.IDLE
    epoch: int = 0


class InstanceEndpointView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    ip: str
    port: int
    status: EndpointStatus
    pid: int | None = None
    headless: bool = False
    role: str | None = None
    model_name: str | None = None
    bootstrap_port: str | None = None
    ready: bool = False


class RecoveryView(msgspec.Struct, frozen=True, kw_only=True):
    strategy: str
    run_id: str
    step: str
    since: str


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    job_name: str
    model_name: str
    role: str
    status: str
    epoch: int
    supervisors: tuple[MemberView, ...]
    endpoints: tuple[InstanceEndpointView, ...]
    recovery: RecoveryView | None = None
    namespace: str = "default"
    reason: str = ""
    """Why it is in this status, in words (missing members, held, …)."""
    held: str | None = None
    """Why it is not started, in words; None: it is not held."""
    held_by: str | None = None
    """operator|budget|fleet"""


class InstancesView(msgspec.Struct, frozen=True, kw_only=True):
    instances: tuple[InstanceView, ...]
    last_event: str = "0"
    """What to ask `GET /v1/events` for `since`: it then tells all that changes after this answer."""


class RunStepView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    started_at: str
    ended_at: str | None = None
    error: str | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    instance_id: int
    epoch: int
    reason: str
    outcome: str | None
    """None while it runs; done|phase2|aborted|obsolete|recovered_itself|held, and failed of other strategies."""
    phase: int
    steps: tuple[RunStepView, ...]
    supervisors: tuple[str, ...]
    message: str = ""
    namespace: str = "default"
    job_name: str = ""
    strategy: str = "engine_relaunch"


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /leader`: what this controller is, and who leads as far as it knows."""

    role: str
    """`leader` or `standby`."""
    term: int | None
    """The leader's."""
    leader: str | None
    """Its URL; None: nobody leads, or nobody knows."""


class Reason(msgspec.Struct, frozen=True):
    """The body, if any, of what an operator asks for."""

    reason: str = ""


class Said(msgspec.Struct, frozen=True):
    """A body for people."""

    message: str


class RelaunchBegun(msgspec.Struct, frozen=True, kw_only=True):
    """What `podvisor relaunch` has brought about."""

    message: str
    run_id: str | None = None
    """Of the gang's run; None where the engine was relaunched here, without a controller."""


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """What `podvisor drain` has brought about."""

    message: str


class RelaunchesView(msgspec.Struct, frozen=True, kw_only=True):
    relaunches: tuple[RunView, ...]
