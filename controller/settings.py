"""podvisor.toml -> Settings of the controller, once, with located errors.

How a file is read stands in `supervisor.settings_file`; here is which keys the controller has, what they may
be, and how they must fit together. The supervisor's sections and keys may stand in the same file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.model.limits import Limits
from controller.model.settings import (
    FleetSettings,
    InstanceSettings,
    OnMemberLost,
    Phase2Scope,
    RelaunchSettings,
    StrategySettings,
)
from controller.policy import Policy
from supervisor.settings_file import (
    Foreign,
    Mistake,
    Sections,
    boolean,
    build,
    duration,
    integer,
    keys_of,
    number,
    one_of,
    read_sections,
    setting,
    text,
    tls_mistakes,
    url,
    url_list,
    word,
)
from supervisor.shared.listening import ANY_ADDRESS

FOREIGN: Foreign = {
    "supervisor": None,
    "parallel": None,
    "fault_tolerance_config": frozenset({"engine_restart_wait_timeout_sec", "enable_fault_tolerance"}),
}

HOUR = 3600.0
TAKE_OVER_SEC = 15.0
"""How long a supervisor may hear nothing of a run while the one controller there is restarts."""
TAKE_OVER_LEASES = 2.0
"""The same while another of several controllers takes over, in leases."""


@dataclass(frozen=True, slots=True)
class ControllerSection:
    host: str = setting(word, "127.0.0.1", "address to listen on; anything but loopback needs [auth]")
    port: int = setting(integer(0, 65535), 1026, "TCP port of the API; 0 picks a free one")
    probe_port: int = setting(integer(0, 65535), 1027, "TCP port of /livez and /readyz, without a token; 0 picks one")
    advertise_url: str | None = setting(
        url, None, "URL at which supervisors reach this controller, as a standby tells them; default: host and port"
    )
    store: str = setting(
        one_of("sqlite", "memory", "etcd"),
        "sqlite",
        "where instances, runs and budgets are kept: in a file, nowhere, or in etcd for several controllers",
    )
    state_dir: str = setting(
        text, "/var/lib/podvisor/controller", "directory of the store sqlite; one controller at a time writes to it"
    )
    log_level: str = setting(one_of("debug", "info", "warning", "error"), "info", "the least level logged")
    log_format: str = setting(one_of("json", "text"), "json", "one JSON object a line, or text for people")


@dataclass(frozen=True, slots=True)
class EtcdSection:
    """With `store = "etcd"`: where several controllers keep what they share, and elect the one that leads."""

    endpoints: tuple[str, ...] = setting(url_list, (), 'one or more URLs such as "http://etcd-0:2379"')
    prefix: str = setting(word, "/podvisor/", "of all keys; fleets that share an etcd need different ones")
    lease_sec: int = setting(integer(2, 60), 5, "of the leader; another leads at most two of them after it went silent")
    user: str = setting(text, "", "whom to log in as, if etcd asks for it")
    password_file: str = setting(text, "", "file with the user's password")
    ca: str = setting(text, "", "CA that has signed etcd's certificate; default: those of this machine")
    cert: str = setting(text, "", "certificate that we show to etcd")
    key: str = setting(text, "", "its key")


@dataclass(frozen=True, slots=True)
class InstanceSection:
    instance_assemble_timeout: float = setting(
        duration(1, 24 * HOUR), 600.0, "after the last registration: an event that members are missing"
    )
    heartbeat_timeout_active_sec: float = setting(
        duration(3, HOUR), 10.0, "silence of a member of an ACTIVE instance before it counts as lost"
    )
    heartbeat_timeout_inactive_sec: float = setting(
        duration(3, 24 * HOUR), 300.0, "silence of all members of any other instance before it is DELETED"
    )


@dataclass(frozen=True, slots=True)
class FaultToleranceSection:
    """The reference system's names."""

    enable_engine_relaunch: bool = setting(boolean, True, "the only switch of the engine relaunch")
    enable_token_reinference: bool = setting(
        boolean, True, "answer transient faults of the interconnect by the engines' own recovery"
    )
    enable_uce_recovery: bool = setting(
        boolean, True, "answer uncorrectable memory errors by the engines' own recovery"
    )
    enable_elastic_scaling: bool = setting(
        boolean, False, "scale a decode engine that lost a device down to its other ranks (vLLM, elastic EP)"
    )
    enable_scale_p2d: bool = setting(
        boolean, False, "give up prefill instances, so that a decode instance that lost a device finds other pods"
    )
    strategy_center_check_interval: float = setting(
        duration(0.1, 10), 1.0, "how often it is looked for what only time has changed; events are taken at once"
    )
    engine_relaunch_complete_timeout_sec: float = setting(
        duration(1, 24 * HOUR), 600.0, "without progress of a loading engine: the run failed"
    )
    engine_relaunch_poll_interval_sec: float = setting(duration(0.1, 60), 5.0, "between two polls in AWAIT")
    engine_relaunch_dispatch_retries: int = setting(integer(1, 10), 3, "tries of prepare and of start")
    engine_relaunch_nm_unreachable_threshold: int = setting(
        integer(1, 10), 3, "tries or polls in a row after which a supervisor counts as unreachable"
    )
    engine_relaunch_prepare_timeout_sec: float = setting(
        duration(1, HOUR), 120.0, "until all members are stopped, clean and prepared"
    )
    engine_relaunch_max_attempts: int = setting(
        integer(1, 100), 3, "runs without a stable period in between before phase 2"
    )
    engine_relaunch_stable_sec: float = setting(
        duration(1, 24 * HOUR), 600.0, "ACTIVE for so long: the budget is whole again"
    )
    engine_relaunch_backoff_sec: float = setting(duration(0, HOUR), 30.0, "before the second run starts")
    engine_relaunch_backoff_max_sec: float = setting(duration(0, HOUR), 600.0, "the doubled back-off's limit")
    engine_relaunch_phase2_scope: str = setting(
        one_of("all", "undispatched"), "all", "whose containers restart; undispatched spares those that accepted start"
    )
    on_member_lost: str = setting(
        one_of("rejoin", "restart-all"), "rejoin", "the others wait in place for a lost member, or restart too"
    )
    rejoin_timeout_sec: float = setting(duration(1, HOUR), 300.0, "how long they wait, then all containers restart")
    max_concurrent_runs: int = setting(integer(1, 1000), 16, "starts at a time in the whole fleet")
    max_phase2_fraction: float = setting(
        number(0, 1), 0.3, "of all instances (but 2 at least) in 10 min; beyond it they are held; 1: no limit"
    )
    engine_restart_freeze_sec: float = setting(
        duration(1, 24 * HOUR), 720.0, "the supervisors' value, when the file is shared: checked against ours"
    )
    engine_restart_freeze_silence_sec: float = setting(
        duration(1, HOUR), 60.0, "the supervisors' value, when the file is shared: checked against ours"
    )


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """Of the API, for each client: an address with its token. Heartbeats and fault reports are not limited."""

    requests_per_sec: float = setting(number(1, 100_000), 50.0, "of one client, on average over a few seconds")
    requests_in_flight: int = setting(integer(1, 10_000), 16, "of one client, at a time")
    event_followers: int = setting(integer(0, 10_000), 100, "clients that follow /v1/events, all together")


@dataclass(frozen=True, slots=True)
class AuthSection:
    token_file: str = setting(text, "", "file with the bearer token that callers show, and we to supervisors")
    allow_anonymous: bool = setting(boolean, False, "serve everybody, also beyond loopback")


@dataclass(frozen=True, slots=True)
class TlsSection:
    """All or none: mutual TLS with supervisors and tools, but for the probe port."""

    cert: str = setting(text, "", "certificate that we show, to clients and to supervisors")
    key: str = setting(text, "", "its key")
    client_ca: str = setting(text, "", "CA that has signed the certificates of all others")


@dataclass(frozen=True, slots=True)
class Settings:
    controller: ControllerSection = ControllerSection()
    etcd: EtcdSection = EtcdSection()
    instance: InstanceSection = InstanceSection()
    fault_tolerance_config: FaultToleranceSection = FaultToleranceSection()
    limits: LimitsSection = LimitsSection()
    auth: AuthSection = AuthSection()
    tls: TlsSection = TlsSection()

    def policy(self) -> Policy:
        """The numbers by which the decisions are made."""
        fault = self.fault_tolerance_config
        return Policy(
            relaunch=RelaunchSettings(
                enable_engine_relaunch=fault.enable_engine_relaunch,
                engine_relaunch_complete_timeout_sec=fault.engine_relaunch_complete_timeout_sec,
                engine_relaunch_poll_interval_sec=fault.engine_relaunch_poll_interval_sec,
                engine_relaunch_dispatch_retries=fault.engine_relaunch_dispatch_retries,
                engine_relaunch_nm_unreachable_threshold=fault.engine_relaunch_nm_unreachable_threshold,
                engine_relaunch_prepare_timeout_sec=fault.engine_relaunch_prepare_timeout_sec,
                engine_relaunch_max_attempts=fault.engine_relaunch_max_attempts,
                engine_relaunch_stable_sec=fault.engine_relaunch_stable_sec,
                engine_relaunch_backoff_sec=fault.engine_relaunch_backoff_sec,
                engine_relaunch_backoff_max_sec=fault.engine_relaunch_backoff_max_sec,
                engine_relaunch_phase2_scope=Phase2Scope(fault.engine_relaunch_phase2_scope),
                on_member_lost=OnMemberLost(fault.on_member_lost),
                rejoin_timeout_sec=fault.rejoin_timeout_sec,
            ),
            instance=InstanceSettings(
                heartbeat_timeout_active_sec=self.instance.heartbeat_timeout_active_sec,
                heartbeat_timeout_inactive_sec=self.instance.heartbeat_timeout_inactive_sec,
            ),
            fleet=FleetSettings(max_phase2_fraction=fault.max_phase2_fraction),
            strategies=StrategySettings(switches=self._switches()),
            check_interval_sec=fault.strategy_center_check_interval,
            assemble_timeout_sec=self.instance.instance_assemble_timeout,
            max_concurrent_runs=fault.max_concurrent_runs,
            limits=Limits(
                requests_per_sec=self.limits.requests_per_sec,
                requests_in_flight=self.limits.requests_in_flight,
                event_followers=self.limits.event_followers,
            ),
        )

    def _switches(self) -> frozenset[str]:
        fault = self.fault_tolerance_config
        switches = {
            "enable_token_reinference": fault.enable_token_reinference,
            "enable_uce_recovery": fault.enable_uce_recovery,
            "enable_elastic_scaling": fault.enable_elastic_scaling,
            "enable_scale_p2d": fault.enable_scale_p2d,
        }
        return frozenset(name for name, is_on in switches.items() if is_on)


SECTIONS: Mapping[str, type] = {
    "controller": ControllerSection,
    "etcd": EtcdSection,
    "instance": InstanceSection,
    "fault_tolerance_config": FaultToleranceSection,
    "limits": LimitsSection,
    "auth": AuthSection,
    "tls": TlsSection,
}


def load(path: Path | None, environment: Mapping[str, str], *, foreign: Foreign = FOREIGN) -> Settings:
    """`foreign`: what others read in the same file.

    Raises ConfigurationError with all problems of the file and the environment.
    """
    sections = {name: keys_of(section) for name, section in SECTIONS.items()}
    values = read_sections(path, environment, sections, foreign=foreign, relations=_relations)
    return Settings(
        controller=build(ControllerSection, values["controller"]),
        etcd=build(EtcdSection, values["etcd"]),
        instance=build(InstanceSection, values["instance"]),
        fault_tolerance_config=build(FaultToleranceSection, values["fault_tolerance_config"]),
        limits=build(LimitsSection, values["limits"]),
        auth=build(AuthSection, values["auth"]),
        tls=build(TlsSection, values["tls"]),
    )


def _relations(values: Sections) -> Iterator[Mistake]:
    tls = build(TlsSection, values["tls"])
    controller, etcd = build(ControllerSection, values["controller"]), build(EtcdSection, values["etcd"])
    yield from _safe_to_serve(controller, build(AuthSection, values["auth"]), tls)
    yield from tls_mistakes(tls.cert, tls.key, tls.client_ca)
    if controller.store == "sqlite" and not controller.state_dir:
        yield Mistake("controller", "state_dir", 'must be set, because controller.store is "sqlite"')
    take_over_sec = TAKE_OVER_SEC
    if controller.store == "etcd":
        yield from _elects(controller, etcd)
        take_over_sec = TAKE_OVER_LEASES * etcd.lease_sec
    yield from _periods(build(FaultToleranceSection, values["fault_tolerance_config"]), take_over_sec)


def _safe_to_serve(controller: ControllerSection, auth: AuthSection, tls: TlsSection) -> Iterator[Mistake]:
    if controller.port == controller.probe_port != 0:
        yield Mistake("controller", "probe_port", f"must differ from port, which is {controller.port} too")
    if not (is_loopback(controller.host) or auth.token_file or tls.client_ca or auth.allow_anonymous):
        yield Mistake(
            "controller",
            "host",
            f"{controller.host} can be reached from elsewhere: set auth.token_file or [tls],"
            " or auth.allow_anonymous = true",
        )


def _elects(controller: ControllerSection, etcd: EtcdSection) -> Iterator[Mistake]:
    if not etcd.endpoints:
        yield Mistake("etcd", "endpoints", 'must be set, because controller.store is "etcd"')
    if not etcd.prefix.endswith("/"):
        yield Mistake("etcd", "prefix", f"{etcd.prefix!r} must end with /, or it could begin another fleet's keys")
    if controller.host.strip("[]") in ANY_ADDRESS and controller.advertise_url is None:
        yield Mistake(
            "controller",
            "advertise_url",
            f"must be set, because {controller.host} says nothing about where supervisors reach this controller",
        )
    for one, other in (("user", "password_file"), ("cert", "key")):
        if bool(getattr(etcd, one)) != bool(getattr(etcd, other)):
            yield Mistake("etcd", one, f"must be set together with etcd.{other}")


def _periods(fault: FaultToleranceSection, take_over_sec: float) -> Iterator[Mistake]:
    section = "fault_tolerance_config"
    if fault.engine_restart_freeze_sec <= fault.engine_relaunch_complete_timeout_sec:
        yield Mistake(
            section,
            "engine_restart_freeze_sec",
            f"{fault.engine_restart_freeze_sec:g} s must be longer than"
            f" engine_relaunch_complete_timeout_sec ({fault.engine_relaunch_complete_timeout_sec:g} s):"
            " a supervisor would end itself while its engine may still load",
        )
    if fault.engine_restart_freeze_sec <= fault.rejoin_timeout_sec:
        yield Mistake(
            section,
            "engine_restart_freeze_sec",
            f"{fault.engine_restart_freeze_sec:g} s must be longer than"
            f" rejoin_timeout_sec ({fault.rejoin_timeout_sec:g} s):"
            " a supervisor would end itself while it still waits for a lost member",
        )
    silence = 3 * fault.engine_relaunch_poll_interval_sec + take_over_sec
    if fault.engine_restart_freeze_silence_sec < silence:
        yield Mistake(
            section,
            "engine_restart_freeze_silence_sec",
            f"{fault.engine_restart_freeze_silence_sec:g} s must be at least {silence:g} s:"
            f" three times engine_relaunch_poll_interval_sec plus {take_over_sec:g} s to take a run over",
        )
    if fault.engine_relaunch_backoff_max_sec < fault.engine_relaunch_backoff_sec:
        yield Mistake(
            section,
            "engine_relaunch_backoff_max_sec",
            f"{fault.engine_relaunch_backoff_max_sec:g} s must not be shorter than"
            f" engine_relaunch_backoff_sec ({fault.engine_relaunch_backoff_sec:g} s)",
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
