"""What a launcher is given and what it returns. The launchers themselves are one file each."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import Command, Engine, HttpCheck, Launcher, Probe, Probes, TcpCheck
from supervisor.wire import StartCmdMsg


class Rank(msgspec.Struct, frozen=True):
    """One pod's place in its gang, as far as a launcher needs it."""

    node_rank: int
    port: int
    mgmt_port: int
    headless: bool
    """This rank serves no HTTP: it works for node rank 0."""
    followers: tuple[str, ...]
    """Addresses of the headless nodes that work for node rank 0, by rank."""
    pod_ip: str

    @property
    def any_address(self) -> str:
        return "::" if ":" in self.pod_ip else "0.0.0.0"

    @property
    def loopback(self) -> str:
        return "[::1]" if ":" in self.pod_ip else "127.0.0.1"


def rank_of(placement: StartCmdMsg, *, pod_ip: str) -> Rank:
    """This pod's rank; with fewer data-parallel ranks than nodes, node 0 serves and the others follow it."""
    endpoint = placement.endpoints[0]
    return Rank(
        node_rank=placement.node_rank,
        port=int(endpoint.business_port),
        mgmt_port=int(endpoint.mgmt_port),
        headless=endpoint.headless,
        followers=placement.node_addrs[1:] if placement.dp_size < placement.nnodes else (),
        pod_ip=pod_ip,
    )


class LaunchPlan(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    serves_http: bool
    probes: Probes
    ports: tuple[int, ...]
    """To be free before the engine is spawned."""
    start_after: tuple[str, ...] = ()
    """Peers that must listen before exec."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    critical_processes: tuple[str, ...] = ()
    shared_memory_patterns: tuple[str, ...] = ()
    lock_patterns: tuple[str, ...] = ()
    device_memory_probe: str | Command = "off"
    """`nvml`, `off`, or what exits 0 when the memory of the old engine is back."""


def device_memory_probe(engine: Engine) -> str | Command:
    """What the file says; engines made for GPUs have NVML looked at, where there is one."""
    if engine.device_memory_probe is not None:
        return engine.device_memory_probe
    return "nvml" if engine.launcher in (Launcher.VLLM, Launcher.SGLANG) else "off"


def with_defaults(declared: Probes, defaults: Probes) -> Probes:
    """The unit's probes, completed by what fits the engine."""
    return replace(
        declared,
        readiness=declared.readiness or defaults.readiness,
        liveness=declared.liveness or defaults.liveness,
    )


def without_http(declared: Probes) -> Probes:
    """Where nothing listens, only what looks at the process or its log can be asked (design 2)."""
    return replace(
        declared,
        startup=_unless_it_connects(declared.startup),
        readiness=_unless_it_connects(declared.readiness),
        liveness=_unless_it_connects(declared.liveness),
        canary=None,
    )


def _unless_it_connects(probe: Probe | None) -> Probe | None:
    return None if probe is not None and isinstance(probe.check, HttpCheck | TcpCheck) else probe
