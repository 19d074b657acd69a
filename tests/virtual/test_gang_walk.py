"""A gang, its containers, its paths and its controller disturbed at random: it always comes to rest again.

The seed is in the test's name; `PODVISOR_TEST_WALKS=2000 pytest tests/virtual/test_gang_walk.py` walks longer.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from controller.model.settings import OnMemberLost, Phase2Scope, RelaunchSettings
from controller.policy import Policy
from supervisor import wire
from supervisor.engine.operator import CommandRefused
from supervisor.unit.states import RunState
from tests.support.virtual_gang import ENGINE, Gang, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

WALKS = int(os.environ.get("PODVISOR_TEST_WALKS", "30"))
ROUNDS = 2
CONVERGES_SEC = 2000.0
"""From the last disturbance until the gang serves or is held. Phase 2 alone may wait for 300 s, and be repeated."""
AT_REST_SEC = 30.0


@pytest.fixture
def chance(seed: int) -> Iterator[random.Random]:
    """Everything that is left to chance follows from the seed: the walk, the scheduler, the jitter of retries."""
    state = random.getstate()
    random.seed(seed)
    trio._core._run._r.seed(seed)
    yield random.Random(seed)
    random.setstate(state)


@dataclass
class Walk:
    gang: Gang
    chance: random.Random
    controller_runs: bool = True
    did: list[str] = field(default_factory=list)

    async def disturb(self) -> None:
        name, pod = self.chance.choice(sorted(self._disturbances())), self.chance.choice(self.gang.pods)
        self.did.append(f"{trio.current_time():10.3f} {name} {pod.ip}")
        await self._disturbances()[name](pod)

    def _disturbances(self) -> dict[str, Callable[[VirtualPod], Awaitable[None]]]:
        return {
            "kill engine": self._kill_engine,
            "kill engine too": self._kill_engine,
            "kill container": self._kill_container,
            "cut": self._cut,
            "heal": self._heal,
            "deafen": self._deafen,
            "mute": self._mute,
            "stall": self._stall,
            "controller": self._controller,
            "operator relaunches": self._relaunch,
            "operator aborts": self._abort,
            "restart here": self._restart_here,
            "sick": self._sicken,
            "slow": self._slow,
        }

    async def _kill_engine(self, pod: VirtualPod) -> None:
        if pod.it.alive and pod.it.supervision.engine.services[0].state.pid is not None:
            pod.kill_engine()

    async def _kill_container(self, pod: VirtualPod) -> None:
        if pod.it.alive:
            pod.change(container_restart_sec=self.chance.choice([0.5, 2.0, 30.0]))
            pod.kill_container()

    async def _cut(self, pod: VirtualPod) -> None:
        self.gang.cut_off(pod)

    async def _heal(self, pod: VirtualPod) -> None:
        self.gang.heal(pod)

    async def _deafen(self, pod: VirtualPod) -> None:
        pod.deaf = not pod.deaf

    async def _mute(self, pod: VirtualPod) -> None:
        pod.mute = not pod.mute

    async def _stall(self, pod: VirtualPod) -> None:
        pod.release() if not pod.it.held.is_set() else pod.hold()

    async def _controller(self, _: VirtualPod) -> None:
        if not self.controller_runs:
            await self.gang.start_controller()
        elif self.chance.random() < 0.5:
            await self.gang.stop_controller()
        else:
            await self.gang.crash_controller()
        self.controller_runs = not self.controller_runs

    async def _relaunch(self, _: VirtualPod) -> None:
        instance = self.gang.instance if self.controller_runs else None
        if instance is not None:
            await self.gang.world.client.post(f"/v1/instances/{instance.id}/relaunch")

    async def _abort(self, _: VirtualPod) -> None:
        for recovery in self.gang.world.it.registry.recoveries() if self.controller_runs else ():
            await self.gang.world.client.post(f"/v1/relaunches/{recovery.run_id}/abort")

    async def _restart_here(self, pod: VirtualPod) -> None:
        """As a caller of the reference system would, on one rank alone."""
        if not pod.it.alive:
            return
        message = wire.EngineRestartMsg(action=wire.Action.RESTART, term=pod.state.term, reason="by hand")
        with suppress(CommandRefused):
            accepted = await pod.it.supervision.node_manager.command(message)
            self.gang.alone.add(accepted.epoch)

    async def _sicken(self, pod: VirtualPod) -> None:
        pod.change(healthy=not pod.script.healthy)

    async def _slow(self, pod: VirtualPod) -> None:
        pod.change(
            load_sec=self.chance.choice([0.5, 5.0, 100.0]),
            stop_sec=self.chance.choice([0.0, 0.3, None]),
            gate_sec=self.chance.choice([0.0, 0.1, 20.0]),
        )

    async def let_be(self) -> None:
        """Whatever was broken from outside is mended."""
        for pod in self.gang.pods:
            self.gang.heal(pod)
            pod.deaf = pod.mute = False
            pod.release()
            pod.change(healthy=True)
        if not self.controller_runs:
            await self.gang.start_controller()
            self.controller_runs = True

    def is_at_rest(self) -> bool:
        return self.gang.is_active() or self.is_held()

    def is_held(self) -> bool:
        instance = self.gang.instance
        return instance is not None and bool(instance.held) and self.gang.step is None

    async def release_held(self) -> None:
        assert self.gang.instance is not None
        self.did.append(f"{trio.current_time():10.3f} reset-failed")
        await self.gang.world.client.post(f"/v1/instances/{self.gang.instance.id}/reset-failed")


@pytest.mark.parametrize("seed", range(WALKS))
async def test_a_gang_always_comes_to_rest(autojump_clock: MockClock, seed: int, chance: random.Random) -> None:
    relaunch = RelaunchSettings(
        on_member_lost=chance.choice(list(OnMemberLost)), engine_relaunch_phase2_scope=chance.choice(list(Phase2Scope))
    )
    async with open_gang(chance.choice([1, 2, 2, 3]), policy=Policy(relaunch=relaunch)) as gang:
        walk = Walk(gang, chance)
        try:
            await gang.until_active()
            for _ in range(ROUNDS):
                for _ in range(chance.randint(1, 6)):
                    await walk.disturb()
                    await trio.sleep(chance.choice([0.0, 0.002, 0.01, 0.3, 1.0, 5.0, 20.0, 70.0]))
                await walk.let_be()
                await come_to_rest(walk)
            assert not gang.broken(), gang.broken()
        except BaseException as error:
            error.add_note("\n".join((f"seed {seed}", *walk.did)))
            raise


async def come_to_rest(walk: Walk) -> None:
    gang = walk.gang
    await gang.until(walk.is_at_rest, within=CONVERGES_SEC, every=1.0)
    if walk.is_held():
        await walk.release_held()
        await gang.until_active(within=CONVERGES_SEC)
    # Back at rest is at rest: nothing oscillates (C6), nobody is frozen (I2), nothing healthy is touched (C4).
    told, spawned = len(gang.statuses()), len(gang.did("spawn"))
    await trio.sleep(AT_REST_SEC)
    assert gang.is_active(), gang.story()
    assert len(gang.statuses()) == told, gang.statuses()
    assert len(gang.did("spawn")) == spawned
    for pod in gang.pods:
        assert not pod.is_frozen
        assert pod.it.processes.alive(ENGINE) == 1
        assert all(service.state.state is RunState.ACTIVE for service in pod.it.pod.units)
