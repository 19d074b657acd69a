"""Instances of one pod for which no controller comes: started all the same, and taken over when one does."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.api.operations import Refused
from supervisor.wire import Step
from tests.support.virtual_gang import ENGINE, Gang, Script, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

PATIENCE_SEC = 30.0


async def taken_over(gang: Gang, pod: VirtualPod) -> None:
    """The controller has it in an ACTIVE instance, and nobody has touched its engine."""
    pid = pod.it.supervision.engine.services[0].state.pid
    await gang.until_active(epoch=pod.state.epoch, within=60)
    await trio.sleep(60)
    assert gang.is_active(epoch=pod.state.epoch)
    assert pod.it.supervision.engine.services[0].state.pid == pid
    assert gang.runs == []
    assert gang.instance is not None
    assert pod.state.instance_id == gang.instance.id


async def test_it_starts_after_a_while_and_is_taken_over_by_a_controller_that_comes_later(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1, without_controller=True) as gang:
        (pod,) = gang.pods
        await trio.sleep(PATIENCE_SEC - 1)
        assert gang.did("spawn") == []
        await gang.until(lambda: pod.serves, within=10)
        assert pod.not_ready == ""
        await trio.sleep(600)
        await gang.start_controller()
        await taken_over(gang, pod)
        pod.kill_engine()
        await gang.until_active(epoch=2, within=60)
        assert [run.reason for run in gang.runs] == ["fault"]
        assert len(pod.boots) == 1


async def test_all_engines_of_the_pod_are_started_and_taken_over(autojump_clock: MockClock) -> None:
    async with open_gang(1, without_controller=True, endpoints=2) as gang:
        (pod,) = gang.pods
        await gang.until(lambda: pod.serves, within=PATIENCE_SEC + 10)
        assert pod.state.endpoint_ids == (0, 1)
        await gang.start_controller()
        await taken_over(gang, pod)
        assert pod.spawns() == 2


@pytest.mark.parametrize("after_sec", [29.9, 30.0, 30.05, 30.1, 30.12, 30.5, 34.0, 35.3])
async def test_a_controller_that_comes_at_that_very_moment(autojump_clock: MockClock, after_sec: float) -> None:
    """Whoever is first, one engine is started, once, and it is known where it belongs."""
    async with open_gang(1, without_controller=True) as gang:
        (pod,) = gang.pods
        await trio.sleep(after_sec)
        await gang.start_controller()
        await gang.until_active(within=120)
        await trio.sleep(60)
        assert gang.is_active()
        assert pod.spawns() == 1
        assert gang.instance is not None
        assert pod.state.instance_id == gang.instance.id


async def test_one_that_is_not_spawned_yet_when_the_controller_comes_is_the_controller_s(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1, without_controller=True, script=Script(gate_sec=60.0)) as gang:
        (pod,) = gang.pods
        await trio.sleep(PATIENCE_SEC + 5)
        assert pod.state.step is Step.CLEANING
        pod.change(gate_sec=0.1)
        await gang.start_controller()
        await gang.until_active(within=60)
        await trio.sleep(60)
        assert [run.reason for run in gang.runs] == ["assemble"]
        assert pod.spawns() == 1


async def test_one_whose_dependencies_are_up_only_after_the_controller_has_come_is_the_controller_s(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1, without_controller=True) as gang:
        (pod,) = gang.pods
        await trio.sleep(1)
        supervision = pod.it.supervision
        supervision.node_manager.dependencies_active = False
        await trio.sleep(PATIENCE_SEC + 5)
        await gang.start_controller()
        await trio.sleep(30)
        assert gang.did("spawn") == []
        supervision.node_manager.dependencies_active = True
        supervision.changed.announce()
        await gang.until_active(within=60)
        assert [(run.reason, run.epoch) for run in gang.runs] == [("assemble", 1)]


async def test_after_a_container_restart_away_from_its_controller_it_comes_back_as_it_is(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1) as gang:
        await gang.until_active()
        (pod,) = gang.pods
        gang.cut_off(pod)
        pod.kill_container()
        await gang.until(lambda: len(pod.boots) == 2 and pod.serves, within=120)
        assert pod.state.epoch > 1, "its state directory has survived"
        closed = len(gang.runs)
        gang.heal(pod)
        await gang.until_active(epoch=pod.state.epoch, within=60)
        await trio.sleep(60)
        assert gang.is_active(epoch=2)
        assert pod.spawns() == 1
        assert len(gang.runs) == closed


async def test_a_gang_waits_for_ever(autojump_clock: MockClock) -> None:
    async with open_gang(2, without_controller=True) as gang:
        await trio.sleep(7200)
        assert gang.did("spawn") == []
        assert [pod.not_ready for pod in gang.pods] == ["endpoint is wait2start"] * 2


async def test_0_is_for_ever_and_an_operator_need_not_wait(autojump_clock: MockClock) -> None:
    settings: dict[str, object] = {"start_without_controller_after_sec": 0}
    async with open_gang(1, without_controller=True, supervisor=settings) as gang:
        (pod,) = gang.pods
        await trio.sleep(7200)
        assert gang.did("spawn") == []
        view = await pod.it.operations.start_standalone(ENGINE, asked_by="operator")
        assert view.pid is not None
        await gang.until(lambda: pod.serves, within=10)
        with pytest.raises(Refused, match="was started already"):
            await pod.it.operations.start_standalone(ENGINE, asked_by="operator")
        await gang.start_controller()
        await taken_over(gang, pod)
        with pytest.raises(Refused, match="the controller knows this pod"):
            await pod.it.operations.start_standalone(ENGINE, asked_by="operator")


async def test_a_gang_can_be_started_by_hand_only_where_its_settings_name_all_pods(autojump_clock: MockClock) -> None:
    async with open_gang(2, without_controller=True) as gang:
        await trio.sleep(1)
        with pytest.raises(Refused, match=r"set supervisor\.node_addrs"):
            await gang.pods[0].it.operations.start_standalone(ENGINE, asked_by="operator")
    addresses: dict[str, object] = {"node_addrs": ["10.1.0.0", "10.1.0.1"]}
    async with open_gang(2, without_controller=True, supervisor=addresses) as gang:
        gang.alone.add(1)
        await trio.sleep(1)
        for pod in gang.pods:
            await pod.it.operations.start_standalone(ENGINE, asked_by="operator")
        await gang.until(lambda: all(pod.serves for pod in gang.pods), within=10)
        await gang.start_controller()
        await gang.until_active(within=60)
        await trio.sleep(60)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert gang.runs == []
