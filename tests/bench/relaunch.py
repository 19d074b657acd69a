"""One worker of a gang over two pods is killed: how long until both new workers run, and where the time goes.

The pods are plain processes on loopback addresses, here and for torchrun, whose two agents meet at a c10d rendezvous.
The worker does nothing, so that what is measured is the coordination alone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import trio

from controller.demo.cluster import Cluster, controller_spec, running_cluster, supervisor_spec, write_units
from controller.demo.kubelet import open_kubelet
from controller.demo.sandbox import open_network
from tests.bench.figures import Goal, Sheet
from tests.bench.managers import INSTALL, peers_directory
from tests.bench.running import free_port, running
from tests.bench.workers import Birth, Births, open_births

PODS = 2
KILLS = 15
KILLS_OF_TORCHRUN = 10
GAP_SEC = (0.2, 0.7)
TORCHRUN_SEC = 35.0
SHOWN = 6000
NAME = "kill -9 of one to both new workers running"
GOAL = Goal(300)
PREPARING = "kill to both asked to prepare"
OPENING = "kill to the run's opening"
"""The controller has been told, and has opened a run."""
GOALS_OF_STEPS = {OPENING: Goal(100), PREPARING: Goal(300), "start": Goal(300), "await": Goal(1000)}
"""Design 4, figures to reach; `await` is from both spawned to the instance ACTIVE, and after both run."""

ENGINE = """
[Service]
ExecStart = {command}

[Engine]
Launcher = "exec"
"""
NO_LIMITS: Mapping[str, Mapping[str, object]] = {
    "fault_tolerance_config": {"engine_relaunch_backoff_sec": 0, "engine_relaunch_max_attempts": 100}
}
"""One relaunch after the other: in service the second would wait 30 s."""


async def measure(sheet: Sheet, scratch: Path) -> None:
    await _podvisor(sheet, scratch / "podvisor")
    python = peers_directory() / "bin" / "python"
    if (peers_directory() / "bin" / "torchrun").exists():
        await _torchrun(sheet, scratch / "torchrun", python)
    else:
        sheet.remark(f"torchrun is not there: {INSTALL} --torch")


class Gang:
    """The workers that run now, by label; one for each pod."""

    def __init__(self, births: Births) -> None:
        self._births = births
        self._workers: dict[str, Birth] = {}

    async def all_born(self) -> int:
        """Wait until every pod has a new worker; when the last one came, on time.monotonic_ns()'s clock."""
        born: dict[str, Birth] = {}
        while len(born) < PODS:
            birth = await self._births.next()
            born[birth.label] = birth
        self._workers = born
        return max(birth.at_ns for birth in born.values())

    def kill_one(self) -> int:
        """SIGKILL to one of them, any; when."""
        worker = random.choice(list(self._workers.values()))
        at_ns = time.monotonic_ns()
        os.kill(worker.pid, signal.SIGKILL)
        return at_ns


async def _podvisor(sheet: Sheet, directory: Path) -> None:
    directory.mkdir()
    samples: list[float] = []
    steps: dict[str, list[float]] = {}
    try:
        async with open_births(directory / "births") as births, _two_pods(directory, births) as pods:
            gang = Gang(births)
            await gang.all_born()
            epoch = (await pods.instance(_is_active))["epoch"]
            for _ in range(KILLS):
                await trio.sleep(random.uniform(*GAP_SEC))
                wall = time.time()
                killed_ns = gang.kill_one()
                samples.append((await gang.all_born() - killed_ns) / 1e6)
                epoch = (await pods.instance(partial(_is_active_after, epoch)))["epoch"]
                run = (await pods.from_controller("/v1/relaunches"))["relaunches"][0]
                for name, spent in _spent(run, wall).items():
                    steps.setdefault(name, []).append(spent)
    finally:
        sheet.add("podvisor", NAME, "ms", samples, GOAL)
        for name, values in steps.items():
            sheet.add("podvisor", f"- {name}", "ms", values, GOALS_OF_STEPS.get(name))


@asynccontextmanager
async def _two_pods(directory: Path, births: Births) -> AsyncIterator[Cluster]:
    engine = ENGINE.format(command=json.dumps(list(births.command("pod${NODE_RANK}"))))
    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(open_kubelet())
        network = await stack.enter_async_context(open_network(PODS, directory / "pods", namespaces=False))
        supervisors = [
            supervisor_spec(
                network,
                rank,
                [write_units(pod.volume / "units", {"engine.toml": engine})],
                settings={"supervisor": {"socket": str(pod.volume / "socket")}},
            )
            for rank, pod in enumerate(network.pods)
        ]
        controller = controller_spec(network, settings=NO_LIMITS)
        pods = await stack.enter_async_context(running_cluster(network, kubelet, controller, supervisors))
        try:
            yield pods
        except BaseException:
            print(pods.logs()[-SHOWN:], file=sys.stderr)
            raise


def _is_active(instance: Mapping[str, Any]) -> bool:
    return bool(instance["status"] == "active")


def _is_active_after(epoch: int, instance: Mapping[str, Any]) -> bool:
    return _is_active(instance) and bool(instance["epoch"] > epoch)


def _spent(run: Mapping[str, Any], killed_at: float) -> dict[str, float]:
    """Milliseconds by step of a closed run; on the wall clock, whose whole milliseconds the controller tells."""
    steps = {step["name"]: step for step in run["steps"]}
    opened, preparing = run["steps"][0]["started_at"], steps["prepare"]["started_at"]
    spent = {OPENING: _wall(opened) - killed_at, PREPARING: _wall(preparing) - killed_at}
    spent |= {name: _wall(step["ended_at"]) - _wall(step["started_at"]) for name, step in steps.items()}
    return {name: 1e3 * seconds for name, seconds in spent.items()}


def _wall(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def _torchrun(sheet: Sheet, directory: Path, python: Path) -> None:
    directory.mkdir()
    samples: list[float] = []
    with trio.move_on_after(TORCHRUN_SEC):
        async with open_births(directory / "births") as births, AsyncExitStack() as stack:
            rendezvous = f"127.0.0.1:{free_port()}"
            for agent in range(PODS):
                own = directory / f"agent{agent}"
                own.mkdir()
                argv = _agent(python, rendezvous, births.command(f"pod{agent}"))
                await stack.enter_async_context(running(argv, own))
            gang = Gang(births)
            await gang.all_born()
            while len(samples) < KILLS_OF_TORCHRUN:
                await trio.sleep(random.uniform(*GAP_SEC))
                killed_ns = gang.kill_one()
                samples.append((await gang.all_born() - killed_ns) / 1e6)
    sheet.add(f"torchrun of torch {_torch_version()}", NAME, "ms", samples)


def _agent(python: Path, rendezvous: str, worker: Sequence[str]) -> list[str]:
    """One of two agents, with everything that is not named at its default."""
    settings = {
        "nnodes": PODS,
        "nproc-per-node": 1,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": rendezvous,
        "rdzv-id": "bench",
        "max-restarts": 1000,
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    return [str(python), "-m", "torch.distributed.run", *flags, "--no-python", *worker]


def _torch_version() -> str:
    """Read from its directory's name: importing it takes seconds."""
    found = sorted((peers_directory() / "lib").glob("python*/site-packages/torch-*.dist-info"))
    return found[-1].name.removeprefix("torch-").removesuffix(".dist-info") if found else "of unknown version"
