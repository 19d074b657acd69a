"""The whole gang in virtual time: supervisors that ship against the controller that ships, on a memory network.

What must hold in every test (design 4, I1, I3, C2, C6) is checked when the gang is closed.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import trio

from controller.election import Election
from controller.events import ControllerEvent
from controller.model.instance import Instance, InstanceStatus
from controller.policy import Policy
from supervisor import wire
from tests.support.controller_world import HOST, World, open_world
from tests.support.controller_world import PORT as CONTROLLER_PORT
from tests.support.fake_supervisor import Record
from tests.support.virtual_pod import ENGINE, MONITOR, PORT, STORE, Script, VirtualPod

JOB = "job"
PATIENCE_SEC = 20_000.0
"""Virtual: only a test that hangs notices."""
FREEZE_SEC = 720.0
"""engine_restart_freeze_sec"""


@dataclass(eq=False)
class Gang:
    world: World
    pods: list[VirtualPod]
    history: list[Record] = field(default_factory=list)
    """Of all pods, in order."""
    alone: set[int] = field(default_factory=set)
    """Epochs that a test begins on one pod without the controller: no barrier is to be expected."""
    touched: set[str] = field(default_factory=set)
    """Units other than the engine that a test itself ends."""
    job: str = JOB

    # --- the controller --------------------------------------------------------------------------------------

    async def start_controller(self) -> None:
        await self.world.start_controller()

    async def stop_controller(self) -> None:
        """In good order: it aborts what it had begun."""
        await self.world.stop_controller()

    async def crash_controller(self) -> None:
        """Nobody is told anything any more."""
        for pod in self.pods:
            self.world.network.cut(HOST, pod.ip)
        await self.world.stop_controller()
        for pod in self.pods:
            self.world.network.heal(HOST, pod.ip)

    @property
    def events(self) -> list[ControllerEvent]:
        return [event for life in self.world.lives for event in life.events.since(0)]

    @property
    def runs(self) -> list[wire.RunView]:
        """The closed ones of this life of the controller, in order."""
        return list(reversed(self.world.it.registry.closed_runs))

    @property
    def step(self) -> str | None:
        """Of the open run."""
        found = self.world.it.registry.recoveries()
        return str(found[0].step) if found else None

    @property
    def instance(self) -> Instance | None:
        entries = self.world.it.registry.entries()
        return next((entry.instance for entry in entries if entry.instance.key.job_name == self.job), None)

    # --- paths -----------------------------------------------------------------------------------------------

    def cut_off(self, pod: VirtualPod) -> None:
        self.world.network.partition(pod.ip, HOST)

    def heal(self, pod: VirtualPod) -> None:
        self.world.network.heal(pod.ip, HOST)
        self.world.network.heal(HOST, pod.ip)

    def client(self, pod: VirtualPod) -> httpx.AsyncClient:
        """Somebody else's, to the node-manager API of the pod."""
        return self.world.network.client("tool", f"http://{pod.ip}:{PORT}", timeout=30)

    # --- what a test waits for -------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], within: float = PATIENCE_SEC, every: float = 0.05) -> None:
        with trio.move_on_after(within) as patience:
            while not condition():
                await trio.sleep(every)
        assert not patience.cancelled_caught, f"not within {within:g} s; this happened:\n{self.story()}"

    async def until_active(self, epoch: int = 1, within: float = PATIENCE_SEC) -> Instance:
        await self.until(lambda: self.is_active(epoch), within)
        assert self.instance is not None
        return self.instance

    def is_active(self, epoch: int = 1) -> bool:
        """The controller says so, and it is so."""
        instance = self.instance
        return (
            instance is not None
            and instance.status is InstanceStatus.ACTIVE
            and instance.epoch >= epoch
            and all(pod.serves and pod.state.epoch == instance.epoch for pod in self.pods)
        )

    # --- what a test looks at --------------------------------------------------------------------------------

    def did(self, *whats: str, since: float = 0.0, who: VirtualPod | None = None) -> list[Record]:
        return [
            record
            for record in self.history
            if record.what in whats and record.at >= since and who in (None, self.pod_of(record))
        ]

    def pod_of(self, record: Record) -> VirtualPod:
        return next(pod for pod in self.pods if pod.ip == record.who)

    def statuses(self) -> list[str]:
        """The changes of the instance's status, over all lives of the controller."""
        return [event.status for event in self.events if event.kind == "instance" and event.status is not None]

    def story(self) -> str:
        """For a person who asks what happened."""
        told = [f"{r.at:10.3f} {r.who} {r.what} epoch={r.epoch}" for r in self.history]
        said = [f"{event.kind}: {event.message}" for event in self.events]
        now = [f"{pod.ip}: {pod.state if pod.it.alive else 'no container'}" for pod in self.pods if pod.boots]
        return "\n".join((*told[-80:], "--- events of the controller", *said[-60:], "--- now", *now))

    # --- what must always hold -------------------------------------------------------------------------------

    def broken(self) -> list[str]:
        """Invariants of design 4 that did not hold so far, in words."""
        found = [words for pod in self.pods for words in pod.broken]
        return [*found, *self._started_unprepared(), *self._other_units_touched(), *self._frozen_for_long()]

    def _started_unprepared(self) -> list[str]:
        """C2: no engine of a gang starts before all are prepared in that epoch."""
        prepared: dict[int, dict[str, float]] = defaultdict(dict)
        found = []
        for record in self.history:
            if record.what == "step:prepared":
                prepared[record.epoch][record.who] = record.at
            elif record.epoch in self.alone:
                continue
            elif record.what == "spawn" and (missing := {pod.ip for pod in self.pods} - prepared[record.epoch].keys()):
                found.append(f"C2: {record.who} starts epoch {record.epoch}, {sorted(missing)} is not prepared")
        return found if len(self.pods) > 1 else []

    def _other_units_touched(self) -> list[str]:
        """I3: in the whole life of a container its store and its monitor start once."""
        return [
            f"I3: {unit} of {pod.ip} was started {len(times)} times in one container"
            for pod in self.pods
            for boot in pod.boots
            for unit in {STORE, MONITOR} - self.touched
            if len(times := boot.processes.times(unit)) > 1
        ]

    def _frozen_for_long(self) -> list[str]:
        """I2: a freeze ends by itself."""
        found = []
        for pod in self.pods:
            since: float | None = None
            for record in [record for record in self.history if record.who == pod.ip]:
                if since is not None and record.at - since > FREEZE_SEC:
                    found.append(f"I2: {pod.ip} was frozen from {since:.3f} until {record.at:.3f} at least")
                if record.what == "frozen":
                    since = record.at
                elif record.what in ("unfrozen", "boot"):
                    since = None
            if since is not None and pod.it.alive and trio.current_time() - since > FREEZE_SEC:
                found.append(f"I2: {pod.ip} is frozen since {since:.3f}")
        return found


@asynccontextmanager
async def open_gang(
    size: int = 2,
    *,
    policy: Policy | None = None,
    elect: Callable[[], Election] | None = None,
    script: Script | None = None,
    fault_tolerance: dict[str, object] | None = None,
    supervisor: dict[str, object] | None = None,
    endpoints: int = 1,
    without_controller: bool = False,
    relations: str = "",
    sections: str = "",
    beside: Gang | None = None,
) -> AsyncIterator[Gang]:
    """`size` pods that boot at once, and their controller, or that of the gang `beside` them. Ends with the block, and
    then checks what must hold."""
    opens = open_world(policy, elect) if beside is None else nullcontext(beside.world)
    with tempfile.TemporaryDirectory() as volumes:
        async with opens as world, trio.open_nursery() as nursery:
            gang = Gang(world, [], job=JOB if beside is None else f"beside-{beside.job}")
            if without_controller:
                await gang.stop_controller()
            for rank in range(size):
                ip = f"10.{1 if beside is None else 2}.0.{rank}"  # the fakes of `World` are in 10.0
                section = {
                    "pod_ip": ip,
                    "controller_url": f"http://{HOST}:{CONTROLLER_PORT}",
                    "job_name": gang.job,
                    "model_name": "tiny",
                    "nnodes": size,
                    "node_index": rank,
                    "state_dir": f"{volumes}/{ip}",
                    "rendezvous_ports": "29500-29599",
                    **(supervisor or {}),
                }
                settings: dict[str, dict[str, object]] = {
                    "supervisor": section,
                    "parallel": {"dp_size": size * endpoints},
                    "fault_tolerance_config": fault_tolerance or {},
                    "auth": {"allow_anonymous": True},
                }
                pod = VirtualPod(
                    world.network,
                    Path(volumes) / ip,
                    ip,
                    settings,
                    gang.history,
                    script or Script(),
                    endpoints,
                    relations,
                    sections,
                )
                gang.pods.append(pod)
                nursery.start_soon(pod.run)
            await gang.until(lambda: all(pod.boots and hasattr(pod.it, "operations") for pod in gang.pods), every=0)
            yield gang
            broken = gang.broken()
            nursery.cancel_scope.cancel(reason="the test is over")
    assert not broken, "\n".join((*broken, gang.story()))


__all__ = ["ENGINE", "JOB", "STORE", "Gang", "Script", "VirtualPod", "open_gang"]
