"""vLLM over pods from the shipped unit files, and what is asked of it from outside."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import httpx
import msgspec

from controller.demo.engines import NODE_EXPORTER, REDIS_SERVER, VLLM, Engines, tiny_model_for_vllm
from controller.demo.kubelet import Kubelet
from controller.demo.tiny_model import Shape
from supervisor import wire
from tests.engines.vllm.pod_look import SCRIPT, PodLook, Process, left_behind
from tests.pods.harness import UNITS, Cluster, PodsFactory, Tables, cluster, eventually
from tests.pods.stage import STAYS, shipped
from tests.support.installed_engines import program

ENGINE = "vllm"
PORT = 8000
LOAD_SEC = 600.0
"""A start takes 20 to 60 s on two quiet cores."""
POLL_SEC = 0.25
"""Seldom, because asking costs the cores on which it loads."""
ANSWER_SEC = 60.0
"""The first completion takes up to 10 s."""

# What a CPU needs, and a pod without a way out. The rest is the shipped profile's and the launcher's.
ON_A_CPU = """
[Service.Environment]
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
VLLM_CPU_OMP_THREADS_BIND = "nobind"
OMP_NUM_THREADS = "1"

[Engine]
ServedModelName = ["tiny"]

[Engine.Args]
dtype = "float32"
enforce-eager = true
max-model-len = 1024
max-num-seqs = 4
max-num-batched-tokens = 256
num-gpu-blocks-override = 64
"""

NO_BUDGET: Tables = {
    "fault_tolerance_config": {
        "engine_relaunch_poll_interval_sec": 0.2,
        "engine_relaunch_max_attempts": 100,
        "engine_relaunch_backoff_sec": 0,
    }
}
"""For a test that kills one engine after the other on purpose."""


def units(drop_in: str = "") -> dict[str, str]:
    """The shipped files, and as drop-ins what a CPU needs and what a test changes."""
    profile = (UNITS / "profiles" / "vllm" / "vllm.toml").read_text()
    drop_ins = {"vllm.toml.d/cpu.toml": ON_A_CPU, "vllm.toml.d/test.toml": drop_in}
    return {"vllm.toml": profile, **shipped(*STAYS), **drop_ins}


@dataclass(frozen=True)
class Look:
    """One moment of the whole gang."""

    pods: tuple[PodLook, ...]
    units: tuple[Mapping[str, int | None], ...]
    """Pids by unit, for each pod; the supervisor's too."""

    def engine(self, rank: int) -> tuple[Process, ...]:
        """The processes of the engine's tree in that pod."""
        main = self.units[rank][ENGINE]
        return self.pods[rank].tree(main) if main is not None else ()


class Gang:
    """Made by `Stage.gang`."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.ranks = range(len(running.network.pods))

    async def active(self, after_epoch: int = 0) -> int:
        """Wait until the instance is ACTIVE in a later epoch than that; the epoch."""

        async def ask() -> wire.InstanceView | None:
            return await self.instance()

        def is_active(found: wire.InstanceView | None) -> bool:
            return found is not None and found.status == "active" and found.epoch > after_epoch

        found = await eventually(
            ask, is_active, f"ACTIVE after epoch {after_epoch}", timeout_sec=LOAD_SEC, poll_sec=POLL_SEC
        )
        assert found is not None
        return found.epoch

    async def instance(self) -> wire.InstanceView | None:
        answer = await self.running.from_controller("/v1/instances")
        found = msgspec.convert(answer, wire.InstancesView).instances if answer is not None else ()
        return found[0] if len(found) == 1 else None

    async def runs(self, after_epoch: int = 0) -> tuple[wire.RunView, ...]:
        """Oldest first."""
        answer = await self.running.from_controller("/v1/relaunches")
        found = msgspec.convert(answer, wire.RelaunchesView).relaunches if answer is not None else ()
        return tuple(sorted((run for run in found if run.epoch > after_epoch), key=lambda run: run.epoch))

    async def look(self) -> Look:
        pods = tuple([await self._look_into(rank) for rank in self.ranks])
        return Look(pods, tuple([await self._pids(rank) for rank in self.ranks]))

    async def kill(self, rank: int, pid: int, name: str = "KILL") -> None:
        """A signal to a process in that pod, as its pod numbers it."""
        await self.inside(rank, "kill", f"-{name}", str(pid))

    async def inside(self, rank: int, *argv: str) -> str:
        """The output of a command in that pod."""
        container = self.running.supervisors[rank].container
        assert container is not None, f"no container in pod {rank} at the moment"
        done = await container.exec(argv, timeout_sec=LOAD_SEC)
        assert done.exit_code == 0, done.output
        return done.output

    async def complete(self, prompt: str = "Hello", timeout_sec: float = ANSWER_SEC) -> str:
        """The text with which it goes on at temperature 0. Raises httpx.HTTPError."""
        question = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
        url = f"http://{self.running.network.pods[0].address}:{PORT}/v1/completions"
        answer = await self.running.http.post(url, json=question, timeout=timeout_sec)
        return str(answer.raise_for_status().json()["choices"][0]["text"])

    async def health(self) -> int | None:
        """The status of /health; None while nobody listens."""
        try:
            answer = await self.running.http.get(f"http://{self.running.network.pods[0].address}:{PORT}/health")
        except httpx.TransportError:
            return None
        return answer.status_code

    async def _look_into(self, rank: int) -> PodLook:
        return msgspec.json.decode(await self.inside(rank, sys.executable, "-I", str(SCRIPT)), type=PodLook)

    async def _pids(self, rank: int) -> Mapping[str, int | None]:
        view = msgspec.convert(await self.running.podvisor(rank, "status"), wire.UnitsView)
        return {unit.name: unit.pid for unit in view.units} | {"supervisor": view.supervisor.pid}


def check_relaunched(before: Look, now: Look, gang: Gang) -> None:
    """Other engines in all pods, everything else as it was, and nothing left of the old ones."""
    for rank in gang.ranks:
        kept = {name: pid for name, pid in before.units[rank].items() if name != ENGINE}
        assert {name: now.units[rank][name] for name in kept} == kept
        assert now.units[rank][ENGINE] not in (None, before.units[rank][ENGINE])
        assert left_behind(before.engine(rank), before.pods[rank], now.pods[rank]) == []
        assert strangers(now, rank) == []
        assert gang.running.supervisors[rank].restart_count == 0


def strangers(look: Look, rank: int) -> list[str]:
    """Processes in that pod that belong to no unit: orphans."""
    mains = {pid for name, pid in look.units[rank].items() if pid is not None and name != "supervisor"}
    of_units = {one.pid for main in mains for one in look.pods[rank].tree(main)}
    ours = of_units | {look.units[rank]["supervisor"]}
    return [str(one) for one in look.pods[rank].processes if one.pid not in ours and SCRIPT.name not in one.title]


def timeline(run: wire.RunView, since: float) -> str:
    """When which step of the run was over, in seconds after `since` (wall clock)."""
    names = {"prepare": "all clean", "start": "all spawned", "await": "ready"}
    moments = [("death known", run.steps[0].started_at)]
    moments += [(names[step.name], step.ended_at) for step in run.steps if step.name in names and step.ended_at]
    return ", ".join(f"{name} {datetime.fromisoformat(at).timestamp() - since:+.2f} s" for name, at in moments)


def report(line: str) -> None:
    """For who runs `make test-vllm`."""
    print(f"  {line}", flush=True)


@dataclass(frozen=True)
class Stage:
    """Where gangs of vLLM are opened: what every test here plays on."""

    pods: PodsFactory
    kubelet: Kubelet
    engines: Engines

    @asynccontextmanager
    async def gang(
        self,
        pods: int,
        *,
        drop_in: str = "",
        shape: Shape = Shape(),  # noqa: B008  (frozen)
        further_units: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        controller_settings: Tables = NO_BUDGET,
        supervisor_settings: Tables | None = None,
    ) -> AsyncIterator[Gang]:
        """One instance over so many pods. Skips where a program is missing."""
        for name in (VLLM, REDIS_SERVER, NODE_EXPORTER):
            program(self.engines, name)
        model = await tiny_model_for_vllm(self.engines, shape)
        async with cluster(
            await self.pods(pods),
            self.kubelet,
            {**units(drop_in), **(further_units or {})},
            controller_settings=controller_settings,
            supervisor_settings=supervisor_settings,
            environment={"MODEL_PATH": str(model), **(environment or {})},
            search_path=self.engines.search_path,
        ) as running:
            yield Gang(running)
