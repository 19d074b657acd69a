"""What people do to a gang, beside its controller."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.api.operations import ControllerAway, Refused
from tests.support.virtual_gang import ENGINE, STORE, Gang, Script, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

ANA = "ana"


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


async def stop_here(pod: VirtualPod) -> None:
    """`podvisor stop --local engine`"""
    await pod.it.operations.change(ENGINE, "stop", asked_by=ANA, local=True)


async def test_F23_an_engine_that_an_operator_stopped_is_paused_and_nobody_relaunches_it(
    autojump_clock: MockClock,
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await stop_here(gang.pods[1])
        await trio.sleep(1800)
        assert boots(gang) == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert gang.pods[1].it.processes.alive(ENGINE) == 0
        assert [run.reason for run in gang.runs] == ["assemble"]
        assert gang.instance is not None
        assert gang.instance.status.value != "active"


async def test_F23_another_rank_dies_while_one_is_held(autojump_clock: MockClock) -> None:
    """`held` is a definite no to prepare: the containers restart, and with them the hold is over."""
    async with open_gang() as gang:
        await gang.until_active()
        await stop_here(gang.pods[1])
        await trio.sleep(60)
        died = trio.current_time()
        gang.pods[0].kill_engine()
        await gang.until(lambda: boots(gang) == [2, 2], within=60)
        assert trio.current_time() - died < 20
        await gang.until_active(epoch=2, within=60)


async def test_what_was_not_stopped_here_alone_is_not_started_here_alone(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        with pytest.raises(Refused, match="without --local"):
            await gang.pods[1].it.operations.change(ENGINE, "start", asked_by=ANA, local=True)
        assert gang.is_active()


async def test_a_rank_that_is_restarted_here_alone_costs_the_gang_a_relaunch(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.pods[1].it.operations.change(ENGINE, "restart", asked_by=ANA, local=True)
        await gang.until_active(epoch=2, within=60)
        assert boots(gang) == [1, 1]


async def test_a_relaunch_that_is_asked_for_in_one_pod_is_one_of_all(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        begun = await gang.pods[1].it.operations.relaunch(ANA)
        await gang.until_active(epoch=2, within=60)
        assert begun.run_id == gang.runs[-1].id
        assert boots(gang) == [1, 1]
        assert [run.reason for run in gang.runs] == ["assemble", "operator"]


async def test_a_relaunch_without_a_controller_does_nothing(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.crash_controller()
        with pytest.raises(ControllerAway, match="nothing was done"):
            await gang.pods[1].it.operations.relaunch(ANA)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]


@pytest.mark.seed("S26")
async def test_a_store_that_dies_is_restarted_and_its_engine_is_not(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        store = gang.pods[1].it.pod.units.get("kv-store")
        pid = store.state.pid
        assert pid is not None
        gang.pods[1].it.processes.crash(pid)
        await gang.until(lambda: store.state.pid not in (None, pid), within=60)
        await trio.sleep(60)
        assert gang.is_active()
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        gang.touched.add("kv-store")


async def test_a_terminated_instance_ends_all_its_containers(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        instance = await gang.until_active()
        for pod in gang.pods:
            pod.change(container_restart_sec=None)
        message = {"instance_id": instance.id, "reason": "scaled in"}
        answer = await gang.world.client.post("/controller/terminate_instance", json=message)
        assert answer.status_code == 200
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=60)
        assert gang.instance is None


async def test_those_who_leave_a_terminated_instance_do_not_register_for_another(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(store_stop_sec=20)) as gang:
        instance = await gang.until_active()
        for pod in gang.pods:
            pod.change(container_restart_sec=None)
        known = len(gang.events)
        await gang.world.client.post(f"/v1/instances/{instance.id}/terminate", json={"reason": "scaled in"})
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=120)
        assert [event.message for event in gang.events[known:] if " registered " in event.message] == []


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.3, 0.5, 3.0])
async def test_F24_an_instance_is_terminated_at_any_moment_of_its_relaunch(
    autojump_clock: MockClock, moment: float
) -> None:
    async with open_gang() as gang:
        instance = await gang.until_active()
        for pod in gang.pods:
            pod.change(container_restart_sec=None)
        gang.pods[0].kill_engine()
        await trio.sleep(moment)
        message = {"instance_id": instance.id, "reason": "scaled in"}
        await gang.world.client.post("/controller/terminate_instance", json=message)
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=60)
        assert gang.instance is None


async def test_a_budget_that_is_spent_holds_the_instance_until_it_is_reset(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].change(dies_after_sec=2.0)
        gang.pods[0].kill_engine()
        await gang.until(lambda: gang.instance is not None and gang.instance.held is not None, every=1.0)
        await gang.until(lambda: all(pod.settled for pod in gang.pods), within=120)
        ended = boots(gang)
        await trio.sleep(1800)
        # Idle and nothing abnormal: no container goes on restarting.
        assert boots(gang) == ended
        assert gang.pods[0].it.processes.alive(ENGINE) == 0
        assert gang.instance is not None
        gang.pods[1].change(dies_after_sec=float("inf"))
        answer = await gang.world.client.post(f"/v1/instances/{gang.instance.id}/reset-failed")
        assert answer.status_code == 200, answer.text
        await gang.until_active(within=120)


def kill_store(pod: VirtualPod) -> None:
    pid = pod.it.pod.units.get(STORE).state.pid
    assert pid is not None
    pod.it.processes.crash(pid)


RELATIONS = ['OnDependencyRestart = "restart"', f'BindsTo = ["{STORE}"]']


@pytest.mark.parametrize("relation", RELATIONS)
async def test_a_store_that_was_relaunched_in_one_pod_relaunches_the_gang_as_one(
    relation: str, autojump_clock: MockClock
) -> None:
    async with open_gang(relations=relation) as gang:
        await gang.until_active()
        gang.touched.add(STORE)
        kill_store(gang.pods[1])
        await gang.until_active(epoch=2, within=120)
        await trio.sleep(600)
        assert boots(gang) == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [2, 2]
        assert [run.reason for run in gang.runs] == ["assemble", "operator"]
        assert any(STORE in text for text in gang.pods[0].it.stdout)


async def test_a_store_that_is_relaunched_while_the_controller_is_away_relaunches_the_gang_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(relations=RELATIONS[0]) as gang:
        await gang.until_active()
        gang.touched.add(STORE)
        await gang.crash_controller()
        kill_store(gang.pods[1])
        await trio.sleep(60)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        await gang.start_controller()
        await gang.until_active(epoch=2, within=300)
        assert [pod.spawns() for pod in gang.pods] == [2, 2]


async def test_by_default_a_store_that_was_relaunched_touches_no_engine(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.touched.add(STORE)
        kill_store(gang.pods[1])
        await trio.sleep(600)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert gang.is_active()
