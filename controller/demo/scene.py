"""The scene: two pods, one instance, one `kill -9`, and a look at everything before and after.

Who plays is `cast`'s, what is said of it `narrator`'s, whether it is what was promised `claims`'.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import trio

from controller.demo import evidence
from controller.demo.cast import ENGINE_PORT, RPC_PORT, Cast
from controller.demo.cluster import (
    Cluster,
    NotInTime,
    Tables,
    controller_spec,
    eventually,
    running_cluster,
    supervisor_spec,
    write_units,
)
from controller.demo.kubelet import ContainerExited, Kubelet, KubeletPod
from controller.demo.log_book import LogBook
from controller.demo.log_lines import Line, Record
from controller.demo.pod import Network
from controller.demo.seen import SUPERVISOR, Answer, PodSeen, Seen
from supervisor import wire

HEARTBEAT_SEC = 0.5
POLL_SEC = 0.2
SCALED_DOWN = f"heartbeat {HEARTBEAT_SEC:g} s (3 s), controller's poll {POLL_SEC:g} s (5 s), readiness 0.1 s (1 s)"

LOOK_SEC = 0.05
"""Between two looks at the logs."""
HOLD_BACK_SEC = 0.15
"""Until a line may be told: one of another pod, written before it, may not have been read yet."""
ANSWER_SEC = 10.0
LAST_WORDS = 6
FAILED = ("aborted", "phase2", "held")
"""Outcomes of a run after which the scene is not worth waiting for."""


class SceneFailed(Exception):
    """The scene did not get as far as the kill; says why."""


@dataclass(frozen=True, slots=True)
class Act:
    """Which engine dies, and how many of the two answer requests (dp_size)."""

    title: str
    victim: int
    serving: int

    @property
    def as_pair(self) -> bool:
        return self.serving == 1


ENGINE_DIES = Act("one instance over two pods, an engine in each", victim=0, serving=2)
SILENT_HALF_DIES = Act(
    "one model over two pods: pod0 serves, pod1 holds tensors and serves no HTTP, so that /health alone would"
    " never tell of its death",
    victim=1,
    serving=1,
)


@dataclass(frozen=True, slots=True)
class Before:
    """Taken just before the kill."""

    epoch: int
    pids: tuple[Mapping[str, int | None], ...]
    answers: tuple[Answer | None, ...]
    processes: tuple[evidence.EngineProcess, ...]


class Scene:
    """Made by `open_scene`. One relaunch is played in it."""

    def __init__(self, running: Cluster, act: Act, job_name: str, timeout_sec: float) -> None:
        kept = {"controller": running.controller}
        kept |= {pod.pod.name: pod for pod in running.supervisors}
        self.book = LogBook({name: _logs_of(pod) for name, pod in kept.items()})
        self._running = running
        self._act = act
        self._job_name = job_name
        self._timeout_sec = timeout_sec

    @asynccontextmanager
    async def following(self, hear: Callable[[Line], None]) -> AsyncIterator[None]:
        """While the block lasts, and once more at its end, `hear` gets every new line, in order."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, hear)
            nursery.start_soon(self._tell_of_exits, hear)
            yield
            nursery.cancel_scope.cancel()
        for line in self.book.read(before=float("inf")):
            hear(line)

    async def _follow(self, hear: Callable[[Line], None]) -> None:
        while True:
            for line in self.book.read(before=time.time() - HOLD_BACK_SEC):
                hear(line)
            await trio.sleep(LOOK_SEC)

    async def _tell_of_exits(self, hear: Callable[[Line], None]) -> None:
        """What no log can hold: that the container itself has ended."""
        timeline = self._running.kubelet.timeline
        since = timeline.next_number
        while True:
            entry = await timeline.wait_for(lambda event: isinstance(event, ContainerExited), since=since)
            since = entry.number + 1
            assert isinstance(entry.event, ContainerExited)
            message = f"its container has ended with exit code {entry.event.exit_code}, and is restarted"
            record = Record(time="", logger="kubelet", message=message, level="ERROR")
            hear(Line(entry.event.pod, 0, time.time(), message, record))

    async def assembled(self) -> None:
        """Until the instance is ACTIVE. Raises SceneFailed when it does not become so."""
        with trio.move_on_after(self._timeout_sec):
            while True:
                instance, runs = await self._instance(), await self._runs(after_epoch=0)
                if instance is not None and instance.status == "active":
                    return
                failed = next((run for run in runs if run.outcome in FAILED), None)
                if failed is not None:
                    raise SceneFailed(f"the engines could not be started: {failed.message}{self._last_words()}")
                await trio.sleep(LOOK_SEC)
        state = f"it is {instance.status.upper()}: {instance.reason}" if instance is not None else "there is none"
        raise SceneFailed(f"the instance was not ACTIVE within {self._timeout_sec:g} s: {state}{self._last_words()}")

    def _last_words(self) -> str:
        """What the engines wrote last, to be added to a sentence."""
        self.book.read(before=0.0)
        written = [line for kept in self._running.supervisors for line in self.book.of(kept.pod.name)]
        words = [f"  {line.pod}  {line.text}" for line in written if line.text.startswith("[engine ")]
        return "\n".join(("; the engines wrote last:", *words[-LAST_WORDS:])) if words else ""

    async def look(self) -> Before:
        instance = await self._instance()
        processes = await trio.to_thread.run_sync(evidence.engine_processes, self._job_name)
        return Before(
            epoch=instance.epoch if instance is not None else 0,
            pids=await self._pids(),
            answers=await self._answers(),
            processes=processes,
        )

    def kill(self, before: Before) -> tuple[str, int, float]:
        """SIGKILL to the victim's engine. Returns (pod, pid there, wall clock of the moment before)."""
        pod = self._running.network.pods[self._act.victim]
        main = next(found for found in before.processes if found.pod_ip == pod.address)
        pid = before.pids[self._act.victim]["engine"]
        assert pid is not None, "the instance is ACTIVE"
        at = time.time()
        main.process.kill()
        return pod.name, pid, at

    async def relaunched(self, before: Before) -> None:
        """Until a run of a later epoch is over, well or not, or the time is; the claims tell which."""

        async def ask() -> tuple[wire.RunView, ...]:
            return await self._runs(before.epoch)

        try:
            await eventually(ask, lambda runs: any(run.outcome for run in runs), "a run", timeout_sec=self._timeout_sec)
        except NotInTime:
            return

    async def seen(self, before: Before, victim: str, killed_at: float) -> Seen:
        """Everything that the claims are judged by, as it is now."""
        pids, answers = await self._pids(), await self._answers()
        now = await trio.to_thread.run_sync(evidence.engine_processes, self._job_name)
        left = evidence.left_of(before.processes, now, before.epoch)
        holders = [await self._port_holders(rank) for rank in range(len(pids))]
        instance, runs = await self._instance(), await self._runs(before.epoch)
        pods = tuple(
            PodSeen(
                name=kept.pod.name,
                before=before.pids[rank],
                after=pids[rank],
                restarts=kept.restart_count,
                port=self._port(rank),
                port_holders=holders[rank],
                lines=self.book.of(kept.pod.name),
                answer_before=before.answers[rank],
                answer_after=answers[rank],
            )
            for rank, kept in enumerate(self._running.supervisors)
        )
        return Seen(
            victim=victim,
            killed_at=killed_at,
            epoch_before=before.epoch,
            pods=pods,
            runs=runs,
            instance=instance,
            old_processes_before=len(before.processes),
            old_processes_after=tuple(map(str, left)),
        )

    async def _instance(self) -> wire.InstanceView | None:
        answer = await self._running.from_controller("/v1/instances")
        if answer is None:
            return None
        instances = msgspec.convert(answer, wire.InstancesView).instances
        return instances[0] if len(instances) == 1 else None

    async def _runs(self, after_epoch: int) -> tuple[wire.RunView, ...]:
        """Oldest first."""
        answer = await self._running.from_controller("/v1/relaunches")
        runs = msgspec.convert(answer, wire.RelaunchesView).relaunches if answer is not None else ()
        return tuple(sorted((run for run in runs if run.epoch > after_epoch), key=lambda run: run.epoch))

    async def _pids(self) -> tuple[Mapping[str, int | None], ...]:
        return tuple([await _pids_in(kept) for kept in self._running.supervisors])

    async def _answers(self) -> tuple[Answer | None, ...]:
        ranks = range(len(self._running.network.pods))
        return tuple([await self._complete(rank) if rank < self._act.serving else None for rank in ranks])

    async def _complete(self, rank: int) -> Answer:
        url = f"http://{self._running.network.pods[rank].address}:{self._port(rank)}/v1/completions"
        question = {"prompt": "Hello", "max_tokens": 8, "temperature": 0}
        try:
            answer = await self._running.http.post(url, json=question, timeout=ANSWER_SEC)
            text = str(answer.json()["choices"][0]["text"]) if answer.is_success else answer.text
        except (httpx.HTTPError, ValueError, LookupError) as error:
            return Answer(None, f"{type(error).__name__}: {error}")
        return Answer(answer.status_code, text)

    async def _port_holders(self, rank: int) -> tuple[int, ...]:
        container = self._running.supervisors[rank].container
        return await evidence.port_holders(container, self._port(rank)) if container is not None else ()

    def _port(self, rank: int) -> int:
        network = self._running.network
        return network.pods[rank].port(ENGINE_PORT) if rank < self._act.serving else _rpc_port(network)


@asynccontextmanager
async def open_scene(
    network: Network, kubelet: Kubelet, cast: Cast, act: Act, *, timeout_sec: float
) -> AsyncIterator[Scene]:
    """Start a controller in the hub and a supervisor in every pod. They are killed with the network."""
    job_name = f"demo-{uuid.uuid4().hex[:8]}"
    controller = controller_spec(
        network,
        settings={
            "controller": {"log_format": "json"},
            "fault_tolerance_config": {"engine_relaunch_poll_interval_sec": POLL_SEC},
        },
    )
    supervisors = [
        supervisor_spec(
            network,
            rank,
            [write_units(pod.volume / "units", cast.units(pod, _rpc_port(network)))],
            job_name=job_name,
            settings=_settings(network, rank, act),
            environment=cast.environment(pod),
            search_path=cast.search_path,
        )
        for rank, pod in enumerate(network.pods)
    ]
    async with running_cluster(network, kubelet, controller, supervisors) as running:
        yield Scene(running, act, job_name, timeout_sec)


def _settings(network: Network, rank: int, act: Act) -> Tables:
    return {
        "supervisor": {
            "heartbeat_interval_seconds": HEARTBEAT_SEC,
            "log_format": "json",
            "socket": str(_socket(network.pods[rank].volume)),
        },
        "parallel": {"dp_size": act.serving},
    }


def _rpc_port(network: Network) -> int:
    """Of the one worker; its peer looks for it on the port that it is told itself."""
    return network.hub.port(RPC_PORT)


def _socket(volume: Path) -> Path:
    """On the volume, where this program can reach it too."""
    return volume / "podvisor.sock"


def _logs_of(kept: KubeletPod) -> Callable[[], Sequence[Path]]:
    return lambda: kept.logs


async def _pids_in(kept: KubeletPod) -> Mapping[str, int | None]:
    """By unit, and the supervisor's own; empty while it does not answer. Asked as `podvisor status` asks."""
    transport = httpx.AsyncHTTPTransport(uds=str(_socket(kept.pod.volume)))
    async with httpx.AsyncClient(transport=transport, timeout=ANSWER_SEC) as http:
        try:
            answer = await http.get("http://podvisor/v1/units")
        except httpx.TransportError:
            return {}
    view = wire.decode(wire.UnitsView, answer.content)
    return {unit.name: unit.pid for unit in view.units} | {SUPERVISOR: view.supervisor.pid}
