"""Two controller processes on a real etcd: the leader is lost in every step of a run, and no run is.

Each gang is held in one step of its run, so that one loss meets them all; another gang is healthy.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from supervisor.wire import EndpointStatus, ErrorCode
from tests.support import cut_path
from tests.support.controller_process import PATIENCE_SEC, ControllerProcess, controller_process
from tests.support.fake_supervisor import FakeSupervisor, Record, Script
from tests.support.loopback_network import LoopbackNetwork, open_loopback_network
from tests.support.real_etcd import RealEtcd, needs_etcd, real_etcd

# httpx leaves its generators to the garbage collector when a request is cut off.
pytestmark = [needs_etcd, pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")]

LEASE_SEC = round(3 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1")))
SCRIPT = Script(
    prepare_sec=0.05,
    spawn_sec=0.01,
    load_sec=0.1,
    container_restart_sec=0.1,
    heartbeat_sec=0.5,
    freeze_sec=600,
)
HEALTHY = "healthy"
HELD_IN: Mapping[str, Mapping[str, object]] = {
    "probe": {"hang": frozenset({"status"})},
    "prepare": {"hold": frozenset({"stop engine"})},
    "start": {"hold": frozenset({"spawn"})},
    "backoff": {},
    "await": {"hold": frozenset({"load"})},
    "phase2": {"refuse": {"prepare": ErrorCode.FAILED}, "hold": frozenset({"boot"})},
}
"""By step: what one member does from the death of the other on. Only a second run waits in BACKOFF."""
SOON_OVER = ["prepare", "start", "await", "phase2", "backoff", "probe"]
"""The last two wait for nobody."""
BACKOFF_SEC = 8.0


@dataclass(eq=False)
class Fleet:
    etcd: RealEtcd
    controllers: list[ControllerProcess]
    paths: list[cut_path.Path]
    """Of each controller to etcd."""
    network: LoopbackNetwork
    nursery: trio.Nursery
    gangs: dict[str, list[FakeSupervisor]] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)

    def add_gang(self, name: str, size: int = 2) -> list[FakeSupervisor]:
        number = len(self.gangs) + 1
        gang = [
            FakeSupervisor(
                self.network,
                ip=f"127.{self.etcd.port % 250 + 2}.{number}.{rank + 1}",
                job_name=name,
                node_index=rank,
                nnodes=size,
                controller_urls=tuple(controller.url for controller in self.controllers),
                script=SCRIPT,
                history=self.history,
            )
            for rank in range(size)
        ]
        self.gangs[name] = gang
        for fake in gang:
            self.nursery.start_soon(fake.run)
        return gang

    async def leader(self, other_than: ControllerProcess | None = None) -> ControllerProcess:
        with trio.fail_after(PATIENCE_SEC):
            while True:
                for controller in self.controllers:
                    if controller is not other_than and await controller.leads():
                        return controller
                await trio.sleep(0.02)

    async def until_active(self, leader: ControllerProcess, epochs: Mapping[str, int] | None = None) -> None:
        """The controller says so of all gangs, and it is so; in these epochs at least."""
        with trio.move_on_after(PATIENCE_SEC) as patience:
            while not await self._all_active(leader, epochs or {}):
                await trio.sleep(0.1)
        assert not patience.cancelled_caught, await self.story(leader)

    async def _all_active(self, leader: ControllerProcess, epochs: Mapping[str, int]) -> bool:
        found = {view.job_name: view for view in await leader.instances()}
        return found.keys() == self.gangs.keys() and all(
            view.status == "active"
            and view.recovery is None
            and view.epoch >= epochs.get(name, 1)
            and all(fake.status is EndpointStatus.NORMAL and fake.epoch == view.epoch for fake in self.gangs[name])
            for name, view in found.items()
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(PATIENCE_SEC) as patience:
            while not condition():
                await trio.sleep(0.02)
        assert not patience.cancelled_caught, await self.story()

    async def steps(self, leader: ControllerProcess) -> dict[str, str]:
        return {view.job_name: view.recovery.step for view in await leader.instances() if view.recovery}

    async def story(self, leader: ControllerProcess | None = None) -> str:
        told = [f"{r.at:.2f} {r.who} {r.what} {r.epoch}" for r in self.history[-150:]]
        said = [f"{c.url} {line['time']} {line['message']}" for c in self.controllers for line in c.log[-40:]]
        seen = [str(view) for view in await leader.instances()] if leader else []
        return "\n".join((*told, *said, *seen))

    # --- what must always hold -------------------------------------------------------------------------------

    def assert_nothing_started_twice(self) -> None:
        """In one life and one epoch a member's engine is spawned once."""
        for gang in self.gangs.values():
            for fake in gang:
                lives: list[list[int]] = [[]]
                for r in self.history:
                    if r.who == fake.ip and r.what == "boot":
                        lives.append([])
                    elif r.who == fake.ip and r.what == "start":
                        lives[-1].append(r.epoch)
                for epochs in lives:
                    assert len(epochs) == len(set(epochs)), f"{fake.ip} was started twice: {epochs}"

    def did_since(self, since: float, *whats: str) -> list[Record]:
        return [record for record in self.history if record.at >= since and record.what in whats]

    def assert_untouched(self, name: str, since: float) -> None:
        touched = {"prepare", "start", "stop", "abort", "gave up", "boot"}
        ips = {fake.ip for fake in self.gangs[name]}
        assert [r for r in self.history if r.who in ips and r.what in touched and r.at >= since] == []


@asynccontextmanager
async def fleet(tmp_path: Path, *gangs: str) -> AsyncIterator[Fleet]:
    """Two controllers, and gangs that serve."""
    async with open_loopback_network() as network, trio.open_nursery() as nursery, AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(real_etcd(tmp_path))
        paths = [await stack.enter_async_context(cut_path.open_path(etcd.port)) for _ in range(2)]
        controllers = [
            await stack.enter_async_context(
                controller_process(
                    CONTROLLER__STORE="etcd",
                    ETCD__ENDPOINTS=f'["http://127.0.0.1:{path.port}"]',
                    ETCD__LEASE_SEC=str(LEASE_SEC),
                    FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_POLL_INTERVAL_SEC="1",
                    FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_BACKOFF_SEC=str(BACKOFF_SEC),
                )
            )
            for path in paths
        ]
        running = Fleet(etcd, controllers, paths, network, nursery)
        leader = await running.leader()
        for name in gangs:
            running.add_gang(name)
        await running.until_active(leader)
        yield running
        nursery.cancel_scope.cancel(reason="the test is over")


async def held_in_every_step(running: Fleet, leader: ControllerProcess) -> None:
    """A run is open for each gang but the healthy one, in the step of its name."""
    running.gangs["backoff"][0].kill_engine()
    await running.until_active(leader, epochs={"backoff": 2})
    for step in sorted(HELD_IN, key=SOON_OVER.index):
        first, second = running.gangs[step]
        second.change(**HELD_IN[step])
        first.kill_engine()
    with trio.move_on_after(PATIENCE_SEC) as patience:
        while await running.steps(leader) != {step: step for step in HELD_IN}:
            await trio.sleep(0.05)
    assert not patience.cancelled_caught, await running.story(leader)


def let_go(running: Fleet) -> None:
    for gang in running.gangs.values():
        for fake in gang:
            fake.change(hang=frozenset(), hold=frozenset(), refuse={})


async def kill(running: Fleet, leader: ControllerProcess) -> None:
    leader.kill()


async def freeze(running: Fleet, leader: ControllerProcess) -> None:
    leader.freeze()


async def cut_from_etcd(running: Fleet, leader: ControllerProcess) -> None:
    running.paths[running.controllers.index(leader)].cut()


Loss = Callable[[Fleet, ControllerProcess], Awaitable[None]]


@pytest.mark.parametrize("lose", [kill, freeze, cut_from_etcd])
async def test_a_leader_lost_in_every_step_loses_no_run(tmp_path: Path, lose: Loss) -> None:
    async with fleet(tmp_path, HEALTHY, *HELD_IN) as running:
        leader = await running.leader()
        await held_in_every_step(running, leader)
        opened = {run.id for run in await leader.runs() if run.outcome is None}
        lost = trio.current_time()
        await lose(running, leader)
        successor = await running.leader(other_than=leader)
        print(f"{lose.__name__}: taken over after {(trio.current_time() - lost) / LEASE_SEC:.2f} leases")
        let_go(running)
        await running.until_active(successor)
        assert opened <= {run.id for run in await successor.runs() if run.outcome}, "each was resumed by its id"
        if lose is freeze:
            leader.thaw()
        running.paths[running.controllers.index(leader)].heal()
        if lose is not kill:
            # It stands by, and says who leads.
            with trio.fail_after(PATIENCE_SEC):
                while (view := await leader.standing()) is None or view.leader != successor.url:
                    await trio.sleep(0.05)
            assert view.role == "standby"
            assert leader.said("leadership lost")
        await running.until_active(successor)
        running.assert_nothing_started_twice()
        running.assert_untouched(HEALTHY, lost)


async def test_a_leader_killed_before_its_first_word_of_a_run_was_kept_leaves_nobody_waiting(tmp_path: Path) -> None:
    async with fleet(tmp_path, HEALTHY, "open") as running:
        leader = await running.leader()
        running.etcd.stop()
        lost = trio.current_time()
        reporter = running.gangs["open"][0]
        reporter.kill_engine()
        await running.until(lambda: bool(reporter.answers))
        leader.kill()
        running.etcd.go_on()
        await running.until_active(await running.leader(other_than=leader), epochs={"open": 2})
        running.assert_nothing_started_twice()
        running.assert_untouched(HEALTHY, lost)


async def test_etcd_killed_and_compacted_in_the_middle_of_runs_loses_none(tmp_path: Path) -> None:
    async with fleet(tmp_path, HEALTHY, *HELD_IN) as running:
        leader = await running.leader()
        await held_in_every_step(running, leader)
        lost = trio.current_time()
        await running.etcd.compact()
        await running.etcd.kill()
        await running.etcd.start()
        let_go(running)
        await running.until_active(await running.leader(), epochs=dict.fromkeys(HELD_IN, 2))
        running.assert_nothing_started_twice()
        running.assert_untouched(HEALTHY, lost)


async def test_without_etcd_nobody_leads_nobody_is_touched_and_what_died_is_relaunched_afterwards(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, HEALTHY, "dies") as running:
        running.etcd.stop()
        lost = trio.current_time()
        for controller in running.controllers:
            with trio.fail_after(PATIENCE_SEC):
                while await controller.leads():
                    await trio.sleep(0.05)
        running.gangs["dies"][0].kill_engine()
        # Both have been asked in vain by everybody.
        await running.until(lambda: all(each.said("etcd cannot be asked who leads") for each in running.controllers))
        assert running.did_since(lost, "prepare", "start", "stop", "abort") == []
        running.etcd.go_on()
        await running.until_active(await running.leader(), epochs={"dies": 2})
        running.assert_untouched(HEALTHY, lost)
