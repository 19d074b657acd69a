"""Several controllers of one fleet on the memory network, which share a small etcd."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from controller.api.leader_routes import standby_app
from controller.app import compose
from controller.door import Controller, Door
from controller.election import Leadership
from controller.lead import lead
from controller.store.etcd import Keys
from controller.store.etcd_client import Access
from controller.store.etcd_election import EtcdElection
from controller.supervisors import Supervisors
from supervisor import wire
from tests.support.controller_world import World
from tests.support.fake_etcd import HOST as ETCD
from tests.support.fake_etcd import FakeEtcd

PORT = 1026
LEASE_SEC = 5


@dataclass(eq=False)
class Replica:
    """One of them; what it composes is a life of `world`'s controller."""

    world: World
    etcd: FakeEtcd
    name: str
    lives: list[Controller] = field(default_factory=list)

    def __post_init__(self) -> None:
        access = Access((self.etcd.url,), transport=lambda: self.world.network.transport(self.name))
        self.election = EtcdElection(access, Keys("/podvisor/"), self.url, LEASE_SEC)
        self.door = Door(standby_app(lambda: self.election.leader, lambda: True))

    @property
    def url(self) -> str:
        return f"http://{self.name}:{PORT}"

    @property
    def leads(self) -> bool:
        return self.door.controller is not None

    @property
    def said(self) -> list[str]:
        """The messages of its events, over all its lives."""
        return [event.message for life in self.lives for event in life.events.since(0)]

    async def run(self) -> None:
        self.world.network.listen(self.name, PORT, self.door)
        await lead(self.election, self._fresh, self.door)

    async def standing(self) -> wire.LeaderView:
        async with self.world.network.client("tool", self.url) as client:
            return wire.decode(wire.LeaderView, (await client.get("/leader")).content)

    def lose_etcd(self) -> None:
        self.world.network.partition(self.name, ETCD)

    def find_etcd(self) -> None:
        self.world.network.heal(self.name, ETCD)
        self.world.network.heal(ETCD, self.name)

    def does_not_see_time_pass(self) -> None:
        """As after a virtual machine was stopped: its lease is over, its own clock says that it is not."""
        assert self.door.controller is not None
        self.door.controller.leadership.scope.deadline = float("inf")

    async def _fresh(self, leadership: Leadership) -> Controller:
        supervisors = Supervisors(transport=lambda: self.world.network.transport(self.name))
        life = await compose(self.world.policy, leadership, supervisors, None, find_leader=lambda: self.election.leader)
        self.lives.append(life)
        self.world.lives.append(life)
        return life


async def start_replicas(world: World, count: int = 2) -> list[Replica]:
    """The first leads."""
    etcd = FakeEtcd(world.network)
    etcd.start()
    world.nursery.start_soon(etcd.run)
    replicas = [Replica(world, etcd, f"controller-{number}") for number in range(count)]
    for replica in replicas:
        world.nursery.start_soon(replica.run)
        with trio.fail_after(LEASE_SEC):
            while not replicas[0].leads:
                await trio.sleep(0.01)
    return replicas
