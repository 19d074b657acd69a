"""A controller and fake supervisors on one memory network, for the virtual tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import trio

from controller.api.heartbeat_lane import BackToTheLane, HeartbeatLane
from controller.api.leader_routes import standby_app
from controller.app import compose
from controller.door import Controller, Door
from controller.election import Election, Leadership, MemoryElection
from controller.engines import Engines
from controller.kubernetes.kubernetes import Make
from controller.lead import lead
from controller.model.instance import Instance, InstanceStatus
from controller.model.settings import OnMemberLost, RelaunchSettings
from controller.policy import Policy
from controller.store.memory import MemoryStore
from controller.strategy.third_party import Offer
from controller.supervisors import Supervisors
from supervisor import wire
from supervisor.shared.serving import Message, Receive, Send
from tests.support.fake_supervisor import FakeSupervisor, Record, Script
from tests.support.memory_network import MemoryNetwork, open_memory_network

HOST, PORT = "controller", 1026
URL = f"http://{HOST}:{PORT}"
RESTART_ALL = Policy(relaunch=RelaunchSettings(on_member_lost=OnMemberLost.RESTART_ALL))
PATIENCE_SEC = 4000
"""Virtual: only a test that hangs notices."""


@dataclass(eq=False)
class World:
    network: MemoryNetwork
    nursery: trio.Nursery
    policy: Policy
    client: httpx.AsyncClient
    history: list[Record] = field(default_factory=list)
    gangs: dict[str, list[FakeSupervisor]] = field(default_factory=dict)
    controllers: int = 0
    store: MemoryStore = field(default_factory=MemoryStore)
    elect: Callable[[], Election] | None = None
    """What a controller stands for; None: a store that ends with it."""
    notes: dict[str, object] = field(default_factory=dict)
    """What the parts of one test tell each other."""
    door: Door = field(default_factory=lambda: Door(standby_app(lambda: None, lambda: True)))
    lives: list[Controller] = field(default_factory=list)
    """Every controller that was composed, in order: one for each leadership."""
    offers: Mapping[str, Offer] = field(default_factory=dict)
    """Strategies of third parties."""
    make_kubernetes: Make | None = None
    """Its client of the Kubernetes API; None: it has none."""
    _running: trio.CancelScope | None = None
    _is_paused: bool = False
    _ended: trio.Event = field(default_factory=trio.Event)

    # --- the controller ------------------------------------------------------------------------------------

    async def start_controller(self) -> Controller:
        """A new life; without `elect` it has no memory of the one before (but ids, which are never reused)."""
        self.controllers += 1
        self.store = MemoryStore(first_instance_id=self.controllers * 1000)
        self.network.listen(HOST, PORT, BackToTheLane(self._serve), HeartbeatLane(self.door.answer_heartbeat))
        election = self.elect() if self.elect else MemoryElection(URL, self.store)
        await self.nursery.start(self._lead, election)
        return self.it

    async def _lead(self, election: Election, *, task_status: trio.TaskStatus[None]) -> None:
        self._ended = trio.Event()
        before = len(self.lives)

        async def fresh(leadership: Leadership) -> Controller:
            supervisors = Supervisors(transport=lambda: self.network.transport(HOST))
            engines = Engines(lambda: self.network.transport(HOST))
            life = await compose(
                self.policy,
                leadership,
                supervisors,
                None,
                engines=engines,
                offers=self.offers,
                make_kubernetes=self.make_kubernetes,
            )
            self.lives.append(life)
            if len(self.lives) == before + 1:
                task_status.started()
            return self.it

        try:
            with trio.CancelScope() as self._running:
                await lead(election, fresh, self.door)
        finally:
            self._ended.set()

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        application = self.it.app if self._is_paused else self.door
        await application(scope, receive, send)

    def pause_center(self) -> None:
        """The API goes on and the registry with it, but nobody carries anything out."""
        assert self._running is not None
        self._is_paused = True
        self._running.cancel(reason="the test drives the strategies itself")

    async def stop_controller(self) -> None:
        """In the order of `controller.app.main`: nobody can report any more, then the centre ends."""
        self.network.close(HOST, PORT)
        assert self._running is not None
        self._running.cancel(reason="the test stops the controller")
        await self._ended.wait()

    def kill_controller(self) -> None:
        """It is no more, in this very moment: nothing is cleaned up, nothing more is sent or written."""
        self.network.close(HOST, PORT)
        self.it.leadership.lose("killed by the test")
        assert self._running is not None
        self._running.cancel(reason="killed by the test")

    async def until_ended(self) -> None:
        await self._ended.wait()

    @property
    def it(self) -> Controller:
        return self.lives[-1]

    # --- supervisors ---------------------------------------------------------------------------------------

    def add_gang(
        self, job_name: str = "job", size: int = 2, script: Script | None = None, **identity: object
    ) -> list[FakeSupervisor]:
        number = len(self.gangs)
        gang = [
            FakeSupervisor(
                self.network,
                ip=f"10.0.{number}.{rank}",
                job_name=job_name,
                node_index=rank,
                nnodes=size,
                controller_urls=(f"http://{HOST}:{PORT}",),
                script=script,
                history=self.history,
                identity=identity,
            )
            for rank in range(size)
        ]
        self.gangs[job_name] = gang
        for fake in gang:
            self.nursery.start_soon(fake.run)
        return gang

    # --- what a test waits for -----------------------------------------------------------------------------

    def instance(self, job_name: str = "job") -> Instance:
        found = [entry.instance for entry in self.it.registry.entries() if entry.instance.key.job_name == job_name]
        assert len(found) == 1, f"{job_name}: {len(found)} instances"
        return found[0]

    async def until(self, condition: Callable[[], bool], within: float = PATIENCE_SEC) -> None:
        """Looks again whenever the controller tells of an event, and every tenth of a second."""
        with trio.fail_after(within):
            while not condition():
                await trio.sleep(0.1)

    async def until_active(self, job_name: str = "job", epoch: int = 1) -> Instance:
        def is_active() -> bool:
            return any(
                entry.instance.status is InstanceStatus.ACTIVE and entry.instance.epoch >= epoch
                for entry in self.it.registry.entries()
                if entry.instance.key.job_name == job_name
            )

        await self.until(is_active)
        return self.instance(job_name)

    async def until_run_closed(self, count: int = 1) -> wire.RunView:
        await self.until(lambda: len(self.it.registry.closed_runs) >= count)
        return self.it.registry.closed_runs[0]

    def did(self, *whats: str, since: float = 0.0) -> list[tuple[str, str]]:
        return [(record.who, record.what) for record in self.history if record.what in whats and record.at >= since]


@asynccontextmanager
async def open_world(
    policy: Policy | None = None,
    elect: Callable[[], Election] | None = None,
    offers: Mapping[str, Offer] | None = None,
    kubernetes: Callable[[MemoryNetwork], Make] | None = None,
) -> AsyncIterator[World]:
    """A network and a controller; gangs are added by the test. Ends with the block."""
    async with (
        open_memory_network() as network,
        network.client("tool", f"http://{HOST}:{PORT}") as client,
        trio.open_nursery() as nursery,
    ):
        world = World(network, nursery, policy or Policy(), client, elect=elect, offers=offers or {})
        world.make_kubernetes = kubernetes(network) if kubernetes else None
        await world.start_controller()
        yield world
        nursery.cancel_scope.cancel(reason="the test is over")
