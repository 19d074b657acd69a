"""Every key of a unit file: how its value is read, where it goes in the model, one line for people.

This table is the single source for parsing, for `did you mean`, for the JSON Schema and for the reference
documentation. Names are systemd's (systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5)) and
Kubernetes' for probes. What a key has to do with other keys is in `cross_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from supervisor.unit import model
from supervisor.unit.probe_values import address, headers, peers, regular_expression, statuses, url
from supervisor.unit.process_values import (
    account,
    accounts,
    arguments,
    assignments,
    command,
    commands,
    cpus,
    credentials,
    device_memory_probe,
    exit_statuses,
    flags,
    output,
    resource_limit,
    signal_name,
    success_statuses,
    umask,
    unit_names,
    variable_name,
    variable_names,
)
from supervisor.unit.quantities import duration, size
from supervisor.unit.structs import build
from supervisor.unit.values import (
    Converter,
    boolean,
    either,
    integer,
    list_of,
    mapped,
    member_of,
    number,
    one_of,
    port,
    table_of,
    text,
    text_list,
    word,
    word_list,
)


class Key(msgspec.Struct, frozen=True):
    """One key and its value."""

    name: str
    target: str
    """The field of the table's struct; dots lead into nested structs."""
    convert: Converter[object]
    doc: str
    default: str = ""
    """For readers, where it is not simply the model's own."""
    appends: bool = False
    """The field is a tuple to which this key adds one item."""


class Table(msgspec.Struct, frozen=True):
    """A table whose keys together make one struct."""

    name: str
    target: str
    """The field of the enclosing struct."""
    struct: Callable[..., msgspec.Struct]
    doc: str
    entries: Mapping[str, Key | Table]
    required: tuple[str, ...] = ()
    shorthand: str | None = None
    """The key that is meant when a plain value stands in the table's place."""
    defaults: Mapping[str, object] = msgspec.field(default_factory=dict)
    """Of fields, where they are not the struct's own."""


def _entries(*entries: Key | Table) -> dict[str, Key | Table]:
    return {entry.name: entry for entry in entries}


_reaction = member_of(model.OnDependencyRestart)
_on_restart = either(
    mapped(_reaction, model.RestartRule),
    mapped(
        table_of(_reaction, "a table of them, one for each dependency"),
        lambda pairs: model.RestartRule(by_name=pairs),
    ),
)
_count = integer(1)
MAX_ENDPOINTS = 1024
"""Each is a unit of its own: a number by mistake must not use up all memory before it is refused for its ports."""
_interval = duration(0.001)

HTTP = _entries(
    Key("Url", "url", url, "what is asked"),
    Key("Method", "method", word, "HTTP method", "GET, or POST with a Body"),
    Key("Headers", "headers", headers, "headers of the request"),
    Key("Body", "body", text, "body of the request; application/json unless Headers say otherwise"),
    Key("ExpectStatus", "expect_status", statuses, "statuses that pass"),
    Key("ExpectBody", "expect_body", regular_expression, "searched in the answer's body"),
)
TCP = _entries(
    Key("Address", "address", address, "where to connect"),
    Key("Send", "send", text, "sent once connected"),
    Key("Expect", "expect", regular_expression, "searched in the first bytes of the answer"),
)

UNIT = _entries(
    Key("Description", "description", text, "one line for people"),
    Key("Documentation", "documentation", text_list, "where to read more"),
    Key("After", "dependencies.after", unit_names, "start only when these are active (order only)"),
    Key("Before", "dependencies.before", unit_names, "these start only when this unit is active"),
    Key("Requires", "dependencies.requires", unit_names, "started with this unit, which fails if they do"),
    Key("Wants", "dependencies.wants", unit_names, "started with this unit, which does not mind if they fail"),
    Key("BindsTo", "dependencies.binds_to", unit_names, "as Requires, and stopped whenever they stop"),
    Key("PartOf", "dependencies.part_of", unit_names, "stopped and restarted whenever they are"),
    Key("Conflicts", "dependencies.conflicts", unit_names, "never up together with these"),
    Key("ConditionNodeRank", "conditions.node_rank", integer(0), "skip the unit on every other rank"),
    Key("ConditionEnvironment", "conditions.environment", text_list,
        'skip the unit unless "NAME" is set or "NAME=value" holds; a leading ! negates'),
    Key("ConditionPathExists", "conditions.path_exists", text_list,
        "skip the unit unless the paths exist; a leading ! negates"),
    Key("OnDependencyRestart", "dependencies.on_restart", _on_restart,
        "what this unit does when a unit that it requires or comes after was relaunched", "ignore"),
)  # fmt: skip

_LIMITS = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NOFILE", "AS", "NPROC", "MEMLOCK", "LOCKS",
           "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME")  # fmt: skip

SERVICE = _entries(
    Key("Type", "type", member_of(model.ServiceType), "when the unit counts as started"),
    Key("ExecStart", "exec_start", command, "the main process"),
    Key("ExecStartPre", "exec_start_pre", commands, "run one after the other before ExecStart"),
    Key("ExecStartPost", "exec_start_post", commands, "run after the unit has started"),
    Key("ExecStop", "exec_stop", commands, "run to stop the unit, before KillSignal"),
    Key("ExecStopPost", "exec_stop_post", commands, "run after the unit has stopped, for whatever reason"),
    Key("RemainAfterExit", "remain_after_exit", boolean, "a oneshot stays active after a clean exit"),
    Key("ExitType", "exit_type", member_of(model.ExitType),
        "the unit ends with its main process, or with the last process of its tree"),
    Key("NotifyAccess", "notify_access", member_of(model.NotifyAccess),
        "whose notifications are taken: all processes' of the unit's tree, or the main one's alone"),
    Key("WatchdogSec", "watchdog_sec", _interval, "WATCHDOG=1 must come this often", "off"),
    Key("WatchdogSignal", "watchdog_signal", signal_name, "sent when it does not"),
    Key("Restart", "restart.policy", member_of(model.RestartPolicy), "after which ends the unit is restarted"),
    Key("RestartSec", "restart.delay_sec", duration(), "the first back-off"),
    Key("RestartSteps", "restart.steps", _count, "steps in which the back-off grows to its maximum"),
    Key("RestartMaxDelaySec", "restart.max_delay_sec", duration(), "the longest back-off"),
    Key("RestartJitter", "restart.jitter", number(0, 1), "the part of a back-off that is left to chance"),
    Key("RestartResetSec", "restart.reset_sec", duration(),
        "after so long in health the next restart is immediate"),
    Key("StartLimitBurst", "restart.limit_burst", integer(0), "starts allowed within the interval; 0: any"),
    Key("StartLimitIntervalSec", "restart.limit_interval_sec",
        either(mapped(one_of("auto"), lambda _: None), duration()),
        "the interval; auto is the larger of 10 min and 10 times the longest start seen", "auto"),
    Key("StartLimitAction", "restart.limit_action", member_of(model.StartLimitAction),
        "what the supervisor does at the limit", 'none; exit for engines with RestartWith = "local"'),
    Key("SuccessExitStatus", "restart.success_exit_status", success_statuses,
        "ends that are a success beside 0 and SIGHUP, SIGINT, SIGTERM, SIGPIPE"),
    Key("RestartPreventExitStatus", "restart.prevent_exit_status", exit_statuses, "ends without a restart"),
    Key("RestartForceExitStatus", "restart.force_exit_status", exit_statuses, "ends always with a restart"),
    Key("TimeoutStartSec", "start.timeout_sec", _interval, "the hard cap of a start"),
    Key("StartStallSec", "start.stall_sec", _interval, "give up a start after so long without progress"),
    Key("StartCpuOnlySec", "start.cpu_only_sec", _interval, "CPU time alone extends a start only so far"),
    Key("TimeoutStopSec", "stop.timeout_sec", duration(), "grace of a stop before FinalKillSignal"),
    Key("TimeoutAbortSec", "stop.abort_timeout_sec", duration(), "the same after WatchdogSignal",
        "TimeoutStopSec"),
    Key("RelaunchTimeoutStopSec", "stop.relaunch_timeout_sec", duration(),
        "the same in a relaunch of the gang and after a crash", "3s; 1s for engines; 0 for their followers"),
    Key("KillMode", "stop.kill_mode", member_of(model.KillMode), "which processes KillSignal goes to first"),
    Key("KillSignal", "stop.kill_signal", signal_name, "asks the unit to stop"),
    Key("FinalKillSignal", "stop.final_kill_signal", signal_name, "ends what did not stop in time"),
    Key("SendSIGKILL", "stop.send_sigkill", boolean, "whether FinalKillSignal is sent"),
    Key("WorkingDirectory", "execution.working_directory", word, "where the unit runs"),
    Key("User", "execution.user", account, "name or number; HOME, USER, LOGNAME and SHELL follow"),
    Key("Group", "execution.group", account, "name or number", "the user's"),
    Key("SupplementaryGroups", "execution.supplementary_groups", accounts, "further groups"),
    Key("UMask", "execution.umask", umask, "mode bits that new files do not get", "inherited"),
    Key("Environment", "execution.environment", assignments, "variables for the unit"),
    Key("EnvironmentFile", "execution.environment_files", word_list,
        "files of NAME=value lines; a leading - allows them to be absent"),
    Key("PassEnvironment", "execution.pass_environment", variable_names,
        "variables of the supervisor that the unit gets too"),
    Key("UnsetEnvironment", "execution.unset_environment", variable_names, "variables that it does not get"),
    Key("LoadCredential", "execution.credentials", credentials, "secrets, used as ${CREDENTIAL:name}"),
    *(Key(f"Limit{name}", "execution.limits", resource_limit(name), f"RLIMIT_{name} of setrlimit(2)",
          "inherited", appends=True) for name in _LIMITS),
    Key("Nice", "execution.nice", integer(-20, 19), "scheduling priority", "inherited"),
    Key("OOMScoreAdjust", "execution.oom_score_adjust", integer(-1000, 1000),
        "who goes first when memory runs out", "inherited"),
    Key("CPUAffinity", "execution.cpu_affinity", cpus, "CPUs to run on", "inherited"),
    Key("IOSchedulingClass", "execution.io_scheduling_class", one_of("realtime", "best-effort", "idle"),
        "priority for disks", "inherited"),
    Key("StandardOutput", "logging.stdout", output, "where the lines go", "prefix; pass for an only unit"),
    Key("StandardError", "logging.stderr", output, "where the lines go", "StandardOutput"),
    Key("LogRateLimitIntervalSec", "logging.rate_limit_interval_sec", duration(),
        "lines beyond the burst within it are dropped and counted; 0: none"),
    Key("LogRateLimitBurst", "logging.rate_limit_burst", integer(0), "lines allowed within the interval; 0: any"),
    Key("LogRotateSize", "logging.rotate_size", size(4096), "a log file of this size is rotated"),
    Key("LogRotateKeep", "logging.rotate_keep", integer(0), "rotated files that are kept"),
    Key("LogTailBytes", "logging.tail_bytes", size(), "kept in memory for `logs` and crash reports"),
)  # fmt: skip


def _http_check(**fields: object) -> model.HttpCheck:
    """A body is posted, and is JSON unless the headers say otherwise."""
    check = build(model.HttpCheck, fields)
    if check.body is None:
        return check
    if not any(name.casefold() == "content-type" for name, _ in check.headers):
        check = replace(check, headers=(*check.headers, ("Content-Type", "application/json")))
    return check if "method" in fields else replace(check, method="POST")


_HTTP_CHECK = Table("Http", "check", _http_check, "an HTTP request", HTTP, required=("Url",), shorthand="Url")
_TCP_CHECK = Table("Tcp", "check", model.TcpCheck, "a connection", TCP, required=("Address",), shorthand="Address")

PROBE = _entries(
    _HTTP_CHECK,
    _TCP_CHECK,
    Key("Exec", "check", mapped(command, model.ExecCheck), "a command that exits 0 when all is well"),
    Key("LogLine", "check", mapped(regular_expression, model.LogLineCheck), "passed for good once a line matches"),
    Key("PeriodSec", "period_sec", duration(0.1), "how often"),
    Key("TimeoutSec", "timeout_sec", duration(0.1), "how long an answer may take"),
    Key("FailureThreshold", "failure_threshold", _count, "failures in a row that count"),
    Key("SuccessThreshold", "success_threshold", _count, "successes in a row that count"),
    Key("InitialDelaySec", "initial_delay_sec", duration(), "how long after the start it begins"),
)
LIVENESS_ACTION = "action"
LIVENESS = PROBE | _entries(
    Key("OnFailure", LIVENESS_ACTION, member_of(model.LivenessAction), "what a failed probe leads to",
        "restart; report for engines of a gang"),
)  # fmt: skip

CANARY_SECTION = "Canary"
CANARY = _entries(
    Key("Enabled", "enabled", boolean, "whether it is sent at all"),
    _HTTP_CHECK,
    Key("TimeoutSec", "timeout_sec", duration(0.1), "how long the answer may take"),
    Key("FailureThreshold", "failure_threshold", _count, "failures in a row that count"),
    Key("IdleSec", "idle_sec", duration(0.1), "sent only after so long without work"),
    Key("Requests", "requests", _count, "requests in a round", "one for each rank behind the port"),
)

ENGINE = _entries(
    Key("Launcher", "launcher", member_of(model.Launcher), "the engine's kind; exec runs ExecStart"),
    Key("Model", "model", word, "path or name of the model"),
    Key("ServedModelName", "served_model_names", word_list, "names under which it is served"),
    Key("Command", "command", arguments, "replaces the launcher's program"),
    Key("Args", "args", flags, "flags by name, in the form that the launcher's program wants"),
    Key("ExtraArgs", "extra_args", arguments, "arguments added as they are"),
    Key("DataParallel", "data_parallel", member_of(model.DataParallel), "how data-parallel ranks are spread"),
    Key("LocalRanks", "local_ranks", _count, "data-parallel ranks in this pod"),
    Key("BootstrapPort", "bootstrap_port", port, "prefill/decode rendezvous; the same in all epochs"),
    Key("Role", "role", one_of("union", "prefill", "decode", "encode"), "part in disaggregated serving",
        "the pod's"),
    Key("Endpoints", "endpoints", integer(1, MAX_ENDPOINTS), "engine processes in this pod"),
    Key("BasePort", "base_port", port, "service port of the first endpoint"),
    Key("MgmtPort", "mgmt_port", port, "management port, where the engine has one", "the service port"),
    Key("DevicesPerEndpoint", "devices_per_endpoint", _count, "devices for each engine process"),
    Key("VisibleDevicesVariable", "visible_devices_variable", variable_name, "tells the engine its devices"),
    Key("Start", "start", member_of(model.EngineStart), "who starts it",
        "controller when one is configured, else auto"),
    Key("StartAfter", "start_after", peers, "addresses that must answer before the engine is run"),
    Key("DiagnoseExec", "diagnose_exec", command, "collects evidence before an unhealthy engine is stopped"),
    Key("DeviceHealthProbe", "device_health_probe", command, "exits 0 while the devices are there"),
    Key("RestartWith", "restart_with", member_of(model.RestartWith), "whether the whole gang follows",
        "coordinated when a controller is configured, else local"),
    Key("CriticalProcesses", "critical_processes", word_list,
        "patterns of descendants whose death is the engine's death"),
    Table("RecoverHttp", "recover_http", _http_check, "asks the engine to recover without a restart", HTTP,
          required=("Url",), shorthand="Url"),
    Key("RecoverExec", "recover_exec", command, "asks the engine to recover without a restart"),
    Key("RestoreExec", "restore_exec", command, "starts from a snapshot instead of cold"),
    Key("SharedMemoryPatterns", "shared_memory_patterns", word_list, "segments that a dead engine may leave"),
    Key("PortsToFree", "ports_to_free", list_of(port, "ports from 1 to 65535"),
        "ports that must be free before the engine is run again"),
    Key("LockPatterns", "lock_patterns", word_list, "lock files that a dead engine may leave"),
    Key("DeviceMemoryProbe", "device_memory_probe", device_memory_probe,
        "tells when device memory is back", "nvml for vllm and sglang, else off"),
)  # fmt: skip

_LIVENESS_DEFAULTS = {"period_sec": 10.0, "timeout_sec": 3.0}

SECTIONS: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("Unit", "", model.Unit, "what the unit is and what it depends on", UNIT),
        Table("Service", "service", model.Service, "how its processes are run", SERVICE),
        Table("Startup", "probes.startup", model.Probe, "whether it has started, asked until passed once", PROBE),
        Table("Readiness", "probes.readiness", model.Probe, "whether it may be used", PROBE),
        Table("Liveness", "probes.liveness", model.Probe, "whether it still works", LIVENESS,
              defaults=_LIVENESS_DEFAULTS),
        Table(CANARY_SECTION, "probes.canary", model.Canary, "a probe with real work, sent while there is none",
              CANARY),
        Table("Engine", "engine", model.Engine, "what makes the unit an engine", ENGINE),
    )
}  # fmt: skip
