"""A gang that has lost a member waits for it in place: supervisors that ship against the controller that ships."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.policy import Policy
from tests.support.killed_journal import journal_in
from tests.support.virtual_gang import Gang, Script, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

STEPS = ("probe", "prepare", "backoff", "start", "await")


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


def oscillations(gang: Gang) -> int:
    """How often it became ACTIVE."""
    return gang.statuses().count("active")


@pytest.mark.seed("S28")
@pytest.mark.parametrize("away_sec", [0.5, 2.0, 40.0, 250.0])
async def test_S28_the_others_keep_their_containers_and_nothing_oscillates(
    autojump_clock: MockClock, away_sec: float
) -> None:
    async with open_gang(3, script=Script(container_restart_sec=away_sec)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()
        await gang.until_active(epoch=2, within=away_sec + 60)
        assert boots(gang) == [1, 2, 1]
        assert [status for status in gang.statuses() if status != "initial"] == ["active", "inactive", "active"]
        assert [run.reason for run in gang.runs] == ["assemble", "rejoin"]
        assert [step.name for step in gang.runs[-1].steps] == ["rejoin", "probe", "prepare", "start", "await"]


@pytest.mark.seed("S28")
async def test_S28_after_the_time_all_containers_restart_and_nothing_oscillates(autojump_clock: MockClock) -> None:
    async with open_gang(3, script=Script(container_restart_sec=2.0)) as gang:
        await gang.until_active()
        gang.pods[1].change(container_restart_sec=700.0)
        gang.pods[1].kill_container()
        killed = trio.current_time()
        await gang.until(lambda: boots(gang) == [2, 1, 2], within=400)
        assert trio.current_time() - killed > 300
        await gang.until_active(epoch=2, within=900)
        assert boots(gang) == [2, 2, 2]
        assert oscillations(gang) == 2


@pytest.mark.parametrize("step", STEPS)
async def test_F3_a_container_that_ends_in_any_step_of_a_run(autojump_clock: MockClock, step: str) -> None:
    script = Script(container_restart_sec=0.5, stop_sec=1.0, gate_sec=1.0, load_sec=20.0)
    async with open_gang(3, script=script) as gang:
        await gang.until_active()
        if step == "backoff":  # from the second run on
            gang.pods[0].kill_engine()
            await gang.until_active(epoch=2)
        gang.pods[0].kill_engine()
        await gang.until(lambda: gang.step == step, every=0.0005)
        gang.pods[2].kill_container()
        await gang.until_active(epoch=3, within=300)
        assert boots(gang) == [1, 1, 2]
        assert gang.runs[-1].outcome == "done"
        assert "rejoin" in [step.name for step in gang.runs[-1].steps]


@pytest.mark.parametrize("lasts_sec", [20.0, 200.0, 500.0])
async def test_a_member_that_is_cut_off_is_waited_for(autojump_clock: MockClock, lasts_sec: float) -> None:
    """Both ways: its engine may live on meanwhile, its container restarts if it ends by itself."""
    async with open_gang() as gang:
        await gang.until_active()
        gang.cut_off(gang.pods[1])
        await trio.sleep(lasts_sec)
        gang.heal(gang.pods[1])
        await gang.until_active(epoch=2, within=400)
        assert boots(gang) == ([1, 1] if lasts_sec < 300 else [2, 2])
        assert oscillations(gang) == 2


async def test_one_after_the_other_is_lost(autojump_clock: MockClock) -> None:
    async with open_gang(4, script=Script(container_restart_sec=20.0)) as gang:
        await gang.until_active()
        for pod in gang.pods[1:]:
            pod.kill_container()
            await trio.sleep(8.0)
        await gang.until_active(epoch=2, within=200)
        assert boots(gang) == [1, 2, 2, 2]
        assert oscillations(gang) == 2


def is_awaited_in(gang: Gang, boot: int) -> bool:
    return boots(gang)[1] == boot and gang.step == "await"


async def test_a_newcomer_that_is_killed_again_while_it_loads(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(container_restart_sec=2.0, load_sec=30.0)) as gang:
        await gang.until_active()
        for boot in (2, 3):
            gang.pods[1].kill_container()
            await gang.until(partial(is_awaited_in, gang, boot))
        await gang.until_active(epoch=3, within=300)
        assert boots(gang) == [1, 3]


async def test_a_container_that_crashes_over_and_over_is_held_in_the_end(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(container_restart_sec=2.0)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()

        def crash() -> bool:
            pod, instance = gang.pods[1], gang.instance
            if pod.it.alive and gang.step == "await":
                pod.kill_container()
            return instance is not None and bool(instance.held) and gang.step is None

        await gang.until(crash, within=5000, every=0.5)
        # Three starts with the newcomer, then the containers; three times that, and nothing is started any more.
        assert len(gang.did("spawn", who=gang.pods[0])) <= 12
        assert oscillations(gang) == 1


async def test_the_survivor_dies_while_it_waits(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(container_restart_sec=30.0)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()
        await gang.until(lambda: gang.step == "rejoin")
        await trio.sleep(5)
        gang.pods[0].change(container_restart_sec=2.0)
        gang.pods[0].kill_container()
        await gang.until_active(epoch=2, within=200)
        assert boots(gang) == [2, 2]


async def test_survivors_stay_frozen_however_long_they_wait(autojump_clock: MockClock) -> None:
    """I2, F12: polled, they are not unfrozen by silence; and after it they are."""
    policy = Policy(relaunch=replace(Policy().relaunch, rejoin_timeout_sec=600.0))
    async with open_gang(policy=policy, script=Script(container_restart_sec=550.0)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()
        await gang.until(lambda: gang.step == "rejoin")
        await gang.until_active(epoch=2, within=700)
        assert boots(gang) == [1, 2]
        assert not gang.pods[0].is_frozen


@pytest.mark.parametrize("way", ["stop", "crash"])
async def test_a_controller_that_ends_while_they_wait(autojump_clock: MockClock, way: str) -> None:
    async with open_gang(3, script=Script(container_restart_sec=40.0)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()
        await gang.until(lambda: gang.step == "rejoin")
        await (gang.stop_controller() if way == "stop" else gang.crash_controller())
        await trio.sleep(5)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=600)


async def test_an_operator_gives_it_up_while_they_wait(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(container_restart_sec=100.0)) as gang:
        await gang.until_active()
        gang.pods[1].kill_container()
        await gang.until(lambda: gang.step == "rejoin")
        run = gang.world.it.registry.recoveries()[0].run_id
        assert (await gang.world.client.post(f"/v1/relaunches/{run}/abort")).status_code == 202
        await gang.until_active(epoch=2, within=600)
        assert oscillations(gang) == 2


async def test_a_controller_that_is_killed_while_they_wait_goes_on_with_whom_it_had_seated(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """One newcomer has its place in the run already, another one is still missing."""
    async with open_gang(3, elect=journal_in(tmp_path)) as gang:
        await gang.until_active()
        gang.pods[2].change(container_restart_sec=60.0)
        for pod in gang.pods[1:]:
            pod.kill_container()
        await gang.until(lambda: gang.step == "rejoin" and boots(gang) == [1, 2, 1])
        (recovery,) = gang.world.it.registry.recoveries()
        newcomer = gang.pods[1].it.boot_id

        def is_seated() -> bool:
            return recovery.run is not None and newcomer in [row.member.boot_id for row in recovery.run.rows]

        await gang.until(is_seated)
        killed = trio.current_time()
        gang.world.kill_controller()
        await gang.world.until_ended()
        await trio.sleep(5)
        await gang.start_controller()
        assert gang.step in ("queued", "rejoin")
        await gang.until_active(epoch=2, within=300)
        assert boots(gang) == [1, 2, 2]
        assert gang.runs[-1].id == recovery.run_id
        assert [pod.spawns() for pod in gang.pods] == [2, 1, 1], "nobody is started twice"
        assert gang.did("abort", since=killed) == []
        assert not any(pod.is_frozen for pod in gang.pods)
