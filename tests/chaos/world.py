"""The world: two gangs of three pods, a store beside each engine, one controller or two with etcd, all of it real.

podvisor is PID 1 in every pod, the kubelet stand-in keeps the containers, the program itself stands in the hub.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import trio

from controller.demo import fallback_engine
from controller.demo.cluster import (
    SUPERVISOR_PORT,
    Tables,
    controller_spec,
    controller_url,
    supervisor_spec,
    write_units,
)
from controller.demo.engines import REDIS_SERVER, Engines
from controller.demo.kubelet import BackOff, ContainerSpec, Kubelet, KubeletPod, open_kubelet
from controller.demo.pod import Network, Pod
from controller.demo.sandbox import open_network
from tests.chaos.faults import Stage
from tests.chaos.judgement import ENGINE_PORT, LOAD_SEC, jobs
from tests.support.real_etcd import etcd_spec, etcd_url

GANGS, PODS_OF_A_GANG = 2, 3
BACK_OFF = BackOff().scaled(0.005)
DISK = "disk"
"""Of each pod, for its state_dir or journal, which with its log takes some 6 MB."""
DISK_BYTES = 32 << 20
UNITS = Path(__file__).parents[2] / "units"
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
ENGINE = f"""
[Unit]
Description = "podvisor's own small HTTP engine, with a worker that has left its session"
Requires = ["redis"]
After = ["redis"]

[Service]
ExecStart = ["{sys.executable}", "-I", "{fallback_engine.__file__}", "--host=${{POD_IP}}", "--port=${{PORT}}",
             "--load-sec={LOAD_SEC}", "--worker"]

[Engine]
Launcher = "exec"
BasePort = {ENGINE_PORT}

[Readiness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
PeriodSec = 0.1

[Liveness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
PeriodSec = 0.5
"""
SILENCE = {"engine_restart_freeze_silence_sec": 20, "engine_restart_freeze_sec": 120}
SUPERVISOR: Tables = {
    "supervisor": {"heartbeat_interval_seconds": 0.5, "grace_period_sec": 3, "log_format": "json"},
    "fault_tolerance_config": {**SILENCE, "engine_restart_wait_timeout_sec": 30},
    "parallel": {"dp_size": PODS_OF_A_GANG},
}
CONTROLLER: Tables = {
    "instance": {"heartbeat_timeout_active_sec": 3, "heartbeat_timeout_inactive_sec": 30},
    "fault_tolerance_config": {
        **SILENCE,
        "engine_relaunch_poll_interval_sec": 0.2,
        "strategy_center_check_interval": 0.2,
        "engine_relaunch_stable_sec": 3,
        "engine_relaunch_backoff_sec": 0.2,
        "engine_relaunch_backoff_max_sec": 1,
        "engine_relaunch_prepare_timeout_sec": 30,
        "engine_relaunch_complete_timeout_sec": 30,
        "rejoin_timeout_sec": 15,
    },
}


@dataclass(frozen=True)
class World:
    stage: Stage
    network: Network
    kubelet: Kubelet
    kept: Mapping[str, KubeletPod]
    """By the pod's name."""
    http: httpx.AsyncClient
    directory: Path
    sockets: Mapping[str, httpx.AsyncClient] = field(default_factory=dict)
    """Of supervisors, which no cut of a link can reach."""

    def pod(self, name: str) -> Pod:
        return self.kept[name].pod

    def first_process(self, name: str) -> int | None:
        """Of the container that runs in that pod at the moment."""
        container = self.kept[name].container
        return container.init_pid or None if container is not None else None

    def state(self, name: str) -> Path:
        """What is on the pod's small disk, as those who stand beside the containers see it."""
        return self.pod(name).volume / DISK

    def logs(self) -> Sequence[Path]:
        return [log for kept in self.kept.values() for log in kept.logs]

    async def leader(self) -> str | None:
        """The URL of the controller that leads."""
        for name in self.stage.controllers:
            url = controller_url(self.network, self.pod(name))
            try:
                answer = await self.http.get(f"{url}/leader")
            except httpx.TransportError:
                continue
            if answer.json()["role"] == "leader":
                return url
        return None


def what_is_missing() -> Mapping[str, str]:
    """Kinds of faults that cannot be made on this machine, with the reason."""
    missing = {}
    if not (MEMORY_CGROUPS / "memory.oom_control").exists():
        missing["out-of-memory"] = f"no memory controller of cgroup v1 at {MEMORY_CGROUPS}"
    if shutil.which("iptables") is None:
        missing |= dict.fromkeys(("cut", "lossy", "slow"), "iptables is not installed")
    return missing


def stage_of(*, etcd: bool) -> Stage:
    """Everything that can be hit here."""
    names = [f"pod{number}" for number in range(GANGS * PODS_OF_A_GANG)]
    gangs = tuple(tuple(names[first : first + PODS_OF_A_GANG]) for first in range(0, len(names), PODS_OF_A_GANG))
    controllers = ("controller0", "controller1") if etcd else ("controller0",)
    return Stage(gangs, controllers, "etcd" if etcd else None, frozenset(what_is_missing()))


@asynccontextmanager
async def open_world(
    stage: Stage, engines: Engines, directory: Path, fault_tolerance: Mapping[str, object] | None = None
) -> AsyncIterator[World]:
    """Everything is started; `directory`, which must be empty, has the logs afterwards.

    `fault_tolerance` are further settings of the controller. Raises RuntimeError where there is no Redis.
    """
    if REDIS_SERVER in engines.missing:
        raise RuntimeError(engines.missing[REDIS_SERVER])
    async with (
        open_network(0, directory, namespaces=True) as network,
        open_kubelet(BACK_OFF) as kubelet,
        # Everything is on this machine: the environment's proxies are for the world outside.
        httpx.AsyncClient(timeout=5.0, trust_env=False) as http,
    ):
        pods = {name: await network.add_pod(name) for name in (*stage.pods, *stage.centre)}
        for pod in pods.values():
            await _add_disk(network, pod)
        specs = _centre(stage, network, pods, fault_tolerance or {}) | _supervisors(stage, network, pods, engines)
        kept = {name: await kubelet.start(pods[name], spec) for name, spec in specs.items()}
        sockets = {name: _client_of(pods[name]) for name in stage.pods}
        try:
            yield World(stage, network, kubelet, kept, http, directory, sockets)
        finally:
            with trio.move_on_after(1, shield=True):
                for client in sockets.values():
                    await client.aclose()


async def _add_disk(network: Network, pod: Pod) -> None:
    disk = pod.volume / DISK
    disk.mkdir()
    await network.run_in(pod, f"mount -t tmpfs -o size={DISK_BYTES} disk {disk}")


def _centre(
    stage: Stage, network: Network, pods: Mapping[str, Pod], fault_tolerance: Mapping[str, object]
) -> dict[str, ContainerSpec]:
    settings = {
        **CONTROLLER,
        "fault_tolerance_config": {**CONTROLLER["fault_tolerance_config"], **fault_tolerance},
    }
    specs, store = {}, {}
    if stage.etcd is not None:
        specs[stage.etcd] = etcd_spec(pods[stage.etcd])
        store = {"etcd": {"endpoints": [etcd_url(pods[stage.etcd])], "lease_sec": 2}}
    for name in stage.controllers:
        own = {"state_dir": str(pods[name].volume / DISK), "store": "etcd" if store else "sqlite"}
        specs[name] = controller_spec(network, pod=pods[name], settings={**settings, **store, "controller": own})
    return specs


def _supervisors(stage: Stage, network: Network, pods: Mapping[str, Pod], engines: Engines) -> dict[str, ContainerSpec]:
    units = {"engine.toml": ENGINE, "redis.toml": (UNITS / "redis.toml").read_text(encoding="utf-8")}
    controllers = [controller_url(network, pods[name]) for name in stage.controllers]
    specs = {}
    for job, gang in jobs(stage).items():
        for index, name in enumerate(gang):
            pod = pods[name]
            own = {
                "nnodes": len(gang),
                "node_index": index,
                "controller_url": controllers,
                "state_dir": str(pod.volume / DISK),
                "socket": str(_socket(pod)),
            }
            specs[name] = supervisor_spec(
                network,
                network.pods.index(pod),
                [write_units(pod.volume / "units", units)],
                job_name=job,
                settings={**SUPERVISOR, "supervisor": {**SUPERVISOR["supervisor"], **own}},
                search_path=engines.search_path,
            )
    return specs


def _socket(pod: Pod) -> Path:
    """On the volume, where this program can reach it too."""
    return pod.volume / "podvisor.sock"


def _client_of(pod: Pod) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(_socket(pod)))
    return httpx.AsyncClient(transport=transport, base_url="http://podvisor", timeout=5.0)


def node_manager_url(pod: Pod) -> str:
    return f"http://{pod.address}:{pod.port(SUPERVISOR_PORT)}"
