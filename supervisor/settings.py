"""podvisor.toml -> Settings of the supervisor, once, with located errors; the pod says what it does not say.

How a file is read stands in `supervisor.settings_file`, what the platform says of this pod in
`supervisor.identity`; here is which keys the supervisor has, what they may be, and how they must fit together.
The controller's sections and keys may stand in the same file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from supervisor.identity import Pod, pod_of
from supervisor.settings_file import (
    ConfigurationError,
    Foreign,
    Mistake,
    Sections,
    boolean,
    build,
    duration,
    integer,
    keys_of,
    one_of,
    read_sections,
    setting,
    text_list,
    tls_mistakes,
    url_list,
    word,
)
from supervisor.shared.listening import is_loopback
from supervisor.unit.model import Unit
from supervisor.unit.stop_budget import stop_budget
from supervisor.unit.values import Mismatch, mapped, matching

__all__ = [
    "ConfigurationError",
    "Settings",
    "differing_keys",
    "load_settings",
    "runtime_directories",
    "shutdown_timeout",
]

HOUR = 3600.0
DAY = 24 * HOUR
SHUTDOWN_MARGIN_SEC = 5.0

FOREIGN: Foreign = {
    "controller": None,
    "etcd": None,
    "instance": None,
    "kubernetes": None,
    "limits": None,
    "pd": None,
    "fault_tolerance_config": frozenset({
        "canary_min_interval_sec",
        "enable_elastic_scaling",
        "enable_scale_p2d",
        "enable_token_reinference",
        "enable_uce_recovery",
        "engine_relaunch_backoff_max_sec",
        "engine_relaunch_backoff_sec",
        "engine_relaunch_complete_timeout_sec",
        "engine_relaunch_dispatch_retries",
        "engine_relaunch_max_attempts",
        "engine_relaunch_nm_unreachable_threshold",
        "engine_relaunch_phase2_scope",
        "engine_relaunch_poll_interval_sec",
        "engine_relaunch_prepare_timeout_sec",
        "engine_relaunch_stable_sec",
        "max_concurrent_runs",
        "max_phase2_fraction",
        "on_member_lost",
        "rejoin_timeout_sec",
        "phase2_timeout_sec",
        "strategy_center_check_interval",
    }),
}  # fmt: skip


def _port_range(written: str) -> tuple[int, int]:
    first, _, last = written.partition("-")
    if not 0 < int(first) <= int(last) < 65536:
        raise Mismatch("a range of ports from 1 to 65535")
    return int(first), int(last)


def _address_and_port(written: str) -> tuple[str, int]:
    host, _, port = written.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise Mismatch from None
    if int(port) > 65535:
        raise Mismatch
    return host, int(port)


_listening_address = mapped(
    matching(r"(\[[0-9a-fA-F:.]+\]|[0-9.]+):\d{1,5}", 'an address and a port such as "127.0.0.1:1028"'),
    _address_and_port,
)
_ports = mapped(matching(r"\d{1,5}-\d{1,5}", 'a range of ports such as "29500-29599"'), _port_range)
_tcp_port = integer(0, 65535)


@dataclass(frozen=True, slots=True)
class SupervisorSection:
    pod_ip: str | None = setting(word, None, "this pod's address; default: POD_IP, else the controller's route")
    host: str | None = setting(word, None, "address of the node-manager API; default: pod_ip")
    port: int = setting(_tcp_port, 1026, "TCP port of the node-manager API; 0 picks one and registers it")
    probe_port: int = setting(_tcp_port, 1027, "TCP port of /livez, /readyz, /startupz and /metrics; 0 picks one")
    operations_listen: tuple[str, int] | None = setting(
        _listening_address, None, "the operations API on TCP too, at this address and port; needs [auth]"
    )
    port_base: int | None = setting(
        integer(1024, 65000), None, "for hostNetwork: every port that is not set counts from here, see operations"
    )
    socket: str | None = setting(word, None, "control socket; default: podvisor.sock in the run directory")
    state_dir: str | None = setting(word, None, "what survives a container; default: the run directory")
    controller_url: tuple[str, ...] = setting(url_list, (), "the controller, or several; none: no gang")
    job_name: str = setting(word, "", "name of the instance; default: from the platform, else the pod's name")
    model_name: str = setting(word, "", "name of the model, for the controller")
    role: str = setting(one_of("union", "prefill", "decode", "encode"), "union", "part in disaggregated serving")
    nnodes: int = setting(integer(1, 4096), 1, "pods of the instance; default: LWS_GROUP_SIZE, else 1")
    node_index: int | None = setting(integer(0, 4095), None, "this pod's number in it; default: the platform's")
    node_addrs: tuple[str, ...] = setting(
        text_list, (), "addresses of the instance's pods by node index, for `podvisor start --standalone` alone"
    )
    start_without_controller_after_sec: float = setting(
        duration(0, DAY), 30.0, "an instance of one pod waits for its controller so long; 0: for ever"
    )
    device_num: int = setting(integer(0, 1024), 0, "devices of this pod")
    heartbeat_interval_seconds: float = setting(duration(0.1, 60), 3.0, "heartbeat, and the arbiter's tick")
    grace_period_sec: float = setting(duration(0, DAY), 120.0, "after a start probes cannot make it abnormal")
    suicide_threshold: int = setting(integer(1, 1000), 5, "abnormal ticks in a row before the end")
    shutdown_timeout_sec: float | None = setting(
        duration(1, DAY), None, "of an orderly stop; default: drain, the longest chain of stop time-outs, and 5 s"
    )
    exit_on_term: str = setting(
        one_of("success", "signal"), "success", "0 after SIGTERM, or 143 where 0 would complete the task"
    )
    drain_sec: float = setting(duration(0, DAY), 0.0, "how long a leaving engine may finish its requests")
    drain_delay_sec: float = setting(
        duration(0, HOUR), 0.0, "until routers know that this pod is leaving; default: 5 s with a controller"
    )
    rendezvous_ports: tuple[int, int] = setting(_ports, (29500, 29599), "ports that rotate with the epoch")
    fabric_interface: str | None = setting(word, None, "interface of vLLM's, SGLang's collectives; default: pod_ip's")
    shm_scope: str = setting(
        one_of("pod", "shared"), "pod", "who has segments in /dev/shm; shared: hostIPC, hostPath, sidecars"
    )
    log_level: str = setting(one_of("debug", "info", "warning", "error"), "info", "the least level logged")
    log_format: str = setting(one_of("json", "text"), "text", "one JSON object a line, or text for people")


@dataclass(frozen=True, slots=True)
class FaultToleranceSection:
    """The reference system's names."""

    enable_engine_relaunch: bool = setting(boolean, True, "the only switch of the engine relaunch")
    engine_restart_wait_timeout_sec: float = setting(duration(1, DAY), 180.0, "until a relaunched engine is ready")
    engine_restart_freeze_sec: float = setting(duration(1, DAY), 720.0, "the longest freeze")
    engine_restart_freeze_silence_sec: float = setting(
        duration(1, HOUR), 60.0, "a freeze ends when the controller was silent for so long"
    )
    enable_fault_tolerance: bool = setting(
        boolean, False, "read for the reference system's sake: the death signals do not depend on it"
    )


@dataclass(frozen=True, slots=True)
class ParallelSection:
    """Sizes for engines whose launcher cannot know them (`exec`)."""

    dp_size: int = setting(integer(1), 1, "data parallel")
    tp_size: int = setting(integer(1), 1, "tensor parallel")
    pp_size: int = setting(integer(1), 1, "pipeline parallel")
    pcp_size: int = setting(integer(1), 1, "prefill context parallel")
    ep_size: int = setting(integer(1), 1, "expert parallel")


@dataclass(frozen=True, slots=True)
class AuthSection:
    token_file: str | None = setting(word, None, "file with the bearer tokens of the APIs, each with its role")
    allow_anonymous: bool = setting(boolean, False, "serve everybody, also beyond loopback")


@dataclass(frozen=True, slots=True)
class TlsSection:
    """All or none: mutual TLS on TCP, but for the probe port."""

    cert: str | None = setting(word, None, "certificate that we show, to clients and to the controller")
    key: str | None = setting(word, None, "its key")
    client_ca: str | None = setting(word, None, "CA that has signed the certificates of all others")


@dataclass(frozen=True, slots=True)
class Settings:
    """All keys have a value: the file's, an override's, the platform's or the default."""

    pod: Pod
    supervisor: SupervisorSection = field(default_factory=SupervisorSection)
    fault_tolerance_config: FaultToleranceSection = field(default_factory=FaultToleranceSection)
    parallel: ParallelSection = field(default_factory=ParallelSection)
    tls: TlsSection = field(default_factory=TlsSection)
    auth: AuthSection = field(default_factory=AuthSection)


DRAIN_DELAY_SEC = 5.0
"""With a controller: routers learn of an endpoint's end after the pod does."""
PROBE_PORT_ABOVE = 1
RENDEZVOUS_PORTS_ABOVE = (100, 199)
"""Above `port_base`; the supervisor's own port is `port_base` itself. The engine's stand in `configuration.py`."""
DERIVED = ("drain_delay_sec", "port", "probe_port", "rendezvous_ports")
"""What nobody writes follows from other keys; while a file is read, None stands for that."""

SECTIONS: Mapping[str, type] = {
    "supervisor": SupervisorSection,
    "fault_tolerance_config": FaultToleranceSection,
    "parallel": ParallelSection,
    "tls": TlsSection,
    "auth": AuthSection,
}


def load_settings(path: Path | None, environment: Mapping[str, str], *, foreign: Foreign = FOREIGN) -> Settings:
    """`foreign`: what others read in the same file.

    Raise ConfigurationError with all problems of the file and of `environment`, the process's own.
    """
    pod = pod_of(environment)
    sections = {name: keys_of(section) for name, section in SECTIONS.items()}
    sections["supervisor"] |= {
        name: replace(sections["supervisor"][name], default=known)
        for name, known in (("pod_ip", pod.ip), ("nnodes", pod.group_size))
        if known is not None
    }
    sections["supervisor"] |= {name: replace(sections["supervisor"][name], default=None) for name in DERIVED}
    relations = partial(_relations, pod=pod)
    values = read_sections(path, environment, sections, foreign=foreign, relations=relations)
    return _settings(values, pod)


def runtime_directories(environment: Mapping[str, str], uid: int) -> tuple[Path, Path]:
    """Where socket and state_dir are by default: the first that can be written, the second with a warning."""
    temporary = Path(environment.get("TMPDIR") or "/tmp")
    return Path("/run/podvisor"), temporary / f"podvisor-{uid}"


def _settings(values: Sections, pod: Pod) -> Settings:
    return Settings(
        pod=pod,
        supervisor=_completed(build(SupervisorSection, _derived(values["supervisor"])), pod),
        fault_tolerance_config=build(FaultToleranceSection, values["fault_tolerance_config"]),
        parallel=build(ParallelSection, values["parallel"]),
        tls=build(TlsSection, values["tls"]),
        auth=build(AuthSection, values["auth"]),
    )


def _derived(values: Mapping[str, object]) -> dict[str, object]:
    """With a value for what follows from other keys."""
    known: dict[str, object] = {}
    if values["controller_url"]:
        known["drain_delay_sec"] = DRAIN_DELAY_SEC
    if isinstance(base := values["port_base"], int):
        first, last = RENDEZVOUS_PORTS_ABOVE
        known |= {"port": base, "probe_port": base + PROBE_PORT_ABOVE, "rendezvous_ports": (base + first, base + last)}
    left_out = {name for name in DERIVED if values[name] is None}
    written = {name: value for name, value in values.items() if name not in left_out}
    return written | {name: value for name, value in known.items() if name in left_out}


def _completed(section: SupervisorSection, pod: Pod) -> SupervisorSection:
    """What nobody wrote, the platform may know."""
    index = pod.node_index(section.nnodes) if section.node_index is None else section.node_index
    job_name = section.job_name or pod.job_name(section.nnodes) or pod.name
    return replace(section, node_index=index, job_name=job_name)


def _relations(values: Sections, pod: Pod) -> Iterator[Mistake]:
    settings = _settings(values, pod)
    if settings.supervisor.controller_url:
        yield from _in_a_gang(settings, named=bool(values["supervisor"]["job_name"]))
    yield from _placed(settings.supervisor)
    yield from _listening(settings.supervisor)
    yield from _operations_on_tcp(settings)
    yield from tls_mistakes(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
    yield from _periods(settings)


def _in_a_gang(settings: Settings, *, named: bool) -> Iterator[Mistake]:
    supervisor, pod = settings.supervisor, settings.pod
    if not named and pod.job_name(supervisor.nnodes) is None:
        message = f"must be set: nothing in the environment tells which {supervisor.nnodes} pods belong together"
        yield Mistake("supervisor", "job_name", message)
    if supervisor.node_index is not None and supervisor.node_index >= supervisor.nnodes:
        message = f"{supervisor.node_index} must be below nnodes, which is {supervisor.nnodes}"
        yield Mistake("supervisor", "node_index", message)
    host = supervisor.host or supervisor.pod_ip
    if not _is_protected(settings) and not (host and is_loopback(host)):
        where = f"{host} can be" if host else "the pod's address can be"
        message = f"{where} reached from elsewhere: set auth.token_file or [tls], or auth.allow_anonymous = true"
        yield Mistake("supervisor", "host", message)


def _is_protected(settings: Settings) -> bool:
    return bool(settings.auth.token_file or settings.tls.client_ca or settings.auth.allow_anonymous)


def _placed(supervisor: SupervisorSection) -> Iterator[Mistake]:
    if supervisor.node_addrs and len(supervisor.node_addrs) != supervisor.nnodes:
        message = f"has {len(supervisor.node_addrs)} addresses, but nnodes is {supervisor.nnodes}"
        yield Mistake("supervisor", "node_addrs", message)


def _operations_on_tcp(settings: Settings) -> Iterator[Mistake]:
    """On loopback as well: every user of the pod, and with hostNetwork of the node, reaches that."""
    listen = settings.supervisor.operations_listen
    if listen is None:
        return
    if not _is_protected(settings):
        message = "who reaches it may stop engines: set auth.token_file or [tls], or auth.allow_anonymous = true"
        yield Mistake("supervisor", "operations_listen", message)
    for key, port in (("port", settings.supervisor.port), ("probe_port", settings.supervisor.probe_port)):
        if listen[1] == port != 0:
            yield Mistake("supervisor", "operations_listen", f"its port must differ from {key}, which is {port} too")


def _listening(supervisor: SupervisorSection) -> Iterator[Mistake]:
    if supervisor.port == supervisor.probe_port != 0:
        message = f"must differ from port, which is {supervisor.port} too"
        yield Mistake("supervisor", "probe_port", message)
    first, last = supervisor.rendezvous_ports
    for key, port in (("port", supervisor.port), ("probe_port", supervisor.probe_port)):
        if first <= port <= last:
            yield Mistake("supervisor", key, f"{port} is one of the rendezvous_ports, {first} to {last}")


def _periods(settings: Settings) -> Iterator[Mistake]:
    fault, section = settings.fault_tolerance_config, "fault_tolerance_config"
    freeze, wait = fault.engine_restart_freeze_sec, fault.engine_restart_wait_timeout_sec
    if freeze <= wait:
        message = f"{freeze:g} s must be longer than engine_restart_wait_timeout_sec ({wait:g} s)"
        yield Mistake(section, "engine_restart_freeze_sec", message)
    silence = fault.engine_restart_freeze_silence_sec
    if silence > freeze:
        message = f"{silence:g} s must not be longer than engine_restart_freeze_sec ({freeze:g} s)"
        yield Mistake(section, "engine_restart_freeze_silence_sec", message)
    heartbeat = settings.supervisor.heartbeat_interval_seconds
    if silence < 3 * heartbeat:
        message = f"{silence:g} s must be at least three heartbeats ({3 * heartbeat:g} s)"
        yield Mistake(section, "engine_restart_freeze_silence_sec", message)


def differing_keys(before: Settings, after: Settings) -> tuple[str, ...]:
    """`section.key` of what is not the same in both."""
    return tuple(
        f"{section}.{key.name}"
        for section, kind in SECTIONS.items()
        for key in fields(kind)
        if getattr(getattr(before, section), key.name) != getattr(getattr(after, section), key.name)
    )


def shutdown_timeout(supervisor: SupervisorSection, units: Sequence[Unit]) -> float:
    """Seconds that an orderly stop may take: as set, else what it needs."""
    if supervisor.shutdown_timeout_sec is not None:
        return supervisor.shutdown_timeout_sec
    return shutdown_needs(supervisor, units)


def shutdown_needs(supervisor: SupervisorSection, units: Sequence[Unit]) -> float:
    """Until routers know and requests are finished, then the slowest chain of stops, and a margin for our own end."""
    return supervisor.drain_sec + supervisor.drain_delay_sec + stop_budget(units).seconds + SHUTDOWN_MARGIN_SEC
