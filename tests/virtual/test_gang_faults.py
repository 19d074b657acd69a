"""Whole gangs when paths, containers and schedulers fail: the sequences of design 4 that broke earlier drafts."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from controller.policy import Policy
from supervisor import wire
from tests.support.controller_world import RESTART_ALL
from tests.support.virtual_gang import Gang, Script, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


@pytest.mark.seed("S03")
@pytest.mark.seed("S28")
@pytest.mark.parametrize("lasts_sec", [30.0, 500.0], ids=["shorter-than-phase-2", "longer"])
async def test_a_member_that_cannot_be_reached_means_phase_two_and_a_new_assembly(
    autojump_clock: MockClock, lasts_sec: float
) -> None:
    async with open_gang(policy=RESTART_ALL) as gang:
        await gang.until_active()
        cut = trio.current_time()
        gang.cut_off(gang.pods[1])
        gang.pods[0].kill_engine()
        await gang.until(lambda: boots(gang)[0] == 2, within=60)
        assert gang.did("step:stopping", since=cut) == []  # nothing was begun that could not be ended
        await trio.sleep(lasts_sec)
        gang.heal(gang.pods[1])
        await gang.until_active(epoch=2, within=120)
        assert boots(gang) == [2, 2]


@pytest.mark.seed("S28")
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("policy, others", [(Policy(), 1), (RESTART_ALL, 2)], ids=["rejoin", "restart-all"])
async def test_F3_a_container_that_is_back_in_half_a_second(
    autojump_clock: MockClock, size: int, policy: Policy, others: int
) -> None:
    async with open_gang(size, policy=policy, script=Script(container_restart_sec=0.5)) as gang:
        await gang.until_active()
        gang.pods[0].kill_container()
        await gang.until_active(epoch=2, within=60)
        assert boots(gang) == [2, *[others] * (size - 1)]
        statuses = gang.statuses()
        assert [status for status in statuses if status != "initial"] == ["active", "inactive", "active"], statuses


async def test_F8_a_stop_that_is_repeated_does_not_hit_the_new_container(autojump_clock: MockClock) -> None:
    async with open_gang(policy=RESTART_ALL, script=Script(container_restart_sec=0.5)) as gang:
        await gang.until_active()
        survivor = gang.pods[0]
        gang.pods[1].kill_container()
        await gang.until(lambda: survivor.it.ending.requested.is_set(), every=0.0005)
        assert "stop command" in survivor.it.ending.reason
        # Its answer is lost; the next container is there before the controller hears of it, and is asked again.
        gang.cut_off(survivor)
        survivor.mute = True
        await trio.sleep(3.5)
        assert boots(gang)[0] == 2
        gang.heal(survivor)
        await trio.sleep(10)
        survivor.mute = False
        await gang.until_active(epoch=2, within=120)
        await trio.sleep(120)
        assert boots(gang) == [2, 2]


async def test_F9_an_abort_that_overtakes_prepare_wins(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        pod = gang.pods[0]
        term, run_id = pod.state.term, "late"
        async with gang.client(pod) as client:
            for action, status in (("abort", 200), ("prepare", 409), ("start", 409)):
                message = {"action": action, "run_id": run_id, "epoch": 2, "term": term}
                answer = await client.post("/node-manager/engine-restart", json=message)
                assert answer.status_code == status, answer.text
        await trio.sleep(60)
        assert gang.is_active()
        assert [pod.spawns() for pod in gang.pods] == [1, 1]


@pytest.mark.parametrize("held", [0, 1])
async def test_F9_an_operator_aborts_while_a_prepare_is_on_its_way(autojump_clock: MockClock, held: int) -> None:
    async with open_gang() as gang:
        instance = await gang.until_active()
        gang.pods[held].change(stop_sec=None)
        await gang.world.client.post(f"/v1/instances/{instance.id}/relaunch", json={"reason": "new driver"})
        await gang.until(lambda: gang.step == "prepare", every=0.0005)
        gang.pods[held].hold()
        run = gang.world.it.registry.recoveries()[0].run_id
        assert (await gang.world.client.post(f"/v1/relaunches/{run}/abort")).status_code == 202
        await trio.sleep(20)
        gang.pods[held].release()
        await gang.until_active(epoch=2, within=600)
        # C6: not active in between, by what was seen before its engines were stopped.
        assert gang.statuses().count("active") == 2
        assert not any(pod.is_frozen for pod in gang.pods)


@pytest.mark.parametrize("stalls_sec", [20.0, 60.0, 400.0])
async def test_F10_a_member_thaws_with_start_and_abort_queued(autojump_clock: MockClock, stalls_sec: float) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        slow, stalled = gang.pods
        slow.change(gate_sec=10.0)
        died = trio.current_time()
        slow.kill_engine()
        await gang.until(lambda: bool(gang.did("step:prepared", since=died, who=stalled)))
        stalled.hold()
        await trio.sleep(stalls_sec)
        stalled.release()
        await gang.until_active(epoch=2, within=900)
        await trio.sleep(60)
        assert gang.is_active(epoch=2)


async def test_F11_who_is_prepared_early_stays_frozen_until_the_slowest_is(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].change(gate_sec=80.0)
        died = trio.current_time()
        gang.pods[0].kill_engine()
        await gang.until_active(epoch=2, within=120)
        first, last = gang.did("step:prepared", since=died)
        assert last.at - first.at > 70  # longer than engine_restart_freeze_silence_sec
        assert boots(gang) == [1, 1]
        assert len(gang.did("unfrozen", since=died)) == 2


async def test_F12_who_waits_in_back_off_stays_frozen(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for epoch in (2, 3, 4):
            gang.pods[0].kill_engine()
            await gang.until_active(epoch=epoch, within=300)
        assert boots(gang) == [1, 1]
        # F13: the budget is spent, and the next death restarts the containers.
        gang.pods[0].kill_engine()
        await gang.until_active(epoch=5, within=300)
        assert boots(gang) == [2, 2]


@pytest.mark.parametrize("other_dies", [True, False])
async def test_F14_a_relaunch_here_that_is_in_progress_is_overtaken(
    autojump_clock: MockClock, other_dies: bool
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        pod = gang.pods[1]
        pod.change(stop_sec=2.0, load_sec=40.0)
        gang.alone.add(2)
        async with gang.client(pod) as client:
            message = {"action": "restart", "term": pod.state.term, "reason": "by hand"}
            assert (await client.post("/node-manager/engine-restart", json=message)).status_code == 200
        if other_dies:
            gang.pods[0].kill_engine()
        await gang.until_active(epoch=3, within=300)
        assert boots(gang) == [1, 1]


async def test_F15_a_second_engine_dies_at_nearly_the_same_moment(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[0].kill_engine()
        await trio.sleep(0.05)
        if gang.pods[1].it.processes.alive("engine"):
            gang.pods[1].it.processes.crash(max(gang.pods[1].it.processes._trees))
        await gang.until_active(epoch=2)
        await trio.sleep(120)
        assert [run.reason for run in gang.runs] == ["assemble", "fault"]
        assert [pod.spawns() for pod in gang.pods] == [2, 2]


async def test_two_engines_that_die_at_the_same_moment_are_one_run(autojump_clock: MockClock) -> None:
    async with open_gang(4) as gang:
        await gang.until_active()
        for pod in gang.pods:
            pod.kill_engine()
        await gang.until_active(epoch=2)
        await trio.sleep(120)
        assert [run.reason for run in gang.runs] == ["assemble", "fault"]
        assert [pod.spawns() for pod in gang.pods] == [2] * 4


async def test_F21_orders_in_answers_reach_whom_requests_do_not(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        deaf = gang.pods[1]
        deaf.deaf = True
        gang.pods[0].kill_engine()
        await gang.until(lambda: boots(gang) == [2, 2], within=120)
        assert "stop command" in deaf.ended[0][1]
        deaf.deaf = False
        await gang.until_active(epoch=2, within=300)


async def test_a_short_cut_of_all_paths_costs_nothing(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for pod in gang.pods:
            gang.cut_off(pod)
        await trio.sleep(60)
        for pod in gang.pods:
            gang.heal(pod)
        await gang.until_active(within=60)
        await trio.sleep(60)
        assert gang.is_active()
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert boots(gang) == [1, 1]


@pytest.mark.parametrize("lasts_sec", [20.0, 100.0])
async def test_a_cut_of_all_paths_while_loading_costs_nothing(autojump_clock: MockClock, lasts_sec: float) -> None:
    async with open_gang(script=Script(load_sec=300.0)) as gang:
        await gang.until(lambda: gang.step == "await")
        await trio.sleep(30)
        for pod in gang.pods:
            gang.cut_off(pod)
        await trio.sleep(lasts_sec)
        for pod in gang.pods:
            gang.heal(pod)
        await gang.until_active(within=600)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert boots(gang) == [1, 1]


async def test_a_death_that_nobody_can_be_told_of_for_a_moment(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.cut_off(gang.pods[1])
        gang.pods[1].kill_engine()
        await trio.sleep(8)
        assert not gang.pods[1].is_frozen
        gang.heal(gang.pods[1])
        await gang.until_active(epoch=2, within=120)


@pytest.mark.seed("S23")
async def test_a_member_is_told_to_stop_by_somebody_else(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        async with gang.client(gang.pods[0]) as client:
            refused = await client.post("/node-manager/stop")
            assert refused.status_code == 409  # without any field it may be meant for the container before
            message = {"term": gang.pods[0].state.term, "reason": "by hand"}
            assert (await client.post("/node-manager/stop", json=message)).status_code == 200
        await gang.until(lambda: bool(gang.pods[0].ended))
        assert gang.pods[0].ended[0][0] == 255
        await gang.until_active(epoch=2, within=120)
        assert boots(gang) == [2, 1]


async def test_a_member_that_is_asked_to_stop_drains_and_nobody_is_relaunched(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        leaving = gang.pods[1]
        leaving.change(container_restart_sec=None)
        leaving.it.ending.request(0, "SIGTERM received")
        await gang.until(lambda: bool(leaving.ended))
        assert leaving.ended[0][0] == 0
        assert wire.EndpointStatus.ABNORMAL not in {record.what for record in gang.history}
        assert [run.reason for run in gang.runs] == ["assemble"]


async def test_F2_what_was_abnormal_is_not_counted_while_it_loads_anew(autojump_clock: MockClock) -> None:
    """The arbiter would end a supervisor after 15 s."""
    async with open_gang(script=Script(load_sec=100.0)) as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[0].kill_engine()
        await gang.until(lambda: len(gang.did("spawn", since=died)) == 2)
        started = trio.current_time()
        await gang.until_active(epoch=2, within=120)
        assert trio.current_time() - started > 90
        assert gang.did(wire.EndpointStatus.ABNORMAL, since=started) == []
        assert boots(gang) == [1, 1]


async def test_F16_a_death_inside_the_grace_period_is_a_death(autojump_clock: MockClock) -> None:
    """Only failed probes have a grace, 120 s from the start; a process that is gone is gone."""
    async with open_gang() as gang:
        await gang.until_active()
        died = trio.current_time()
        assert died < 60
        gang.pods[1].kill_engine()
        await gang.until(lambda: len(gang.did("step:stopping", since=died)) == 2, within=1)
        await gang.until_active(epoch=2, within=60)
        assert boots(gang) == [1, 1]
