"""What the keys of one unit have to do with each other. Every rule yields (key path, message)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.unit.endpoints import bootstrap_port, management_port, service_port
from supervisor.unit.engine_checks import file_complaints
from supervisor.unit.model import (
    Engine,
    Launcher,
    LivenessAction,
    LogLineCheck,
    Probe,
    RestartPolicy,
    Service,
    ServiceType,
    Unit,
)
from supervisor.unit.owned_flags import trespasses
from supervisor.unit.toml_lines import KeyPath
from supervisor.unit.values import MAX_PORT

Complaint = tuple[KeyPath, str]

PROBE_SECTIONS = ("Startup", "Readiness", "Liveness")
_CHECKS = ("Http", "Tcp", "Exec", "LogLine")
_ASKED = ("PeriodSec", "TimeoutSec", "FailureThreshold", "SuccessThreshold")
WITH_A_CANARY = (Launcher.VLLM, Launcher.SGLANG)
"""Launchers that bring a request of their own."""
_COMMANDS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost")


def probe_complaints(data: Mapping[str, object]) -> Iterator[Complaint]:
    """A probe is one check, so this is asked before there is a `Probe`."""
    for section in PROBE_SECTIONS:
        keys = data.get(section)
        if not isinstance(keys, dict):
            continue
        checks = [name for name in _CHECKS if name in keys]
        if len(checks) != 1:
            found = " and ".join(checks) if checks else "none"
            yield (section,), f"found {found}, expected exactly one of {', '.join(_CHECKS)}"


def unit_complaints(unit: Unit, data: Mapping[str, object]) -> Iterator[Complaint]:
    """`data` tells what was written from what is a default."""
    written = data.get("Service")
    keys = written if isinstance(written, dict) else {}
    yield from _dependencies(unit)
    yield from _main_process(unit, keys)
    yield from _service(unit.service, keys)
    yield from _probes(unit, data)
    yield from _canary(unit)
    yield from _restore(unit)
    if unit.engine is not None:
        yield from _engine(unit.engine, data)


def _dependencies(unit: Unit) -> Iterator[Complaint]:
    each = unit.dependencies
    needed = {*each.requires, *each.wants, *each.binds_to}
    for other in each.conflicts:
        if other == unit.name:
            yield ("Unit", "Conflicts"), "a unit cannot conflict with itself"
        elif other in needed:
            yield ("Unit", "Conflicts"), f"{other!r} is needed too: it would be started and stopped at once"
    followed = needed | {*each.after}
    for other, _ in each.on_restart.by_name:
        if other not in followed:
            message = f"{other!r} is not named by After, Requires, Wants or BindsTo: its relaunch would not be seen"
            yield ("Unit", "OnDependencyRestart", other), message


def _main_process(unit: Unit, keys: Mapping[str, object]) -> Iterator[Complaint]:
    service, engine = unit.service, unit.engine
    if service.type is ServiceType.EXTERNAL:
        for name in _COMMANDS:
            if name in keys:
                yield ("Service", name), 'a unit of Type "external" has no process of ours'
        if not (unit.probes.startup or unit.probes.readiness or unit.probes.liveness):
            yield ("Service", "Type"), 'a unit of Type "external" is known by its probes only: add [Readiness]'
        return
    if engine is not None and engine.launcher is not Launcher.EXEC:
        if service.exec_start is not None:
            instead = "use Engine.Command, Args and ExtraArgs"
            yield ("Service", "ExecStart"), f"the launcher {engine.launcher} makes the command: {instead}"
    elif service.exec_start is None:
        yield ("Service",), 'the key ExecStart is missing: an argument array such as ["sleep", "5"]'


def _service(service: Service, keys: Mapping[str, object]) -> Iterator[Complaint]:
    oneshot = service.type is ServiceType.ONESHOT
    if service.remain_after_exit and not oneshot:
        yield ("Service", "RemainAfterExit"), 'only a unit of Type "oneshot" can stay active without a process'
    if oneshot and service.restart.policy in (RestartPolicy.ALWAYS, RestartPolicy.ON_SUCCESS):
        yield ("Service", "Restart"), 'a unit of Type "oneshot" that restarts after success never ends'
    if "NotifyAccess" in keys and service.type is not ServiceType.NOTIFY and service.watchdog_sec is None:
        yield ("Service", "NotifyAccess"), 'there is no NOTIFY_SOCKET but with Type "notify" or WatchdogSec'
    if service.restart.delay_sec > service.restart.max_delay_sec:
        name = "RestartSec" if "RestartSec" in keys else "RestartMaxDelaySec"
        bounds = f"{service.restart.delay_sec:g}s and {service.restart.max_delay_sec:g}s"
        yield ("Service", name), f"RestartSec is above RestartMaxDelaySec: {bounds}"


def _probes(unit: Unit, data: Mapping[str, object]) -> Iterator[Complaint]:
    probes = unit.probes
    by_section = {"Startup": probes.startup, "Readiness": probes.readiness, "Liveness": probes.liveness}
    for section, probe in by_section.items():
        if probe is None:
            continue
        if unit.service.type is ServiceType.ONESHOT:
            yield (section,), 'a unit of Type "oneshot" has started when it has ended: it cannot be probed'
        yield from _without_effect(section, probe, data)
        if not isinstance(probe.check, LogLineCheck):
            continue
        if section == "Liveness":
            yield (section, "LogLine"), "a line that was logged once says nothing about now"
        if unit.service.type is ServiceType.EXTERNAL:
            yield (section, "LogLine"), 'a unit of Type "external" has no output of ours'
    if probes.liveness_action is LivenessAction.REPORT and unit.engine is None:
        yield ("Liveness", "OnFailure"), 'only an engine is reported to a controller: use "restart" or "none"'


def _canary(unit: Unit) -> Iterator[Complaint]:
    canary = unit.probes.canary
    if canary is None or not canary.enabled:
        return
    launcher = None if unit.engine is None else unit.engine.launcher
    if canary.check is None and launcher not in WITH_A_CANARY:
        yield ("Canary",), "the key Http is missing: only the engine's user knows a request that makes it work"
    if unit.service.type is ServiceType.ONESHOT:
        yield ("Canary",), 'a unit of Type "oneshot" ends when its work is done: it cannot be probed'
    elif launcher in (None, Launcher.EXEC) and not _tells_when_ready(unit):
        yield ("Canary",), "sent only to what has been ready once: add [Readiness], or it would find what still loads"


def _restore(unit: Unit) -> Iterator[Complaint]:
    engine = unit.engine
    if engine is None or engine.restore_exec is None:
        return
    if engine.launcher is Launcher.EXEC and not _tells_when_ready(unit):
        yield ("Engine", "RestoreExec"), "nothing would say when the snapshot is restored: add [Readiness]"


def _tells_when_ready(unit: Unit) -> bool:
    probes = unit.probes
    return unit.service.type is ServiceType.NOTIFY or (probes.startup or probes.readiness) is not None


def _without_effect(section: str, probe: Probe, data: Mapping[str, object]) -> Iterator[Complaint]:
    """Keys that would be read and then mean nothing."""
    written = data.get(section)
    keys = written if isinstance(written, dict) else {}
    if isinstance(probe.check, LogLineCheck):
        for name in _ASKED:
            if name in keys:
                yield (section, name), "a line is waited for, not asked for: this means nothing beside LogLine"
    elif section == "Startup" and "FailureThreshold" in keys:
        message = "a start is given up by Service.TimeoutStartSec and StartStallSec alone, however often this fails"
        yield (section, "FailureThreshold"), message


def _engine(engine: Engine, data: Mapping[str, object]) -> Iterator[Complaint]:
    service, keys = data.get("Service"), data.get("Engine")
    written = keys if isinstance(keys, dict) else {}
    if isinstance(service, dict) and service.get("Type", "exec") not in ("exec", "notify"):
        yield ("Service", "Type"), 'an engine is a process that stays: expected "exec"'
    if engine.launcher is Launcher.EXEC:
        for name in ("Command", "Args", "ExtraArgs"):
            if name in written:
                yield ("Engine", name), 'the launcher "exec" runs Service.ExecStart as it is'
    yield from _ports(engine)
    if engine.recover_http is not None and engine.recover_exec is not None:
        yield ("Engine", "RecoverExec"), "the engine is asked to recover in one way: by RecoverHttp or by RecoverExec"
    for path, message in (*trespasses(engine), *file_complaints(engine)):
        yield ("Engine", *path), message


def _ports(engine: Engine) -> Iterator[Complaint]:
    last = engine.endpoints - 1
    ports = {
        "service": service_port(engine, last),
        "management": management_port(engine, last),
        "bootstrap": bootstrap_port(engine, last),
    }
    for kind, port in ports.items():
        if port > MAX_PORT:
            yield ("Engine", "Endpoints"), f"endpoint {last} would have {kind} port {port}: at most {MAX_PORT}"
            return
