"""What a launcher is given and what it returns. The launchers themselves are one file each."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.launchers.environment import Unwanted
from supervisor.engine.launchers.fabric import Fabric
from supervisor.unit.model import Canary, Command, Engine, HttpCheck, Launcher, Probe, Probes, TcpCheck
from supervisor.wire import StartCmdMsg


class CannotLaunch(Exception):
    """This engine cannot be started in this placement; the message says why."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint's place in its gang, as far as a launcher needs it."""

    node_rank: int
    nnodes: int = 1
    port: int
    mgmt_port: int
    headless: bool
    """This rank serves no HTTP: it works for node rank 0."""
    followers: tuple[str, ...] = ()
    """Addresses of the headless nodes that work for node rank 0, by rank."""
    dp_rank: int = 0
    """The first of its data-parallel ranks."""
    pod_ip: str
    master_addr: str = "127.0.0.1"
    """Of node rank 0."""
    master_port: int | None = None
    """The first of the epoch's rendezvous ports there; None from a controller that does not tell."""
    bootstrap_port: int | None = None
    role: str = "union"
    fabric: Fabric | None = None

    @property
    def any_address(self) -> str:
        return "::" if ":" in self.pod_ip else "0.0.0.0"

    @property
    def loopback(self) -> str:
        return "[::1]" if ":" in self.pod_ip else "127.0.0.1"

    def meeting_port(self, offset: int = 0) -> int:
        """One of the epoch's rendezvous ports, at `master_addr`. Raise CannotLaunch."""
        if self.master_port is None:
            raise CannotLaunch(f"{self.nnodes} nodes have no port to meet on: the controller told no master_port")
        return self.master_port + offset


def rank_of(placement: StartCmdMsg, number: int = 0, *, pod_ip: str, fabric: Fabric | None = None) -> Rank:
    """The rank of this pod's endpoint of that number.

    With fewer data-parallel ranks than nodes, node 0 serves and the others follow it.
    """
    endpoint = placement.endpoints[number]
    return Rank(
        node_rank=placement.node_rank,
        nnodes=placement.nnodes,
        port=int(endpoint.business_port),
        mgmt_port=int(endpoint.mgmt_port),
        headless=endpoint.headless,
        followers=placement.node_addrs[1:] if placement.dp_size < placement.nnodes else (),
        dp_rank=endpoint.id if endpoint.ranks is None else endpoint.ranks[0],
        pod_ip=pod_ip,
        master_addr=placement.master_dp_ip,
        master_port=placement.master_port,
        bootstrap_port=int(endpoint.bootstrap_port) if endpoint.bootstrap_port else None,
        role=placement.role,
        fabric=fabric,
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
    """Unless somebody has set them."""
    unwanted: tuple[Unwanted, ...] = ()
    ignores_kill_signal: bool = False
    """The rank that serves ends this one; the signal does not."""
    critical_processes: tuple[str, ...] = ()
    shared_memory_patterns: tuple[str, ...] = ()
    lock_patterns: tuple[str, ...] = ()
    """Absolute, or from the home directory (`~/`)."""
    temporary_sockets: tuple[str, ...] = ()
    """Patterns of names in the directory for temporary files."""
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
        canary=_completed(declared.canary, defaults.canary),
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


def _completed(declared: Canary | None, default: Canary | None) -> Canary | None:
    """A canary that is declared without a request, or without their number, has the launcher's.

    Whoever declares another number does not mean one for each rank.
    """
    if declared is None:
        return default
    if not declared.enabled:
        return None
    own = default or Canary()
    complete = replace(
        declared,
        check=declared.check or own.check,
        requests=own.requests if declared.requests is None else declared.requests,
        rank_header=own.rank_header if declared.requests is None else None,
    )
    return complete if complete.check is not None else None


def _unless_it_connects(probe: Probe | None) -> Probe | None:
    return None if probe is not None and isinstance(probe.check, HttpCheck | TcpCheck) else probe
