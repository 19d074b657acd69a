"""An instance of real engines with its store and its monitors, for the tests here: how it is set up and looked at.

`Stage.gang` starts one over all pods; what a test does to it and sees of it are the functions above.
"""

import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.demo.engines import NODE_EXPORTER, REDIS_SERVER, Engines, tiny_model
from controller.demo.kubelet import Kubelet
from controller.demo.pod import Network
from controller.demo.tiny_model import Shape
from tests.pods.harness import (
    UNITS,
    Cluster,
    PodsFactory,
    Tables,
    controller_spec,
    running_cluster,
    supervisor_spec,
    write_units,
)

ENGINE_PORT = 10000
OWN_MODEL = "model.gguf"
STAYS = ("redis", "node-exporter")
ENGINE = """
[Unit]
Description = "llama-server"
Requires = ["redis"]
After = ["redis"]

[Engine]
Launcher = "llama-server"
Model = "{model}"
[Engine.Args]
ctx-size = {context}
threads = 1
"""
QUICK: Mapping[str, Mapping[str, object]] = {
    "supervisor": {"heartbeat_interval_seconds": 0.5, "role": "union"},
}
ONE_EACH = {**QUICK, "parallel": {"dp_size": 2}}
NO_LIMITS: Tables = {"fault_tolerance_config": {"engine_relaunch_backoff_sec": 0, "engine_relaunch_max_attempts": 100}}
"""One relaunch after the other."""
RESTART_ALL: Tables = {"fault_tolerance_config": {"on_member_lost": "restart-all"}}


def units(model: Path, context: int = 256) -> dict[str, str]:
    return {"engine.toml": ENGINE.format(model=model, context=context), **shipped(*STAYS)}


def shipped(*names: str) -> dict[str, str]:
    """Unit files of `units/`, as they are."""
    return {f"{name}.toml": (UNITS / f"{name}.toml").read_text() for name in names}


def is_active(instance: Mapping[str, Any]) -> bool:
    return bool(instance["status"] == "active")


def is_later_than(instance: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda found: bool(found["epoch"] > instance["epoch"])


def is_active_again(instance: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """In a later epoch than `instance`."""
    is_later = is_later_than(instance)
    return lambda found: is_active(found) and is_later(found)


async def complete(running: Cluster, rank: int) -> str:
    """What the engine of that pod answers to a completion request."""
    url = f"http://{running.network.pods[rank].address}:{ENGINE_PORT}/v1/completions"
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(url, json={"prompt": "Hello", "max_tokens": 4, "temperature": 0})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


async def pids(running: Cluster, rank: int) -> dict[str, int]:
    """By unit, and the supervisor's own, as the pod numbers them."""
    view = await running.podvisor(rank, "status")
    found = {unit["name"]: unit["pid"] for unit in view["units"]}
    return {**found, "supervisor": view["supervisor"]["pid"]}


async def kill_engine(running: Cluster, rank: int) -> int:
    """SIGKILL to the engine's main process; the pid that it had."""
    pid = (await pids(running, rank))["engine"]
    await kill_process(running, rank, pid)
    return pid


async def kill_process(running: Cluster, rank: int, pid: int, signal_name: str = "KILL") -> None:
    """A signal to a process as the pod numbers it."""
    container = running.supervisors[rank].container
    assert container is not None
    done = await container.exec(["kill", f"-{signal_name}", str(pid)])
    assert done.exit_code == 0, done.output


def stdout(running: Cluster, rank: int) -> str:
    return running.supervisors[rank].logs[-1].read_text(errors="replace")


def banners(running: Cluster, rank: int) -> list[str]:
    return re.findall(r"^\[ENGINE RELAUNCH #\d+\].*$", stdout(running, rank), re.MULTILINE)


async def is_gone(running: Cluster, rank: int, pid: int) -> bool:
    container = running.supervisors[rank].container
    assert container is not None
    done = await container.exec(["test", "-e", f"/proc/{pid}"])
    return done.exit_code != 0


def kill_supervisor(running: Cluster, rank: int) -> None:
    """SIGKILL to PID 1: its container ends, and everything in it."""
    container = running.supervisors[rank].container
    assert container is not None
    container.kill(signal.SIGKILL)


def statuses(running: Cluster) -> list[str]:
    """What the instance became, one after the other."""
    log = running.controller.logs[-1].read_text(errors="replace")
    return re.findall(r'"message": ?"\w+ -> (\w+):', log)


async def relaunches(running: Cluster) -> list[Mapping[str, Any]]:
    answer = await running.from_controller("/v1/relaunches")
    return [] if answer is None else list(answer["relaunches"])


@dataclass(frozen=True)
class Part:
    """What one pod is given."""

    units: Mapping[str, str]
    settings: Tables
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Pods, their kubelet and the real programs: what every test here plays on."""

    pods: PodsFactory
    kubelet: Kubelet
    engines: Engines

    def need(self, *programs: str) -> None:
        """Skips where one is missing."""
        for program in programs:
            if program in self.engines.missing:
                pytest.skip(self.engines.missing[program])

    @asynccontextmanager
    async def cluster(
        self, network: Network, parts: Sequence[Part], *, controller_settings: Tables | None = None
    ) -> AsyncIterator[Cluster]:
        """A controller and, in each pod, its part. An error in the block shows all logs."""
        supervisors = [
            supervisor_spec(
                network,
                rank,
                [write_units(pod.volume / "units", part.units)],
                settings=part.settings,
                environment=part.environment,
                search_path=self.engines.search_path,
            )
            for rank, (pod, part) in enumerate(zip(network.pods, parts, strict=True))
        ]
        controller = controller_spec(network, settings=controller_settings)
        async with running_cluster(network, self.kubelet, controller, supervisors) as running:
            try:
                yield running
            except Exception as error:
                error.add_note(running.logs())
                raise

    @asynccontextmanager
    async def gang(
        self,
        *programs: str,
        pods: int = 2,
        engine: str | None = None,
        model: Path | None = None,
        context: int = 256,
        own_models: bool = False,
        supervisor_settings: Tables,
        controller_settings: Tables | None = None,
    ) -> AsyncIterator[Cluster]:
        """One instance over all pods, with Redis and node-exporter in each; skips where a program is missing.

        `engine` is the unit file of another engine, `model` another one than the tiny; with `own_models` each pod
        serves a copy of its own.
        """
        self.need(*programs, REDIS_SERVER, NODE_EXPORTER)
        model = model or await tiny_model(self.engines, Shape())
        network = await self.pods(pods)
        if own_models:
            for pod in network.pods:
                (pod.volume / OWN_MODEL).write_bytes(model.read_bytes())
            model = Path("${POD_VOLUME}", OWN_MODEL)
        part = Part({**units(model, context), **({"engine.toml": engine} if engine else {})}, supervisor_settings)
        async with self.cluster(network, [part] * pods, controller_settings=controller_settings) as running:
            yield running
