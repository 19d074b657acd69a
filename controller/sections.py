"""Which sections and keys of podvisor.toml the controller has, what each may be, and what it is by default.

How they must fit together stands in `section_relations`, what is decided by them in `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.settings_file import (
    boolean,
    duration,
    integer,
    number,
    one_of,
    setting,
    text,
    text_list,
    url,
    url_list,
    word,
)

HOUR = 3600.0


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
    phase2_timeout_sec: float = setting(
        duration(1, HOUR),
        300.0,
        "how long phase 2 waits for all containers to be back",
    )
    max_concurrent_runs: int = setting(integer(1, 1000), 16, "starts at a time in the whole fleet, without the loads")
    max_phase2_fraction: float = setting(
        number(0, 1), 0.3, "of all instances (but 2 at least) in 10 min; beyond it they are held; 1: no limit"
    )
    canary_min_interval_sec: float = setting(
        duration(0, HOUR), 300.0, "between relaunches of two instances of a model on their canary alone; 0: no limit"
    )
    engine_restart_freeze_sec: float = setting(
        duration(1, 24 * HOUR), 720.0, "the supervisors' value, when the file is shared: checked against ours"
    )
    engine_restart_freeze_silence_sec: float = setting(
        duration(1, HOUR), 60.0, "the supervisors' value, when the file is shared: checked against ours"
    )


@dataclass(frozen=True, slots=True)
class PdSection:
    """Prefill and decode in instances of their own."""

    on_prefill_relaunch: str = setting(
        one_of("none", "relaunch-decode"),
        "none",
        "what decode instances of the same model do when a prefill comes back in a new epoch",
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
class KubernetesSection:
    """The optional client of the Kubernetes API: without it podvisor needs no permission there."""

    enable: bool = setting(
        boolean, False, "tell pods of their instance through the Kubernetes API, delete stranded ones"
    )
    events: bool = setting(boolean, True, "write Events on pods and on their owners")
    conditions: bool = setting(boolean, True, "keep the condition podvisor.io/InstanceActive on each pod")
    delete_pods: bool = setting(boolean, True, "delete a pod whose container did not restart in phase 2")
    namespaces: tuple[str, ...] = setting(text_list, (), "of the pods; default: that of this controller")
    pod_selector: str = setting(text, "", "label selector of the pods that are looked at; default: all there")
    timeout_sec: float = setting(duration(1, 60), 10.0, "of one request")
    api_url: str | None = setting(url, None, "of the API; default: as the cluster tells its pods")
    service_account_dir: str = setting(
        word, "/var/run/secrets/kubernetes.io/serviceaccount", "directory of token, namespace and ca.crt"
    )


SECTIONS: Mapping[str, type] = {
    "controller": ControllerSection,
    "etcd": EtcdSection,
    "instance": InstanceSection,
    "fault_tolerance_config": FaultToleranceSection,
    "pd": PdSection,
    "limits": LimitsSection,
    "auth": AuthSection,
    "tls": TlsSection,
    "kubernetes": KubernetesSection,
}
