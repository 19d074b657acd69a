"""podvisor in pods: settings, command lines and clients for those who run the real programs, demo and tests.

How a test uses it (the fixtures `pods`, `kubelet` and `engines` are in tests/pods/conftest.py)::

    async def test_something(pods, kubelet):
        network = await pods(2)
        async with cluster(network, kubelet, units={"engine.toml": ENGINE}) as running:
            instance = await running.instance(lambda found: found["status"] == "active")
            supervisor = running.supervisors[1]                    # a KubeletPod: lives, exit codes, logs
            supervisor.container.kill(signal.SIGKILL)              # podvisor itself, which is PID 1 there
            await supervisor.container.exec(["pkill", "-9", "llama-server"])
            await network.cut(network.pods[1])
            await kubelet.timeline.wait_for(lambda event: …)       # container events, in order

The controller runs in a container in the hub, each `podvisor run` as PID 1 in a pod; both are kept by the
kubelet stand-in. The test itself stands in the hub too: trio and httpx reach every address of the network
directly. From inside a pod, use `container.exec`. What happens is waited for with `eventually` (HTTP) or
`timeline.wait_for` (containers), never with a sleep.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import trio

from controller.demo.kubelet import ContainerSpec, Kubelet, KubeletPod
from controller.demo.pod import Network, Pod, base_environment

TIMEOUT_SEC = 60.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
POLL_SEC = 0.02
CONTROLLER_PORT = 1026
SUPERVISOR_PORT = 1026
PROBE_PORT = 1027
PODVISOR = Path(sys.prefix) / "bin" / "podvisor"

Found = TypeVar("Found")
Tables = Mapping[str, Mapping[str, object]]
"""Settings: section -> key -> value."""


class NotInTime(Exception):
    """Something that was waited for did not happen; says what, and what was seen last."""


async def eventually(
    ask: Callable[[], Awaitable[Found]],
    accept: Callable[[Found], bool],
    what: str,
    *,
    timeout_sec: float = TIMEOUT_SEC,
    poll_sec: float = POLL_SEC,
) -> Found:
    """Ask until the answer is accepted, and return it. For what can only be asked, not waited for.

    Raises NotInTime with the last answer after `timeout_sec`.
    """
    last: object = "no answer"
    with trio.move_on_after(timeout_sec):
        while True:
            last = found = await ask()
            if accept(found):
                return found
            await trio.sleep(poll_sec)
    raise NotInTime(f"waited {timeout_sec:g} s for {what}; the last answer was {last!r}")


def write_settings(path: Path, defaults: Tables, changes: Tables) -> Path:
    """podvisor.toml with the defaults of the harness and a test's changes on top."""
    lines = []
    for section in {**defaults, **changes}:
        lines.append(f"[{section}]")
        values = {**defaults.get(section, {}), **changes.get(section, {})}
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]  # JSON's scalars are TOML's
    path.write_text("\n".join(lines) + "\n")
    return path


def write_units(directory: Path, units: Mapping[str, str]) -> Path:
    """Unit files by file name, and drop-ins by `NAME.toml.d/FILE.toml`."""
    for name, text in units.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


def controller_url(network: Network, pod: Pod | None = None) -> str:
    """Of the controller in that pod, by default in the hub."""
    home = pod or network.hub
    return f"http://{home.address}:{home.port(CONTROLLER_PORT)}"


def controller_spec(network: Network, *, pod: Pod | None = None, settings: Tables | None = None) -> ContainerSpec:
    """`podvisor controller` for a container in that pod, by default the hub, reachable without a token, polling
    quickly.
    """
    home = pod or network.hub
    defaults: Tables = {
        "controller": {
            "host": home.address,
            "port": home.port(CONTROLLER_PORT),
            "probe_port": home.port(PROBE_PORT),
            "state_dir": str(home.volume / "journal"),
        },
        "fault_tolerance_config": {"engine_relaunch_poll_interval_sec": 0.2},
        "auth": {"allow_anonymous": True},
    }
    config = write_settings(home.volume / "controller.toml", defaults, settings or {})
    return ContainerSpec([str(PODVISOR), "controller", "--config", str(config)], grace_period_sec=10)


def supervisor_spec(
    network: Network,
    rank: int,
    units: Sequence[Path],
    *,
    job_name: str = "job",
    settings: Tables | None = None,
    environment: Mapping[str, str] | None = None,
    search_path: str = "",
) -> ContainerSpec:
    """`podvisor run` as PID 1 of pod `rank`, a member of one instance over all pods of the network.

    `search_path` (Engines.search_path) goes in front of PATH, so that units find the real
    engines by name.
    """
    pod = network.pods[rank]
    defaults: Tables = {
        "supervisor": {
            "drain_delay_sec": 0,  # nobody routes to these pods
            "pod_ip": pod.address,
            "port": pod.port(SUPERVISOR_PORT),
            "probe_port": pod.port(PROBE_PORT),
            "controller_url": controller_url(network),
            "job_name": job_name,
            "model_name": "tiny",
            "nnodes": len(network.pods),
            "node_index": rank,
            "state_dir": str(pod.volume / "state"),
        },
        "auth": {"allow_anonymous": True},
    }
    config = write_settings(pod.volume / "podvisor.toml", defaults, settings or {})
    argv = [str(PODVISOR), "run", "--config", str(config)]
    for directory in units:
        argv += ["--units", str(directory)]
    path = os.pathsep.join(filter(None, [search_path, base_environment()["PATH"]]))
    known = {"PATH": path, "POD_VOLUME": str(pod.volume), "POD_IP": pod.address}
    return ContainerSpec(argv, environment={**known, **(environment or {})}, grace_period_sec=10)


@dataclass(frozen=True)
class Cluster:
    """A controller in the hub and a supervisor in each pod. Made by `cluster`."""

    network: Network
    kubelet: Kubelet
    controllers: tuple[KubeletPod, ...]
    supervisors: tuple[KubeletPod, ...]
    http: httpx.AsyncClient

    @property
    def controller(self) -> KubeletPod:
        """The only one, or the first."""
        return self.controllers[0]

    async def from_controller(self, path: str) -> Any:
        """GET from the controller; the JSON, or None while it cannot be reached or does not lead yet."""
        return await self._get(controller_url(self.network) + path)

    async def from_supervisor(self, rank: int, path: str) -> Any:
        """GET from a node-manager API; the JSON, or None while it cannot be reached."""
        pod = self.network.pods[rank]
        return await self._get(f"http://{pod.address}:{pod.port(SUPERVISOR_PORT)}{path}")

    async def instance(self, accept: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Wait until the controller knows exactly one instance and it is accepted.

        Returns its JSON (design 3).
        """

        async def ask() -> list[Mapping[str, Any]]:
            answer = await self.from_controller("/v1/instances")
            return [] if answer is None else answer["instances"]

        found = await eventually(ask, lambda known: len(known) == 1 and accept(known[0]), "the instance")
        return found[0]

    async def podvisor(self, rank: int, *arguments: str) -> Any:
        """A podvisor command inside pod `rank`, with --json; its output, parsed."""
        container = self.supervisors[rank].container
        assert container is not None, f"no container in pod {rank} at the moment"
        done = await container.exec([str(PODVISOR), *arguments, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def logs(self) -> str:
        """What every container of every life has written, for a failing test's message."""
        kept = [*self.controllers, *self.supervisors]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')}" for pod in kept for log in pod.logs)

    async def _get(self, url: str) -> Any:
        try:
            answer = await self.http.get(url)
        except httpx.TransportError:
            return None
        return None if answer.status_code == httpx.codes.MISDIRECTED_REQUEST else answer.raise_for_status().json()


@asynccontextmanager
async def cluster(
    network: Network,
    kubelet: Kubelet,
    units: Mapping[str, str],
    *,
    controller_settings: Tables | None = None,
    supervisor_settings: Tables | None = None,
    environment: Mapping[str, str] | None = None,
    search_path: str = "",
) -> AsyncIterator[Cluster]:
    """Start a controller and, in every pod, a supervisor with these unit files.

    An error in the block shows all logs.
    """
    supervisors = [
        supervisor_spec(
            network,
            rank,
            [write_units(pod.volume / "units", units)],
            settings=supervisor_settings,
            environment=environment,
            search_path=search_path,
        )
        for rank, pod in enumerate(network.pods)
    ]
    controller = controller_spec(network, settings=controller_settings)
    async with running_cluster(network, kubelet, controller, supervisors) as running:
        try:
            yield running
        except Exception as error:
            error.add_note(running.logs())
            raise


@asynccontextmanager
async def running_cluster(
    network: Network, kubelet: Kubelet, controller: ContainerSpec, supervisors: Sequence[ContainerSpec]
) -> AsyncIterator[Cluster]:
    """Start the controller in the hub and each supervisor in the pod of its rank."""
    in_hub = await kubelet.start(network.hub, controller)
    in_pods = [await kubelet.start(pod, spec) for pod, spec in zip(network.pods, supervisors, strict=True)]
    # Everything is on this machine: the environment's proxies are for the world outside.
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        yield Cluster(network, kubelet, (in_hub,), tuple(in_pods), http)
