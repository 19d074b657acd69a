"""A stand-in for the kubelet: keeps one container running in each pod, as `restartPolicy: Always` does.

Restart with back-off, TERM then grace then KILL, HTTP probes, the same address and volume over restarts
and a new file system each time. What a kubelet does besides (images, several containers, eviction) is not
here. The rules are those of https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
"""

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from controller.demo.kubelet_probe import HttpProbe, Prober
from controller.demo.pod import Container, Pod
from controller.demo.timeline import Timeline


@dataclass(frozen=True)
class BackOff:
    """Seconds between an exit and the restart. The defaults are the kubelet's.

    `scaled` makes a test quick.
    """

    first_sec: float = 10.0
    maximum_sec: float = 300.0
    reset_after_sec: float = 600.0

    def scaled(self, factor: float) -> "BackOff":
        return BackOff(self.first_sec * factor, self.maximum_sec * factor, self.reset_after_sec * factor)


def restart_delay(back_off: BackOff, previous_sec: float | None, uptime_sec: float) -> float:
    """The wait before the next restart, given the wait before the last one (None: there was none).

    The first restart is immediate, the second waits `first_sec`, then the wait doubles; a life of
    `reset_after_sec` starts anew.
    """
    if previous_sec is None or uptime_sec >= back_off.reset_after_sec:
        return 0.0
    if previous_sec == 0.0:
        return back_off.first_sec
    return min(previous_sec * 2, back_off.maximum_sec)


@dataclass(frozen=True)
class ContainerSpec:
    """What a pod manifest would say of its one container."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_period_sec: float = 30.0
    startup: HttpProbe | None = None
    readiness: HttpProbe | None = None
    liveness: HttpProbe | None = None


@dataclass(frozen=True)
class ContainerStarted:
    pod: str
    life: int
    log: Path


@dataclass(frozen=True)
class ContainerExited:
    pod: str
    life: int
    exit_code: int
    uptime_sec: float


@dataclass(frozen=True)
class RestartWaits:
    """CrashLoopBackOff; a delay of 0 is told too."""

    pod: str
    delay_sec: float


@dataclass(frozen=True)
class ReadinessChanged:
    pod: str
    ready: bool


@dataclass(frozen=True)
class ProbeKills:
    """A startup or liveness probe failed for good: the container is being stopped."""

    pod: str
    probe: str


KubeletEvent = ContainerStarted | ContainerExited | RestartWaits | ReadinessChanged | ProbeKills


class KubeletPod:
    """One pod under the kubelet's care; read by anyone, changed by the kubelet alone."""

    def __init__(self, pod: Pod, spec: ContainerSpec) -> None:
        self.pod = pod
        self.spec = spec
        self.container: Container | None = None
        self.exit_codes: list[int] = []
        self.logs: list[Path] = []
        self.ready = False
        self.removal_asked = trio.Event()
        self.removed = trio.Event()

    @property
    def restart_count(self) -> int:
        return max(0, len(self.logs) - 1)

    async def remove(self) -> None:
        """Delete the pod: TERM, grace period, KILL; no restart. Returns when the container is gone."""
        self.removal_asked.set()
        await self.removed.wait()


class Kubelet:
    """Keeps the containers of its pods running and tells the timeline what happens. Made by `open_kubelet`."""

    def __init__(self, nursery: trio.Nursery, back_off: BackOff) -> None:
        self.timeline: Timeline[KubeletEvent] = Timeline()
        self._nursery = nursery
        self._back_off = back_off

    async def start(self, pod: Pod, spec: ContainerSpec) -> KubeletPod:
        """Keep the pod's container running until `KubeletPod.remove`; returns when the first life is up.

        A container that cannot be started ends the kubelet with ContainerStartError: here that is a mistake of ours.
        """
        kept = KubeletPod(pod, spec)
        await self._nursery.start(self._run, kept)
        return kept

    async def _run(self, kept: KubeletPod, *, task_status: trio.TaskStatus[None]) -> None:
        delay: float | None = None
        first_life: trio.TaskStatus[None] = task_status
        try:
            while True:
                uptime_sec = await self._one_life(kept, first_life)
                first_life = trio.TASK_STATUS_IGNORED
                if kept.removal_asked.is_set():
                    return
                delay = restart_delay(self._back_off, delay, uptime_sec)
                self.timeline.publish(RestartWaits(kept.pod.name, delay))
                with trio.move_on_after(delay):
                    await kept.removal_asked.wait()
                    return
        finally:
            kept.removed.set()

    async def _one_life(self, kept: KubeletPod, started: trio.TaskStatus[None]) -> float:
        pod, spec, life = kept.pod, kept.spec, len(kept.logs)
        log = pod.logs / f"life-{life}.log"
        async with pod.container(spec.argv, log=log, environment=spec.environment) as container:
            began = trio.current_time()
            kept.container = container
            kept.logs.append(log)
            self.timeline.publish(ContainerStarted(pod.name, life, log))
            started.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_asked, kept, container)
                nursery.start_soon(self._probe, kept, container)
                exit_code = await container.wait()
                nursery.cancel_scope.cancel()
            uptime_sec = trio.current_time() - began
            self._set_ready(kept, False)
            kept.container = None
            kept.exit_codes.append(exit_code)
        self.timeline.publish(ContainerExited(pod.name, life, exit_code, uptime_sec))
        return uptime_sec

    async def _stop_when_asked(self, kept: KubeletPod, container: Container) -> None:
        await kept.removal_asked.wait()
        self._set_ready(kept, False)
        await _stop(container, kept.spec.grace_period_sec)

    async def _probe(self, kept: KubeletPod, container: Container) -> None:
        """The startup probe gates the two others. Without a readiness probe, started means ready."""
        spec, address = kept.spec, kept.pod.address
        if spec.startup is not None:
            async with Prober(spec.startup, address) as prober:
                if not await prober.next_verdict():
                    await self._probe_failed(kept, container, "startup")
                    return
        async with trio.open_nursery() as nursery:
            if spec.liveness is not None:
                nursery.start_soon(self._watch_liveness, kept, container, spec.liveness)
            if spec.readiness is not None:
                nursery.start_soon(self._watch_readiness, kept, spec.readiness)
            else:
                self._set_ready(kept, True)

    async def _watch_readiness(self, kept: KubeletPod, probe: HttpProbe) -> None:
        async with Prober(probe, kept.pod.address) as prober:
            while True:
                passing = await prober.next_verdict()
                self._set_ready(kept, passing and not kept.removal_asked.is_set())

    async def _watch_liveness(self, kept: KubeletPod, container: Container, probe: HttpProbe) -> None:
        async with Prober(probe, kept.pod.address) as prober:
            while await prober.next_verdict():
                continue
        await self._probe_failed(kept, container, "liveness")

    async def _probe_failed(self, kept: KubeletPod, container: Container, probe: str) -> None:
        if kept.removal_asked.is_set():
            return  # Of a pod that is being deleted only readiness is asked.
        self.timeline.publish(ProbeKills(kept.pod.name, probe))
        await _stop(container, kept.spec.grace_period_sec)

    def _set_ready(self, kept: KubeletPod, ready: bool) -> None:
        if ready != kept.ready:
            kept.ready = ready
            self.timeline.publish(ReadinessChanged(kept.pod.name, ready))


@asynccontextmanager
async def open_kubelet(back_off: BackOff | None = None) -> AsyncIterator[Kubelet]:
    """Leaving kills all containers with SIGKILL; `KubeletPod.remove` is the gentle way."""
    async with trio.open_nursery() as nursery:
        yield Kubelet(nursery, back_off or BackOff())
        nursery.cancel_scope.cancel()


async def _stop(container: Container, grace_period_sec: float) -> None:
    container.kill(signal.SIGTERM)
    with trio.move_on_after(grace_period_sec):
        await container.wait()
        return
    container.kill(signal.SIGKILL)
