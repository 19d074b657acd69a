"""What a unit file declares, as frozen values.

Names are systemd's where systemd has the thing (systemd.unit(5), systemd.service(5), systemd.exec(5)) and
Kubernetes' for probes. Strings are still unexpanded here (`${VAR}` stands as written): `expand.py` replaces
variables when a unit is launched. Durations are seconds; `math.inf` is "infinity".

Reading files lives in `parse.py`; what a unit *does* lives in `machine.py` and in `supervisor.service`.
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path

import msgspec


class ServiceType(StrEnum):
    """When a unit counts as started (systemd.service(5) Type=)."""

    EXEC = "exec"
    ONESHOT = "oneshot"
    NOTIFY = "notify"
    EXTERNAL = "external"
    """No process of ours, only probes: a store in another pod."""


class RestartPolicy(StrEnum):
    NO = "no"
    ALWAYS = "always"
    ON_SUCCESS = "on-success"
    ON_FAILURE = "on-failure"
    ON_ABNORMAL = "on-abnormal"
    ON_ABORT = "on-abort"
    ON_WATCHDOG = "on-watchdog"


class StartLimitAction(StrEnum):
    """What happens to the supervisor when a unit hits its start limit."""

    NONE = "none"
    EXIT = "exit"
    """The supervisor exits 255: the container restarts."""
    EXIT_SUCCESS = "exit-success"


class KillMode(StrEnum):
    MIXED = "mixed"
    CONTROL_GROUP = "control-group"
    PROCESS = "process"


class ExitType(StrEnum):
    MAIN = "main"
    CGROUP = "cgroup"
    """The unit lives as long as any of its processes."""


class NotifyAccess(StrEnum):
    """To whom of a unit's processes is listened on its NOTIFY_SOCKET."""

    ALL = "all"
    MAIN = "main"


class OnDependencyRestart(StrEnum):
    IGNORE = "ignore"
    RESTART = "restart"


class LivenessAction(StrEnum):
    REPORT = "report"
    RESTART = "restart"
    NONE = "none"


class Command(msgspec.Struct, frozen=True):
    """One argument array; never a shell string."""

    argv: tuple[str, ...]
    ignore_failure: bool = False
    """A leading `-` in the file: its failure does not fail the unit."""


class HttpCheck(msgspec.Struct, frozen=True):
    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    expect_status: tuple[tuple[int, int], ...] = ((200, 399),)
    """Inclusive ranges."""
    expect_body: str | None = None
    """Regular expression searched in the body."""


class TcpCheck(msgspec.Struct, frozen=True):
    address: str
    """HOST:PORT or [V6]:PORT."""
    send: str | None = None
    expect: str | None = None
    """Regular expression searched in the first bytes of the answer."""


class ExecCheck(msgspec.Struct, frozen=True):
    command: Command


class LogLineCheck(msgspec.Struct, frozen=True):
    pattern: str
    """Regular expression; passed for good once a line of this invocation matches."""


Check = HttpCheck | TcpCheck | ExecCheck | LogLineCheck


class Probe(msgspec.Struct, frozen=True):
    """One of Kubernetes' three probes; times in seconds."""

    check: Check
    period_sec: float = 1.0
    timeout_sec: float = 1.0
    failure_threshold: int = 3
    success_threshold: int = 1
    initial_delay_sec: float = 0.0


class Canary(msgspec.Struct, frozen=True):
    """A probe with real work, sent only while the engine does none."""

    enabled: bool = True
    check: HttpCheck | None = None
    """None: the launcher's."""
    timeout_sec: float = 30.0
    failure_threshold: int = 2
    idle_sec: float = 10.0
    requests: int | None = None
    """A round; None: the number of ranks behind the port."""
    rank_header: str | None = None
    """The launcher's: the HTTP header that says which of these ranks, from 0, is to work; None: the server chooses."""


class Probes(msgspec.Struct, frozen=True):
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None
    liveness_action: LivenessAction | None = None
    """None: `report` for coordinated engines, `restart` otherwise."""
    canary: Canary | None = None


class RestartSettings(msgspec.Struct, frozen=True):
    """The restart rule: back-off and start limit (design 2)."""

    policy: RestartPolicy = RestartPolicy.ON_FAILURE
    delay_sec: float = 0.1
    steps: int = 8
    max_delay_sec: float = 30.0
    jitter: float = 0.1
    reset_sec: float = 60.0
    """After so long in health the next restart is immediate again."""
    limit_burst: int = 5
    limit_interval_sec: float | None = None
    """None is `auto`: max(10 min, 10 x the longest start seen), so that it binds for slow loaders too."""
    limit_action: StartLimitAction | None = None
    """None: `exit` for engines with RestartWith=local, `none` otherwise."""
    success_exit_status: tuple[int | str, ...] = (0,)
    """Codes and signal names beside the clean signals (SIGHUP, SIGINT, SIGTERM, SIGPIPE)."""
    prevent_exit_status: tuple[int | str, ...] = ()
    force_exit_status: tuple[int | str, ...] = ()


class StopSettings(msgspec.Struct, frozen=True):
    """The stop ladder."""

    kill_mode: KillMode = KillMode.MIXED
    kill_signal: str = "SIGTERM"
    final_kill_signal: str = "SIGKILL"
    send_sigkill: bool = True
    timeout_sec: float = 30.0
    abort_timeout_sec: float | None = None
    """None: as `timeout_sec`."""
    relaunch_timeout_sec: float = 3.0
    """The grace in prepare, restart and after a crash: survivors of a broken gang hang. 1 for engines."""


class StartSettings(msgspec.Struct, frozen=True):
    timeout_sec: float = 90.0
    """`inf` for oneshots, 3600 for engines."""
    stall_sec: float | None = None
    """Give up a start after so long without progress; 300 for engines, None elsewhere."""
    cpu_only_sec: float = 900.0
    """CPU time alone extends a start only so far."""


class ResourceLimit(msgspec.Struct, frozen=True):
    """One LimitX= key, e.g. name `NOFILE`; `math.inf` is unlimited; None leaves that half as it is."""

    name: str
    soft: float | None
    hard: float | None


class Execution(msgspec.Struct, frozen=True):
    """systemd.exec(5): in which surroundings the process runs."""

    working_directory: str | None = None
    user: str | None = None
    group: str | None = None
    supplementary_groups: tuple[str, ...] = ()
    umask: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    environment_files: tuple[str, ...] = ()
    """A leading `-`: may be absent."""
    pass_environment: tuple[str, ...] = ()
    unset_environment: tuple[str, ...] = ()
    credentials: tuple[tuple[str, str], ...] = ()
    """(name, path), used as ${CREDENTIAL:name}."""
    limits: tuple[ResourceLimit, ...] = ()
    nice: int | None = None
    oom_score_adjust: int | None = None
    cpu_affinity: frozenset[int] | None = None
    io_scheduling_class: str | None = None


class Logging(msgspec.Struct, frozen=True):
    stdout: str | None = None
    """`pass`, `prefix`, `json`, `null` or `file:PATH`; None: `pass` for an only unit, else `prefix`."""
    stderr: str | None = None
    """None: as stdout."""
    rate_limit_interval_sec: float = 0.0
    rate_limit_burst: int = 0
    """0: off."""
    rotate_size: int = 50_000_000
    rotate_keep: int = 5
    tail_bytes: int = 256 * 1024


class Service(msgspec.Struct, frozen=True):
    type: ServiceType = ServiceType.EXEC
    exec_start: Command | None = None
    exec_start_pre: tuple[Command, ...] = ()
    exec_start_post: tuple[Command, ...] = ()
    exec_stop: tuple[Command, ...] = ()
    exec_stop_post: tuple[Command, ...] = ()
    remain_after_exit: bool = False
    exit_type: ExitType = ExitType.MAIN
    notify_access: NotifyAccess = NotifyAccess.ALL
    watchdog_sec: float | None = None
    watchdog_signal: str = "SIGABRT"
    restart: RestartSettings = msgspec.field(default_factory=RestartSettings)
    stop: StopSettings = msgspec.field(default_factory=StopSettings)
    start: StartSettings = msgspec.field(default_factory=StartSettings)
    execution: Execution = msgspec.field(default_factory=Execution)
    logging: Logging = msgspec.field(default_factory=Logging)


class Launcher(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_SERVER = "llama-server"
    EXEC = "exec"


class RestartWith(StrEnum):
    COORDINATED = "coordinated"
    """An engine's death is reported and the gang is relaunched by the controller."""
    LOCAL = "local"
    """The unit's own restart policy, in place."""


class EngineStart(StrEnum):
    AUTO = "auto"
    CONTROLLER = "controller"


class DataParallel(StrEnum):
    NONE = "none"
    INTERNAL = "internal"
    HYBRID = "hybrid"
    EXTERNAL = "external"


class Repeat(tuple[str, ...]):
    """`{ repeat = […] }` in [Engine.Args]: the flag once per value."""

    __slots__ = ()


ArgValue = str | int | float | bool | tuple[str, ...] | Repeat | dict[str, object]


class Engine(msgspec.Struct, frozen=True):
    """What makes a unit an engine: a native inference server's whole process tree on this pod."""

    launcher: Launcher = Launcher.EXEC
    model: str | None = None
    served_model_names: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Replaces the launcher's program."""
    args: tuple[tuple[str, ArgValue], ...] = ()
    extra_args: tuple[str, ...] = ()
    data_parallel: DataParallel = DataParallel.NONE
    local_ranks: int | None = None
    bootstrap_port: int = 8998
    role: str | None = None
    endpoints: int = 1
    endpoint_number: int = 0
    """Which of them this unit is; counted in this pod (`unit/endpoints.py`)."""
    declared_by: str = ""
    """The name of the file that makes it and its siblings; not a key."""
    base_port: int = 10000
    mgmt_port: int | None = None
    devices_per_endpoint: int | None = None
    visible_devices_variable: str | None = None
    start: EngineStart | None = None
    """None: `controller` when a controller is configured, else `auto`."""
    start_after: tuple[str, ...] = ()
    """`tcp://HOST:PORT` or `http://…`, waited for before exec within the start deadline."""
    diagnose_exec: Command | None = None
    device_health_probe: Command | None = None
    restart_with: RestartWith | None = None
    """None: `coordinated` when a controller is configured, else `local`."""
    critical_processes: tuple[str, ...] = ()
    """fnmatch patterns of descendants whose death is the engine's death."""
    recover_http: HttpCheck | None = None
    recover_exec: Command | None = None
    restore_exec: Command | None = None
    shared_memory_patterns: tuple[str, ...] = ()
    ports_to_free: tuple[int, ...] = ()
    lock_patterns: tuple[str, ...] = ()
    device_memory_probe: str | Command | None = None

    @property
    def recovers(self) -> bool:
        """It can be asked to recover without a restart."""
        return self.recover_http is not None or self.recover_exec is not None


class Conditions(msgspec.Struct, frozen=True):
    """[Unit] Condition…=: not met means the unit is skipped, not failed (systemd.unit(5))."""

    node_rank: int | None = None
    environment: tuple[str, ...] = ()
    path_exists: tuple[str, ...] = ()


class RestartRule(msgspec.Struct, frozen=True):
    """OnDependencyRestart=: for every dependency, or for some by name."""

    everyone: OnDependencyRestart = OnDependencyRestart.IGNORE
    by_name: tuple[tuple[str, OnDependencyRestart], ...] = ()

    def of(self, name: str) -> OnDependencyRestart:
        return dict(self.by_name).get(name, self.everyone)


class Dependencies(msgspec.Struct, frozen=True):
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    binds_to: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    on_restart: RestartRule = RestartRule()


class Unit(msgspec.Struct, frozen=True):
    """One declared thing to run, from one unit file and its drop-ins."""

    name: str
    source: Path
    description: str = ""
    documentation: tuple[str, ...] = ()
    dependencies: Dependencies = msgspec.field(default_factory=Dependencies)
    conditions: Conditions = msgspec.field(default_factory=Conditions)
    service: Service = msgspec.field(default_factory=Service)
    probes: Probes = msgspec.field(default_factory=Probes)
    engine: Engine | None = None


INFINITY = math.inf
