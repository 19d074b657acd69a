"""`Endpoints = 2`: a gang whose pods run several engine processes each. They live and die together."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.support.virtual_gang import Gang, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def endpoint_ids(gang: Gang) -> list[tuple[int, ...]]:
    return [pod.state.endpoint_ids for pod in gang.pods]


async def test_every_engine_process_of_every_pod_is_an_endpoint_of_its_own(autojump_clock: MockClock) -> None:
    async with open_gang(endpoints=2) as gang:
        instance = await gang.until_active(within=60)
        assert instance.epoch == 1
        assert endpoint_ids(gang) == [(0, 1), (2, 3)]
        assert [pod.spawns() for pod in gang.pods] == [2, 2]
        for pod in gang.pods:
            assert pod.state.placement is not None
            placed = [(each.id, each.business_port) for each in pod.state.placement.endpoints]
            first = pod.state.endpoint_ids[0]
            assert placed == [(first, "8000"), (first + 1, "8002")]


@pytest.mark.parametrize("number", [0, 1])
async def test_the_death_of_one_of_them_relaunches_all_of_all_pods(autojump_clock: MockClock, number: int) -> None:
    async with open_gang(endpoints=2) as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine(number)
        await gang.until_active(epoch=2, within=60)
        order = [record.what for record in gang.did("step:prepared", "spawn", since=died)]
        assert order == ["step:prepared"] * 2 + ["spawn"] * 4  # C2: all are stopped before the first is spawned
        assert [len(pod.boots) for pod in gang.pods] == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [4, 4]
        assert [len(pod.it.stdout) for pod in gang.pods] == [1, 1]  # one banner for a pod, not one for a process
        (report,) = [event.message for event in gang.events if event.kind == "fault"]
        assert report.startswith(f"engine {2 + number} on {gang.pods[1].ip}: killed by SIGKILL")


async def test_only_the_dead_one_is_abnormal(autojump_clock: MockClock) -> None:
    async with open_gang(endpoints=2, fault_tolerance={"enable_engine_relaunch": False}) as gang:
        await gang.until_active()
        gang.pods[1].kill_engine(1)
        await gang.until(lambda: bool(gang.pods[1].state.dead))
        statuses = gang.pods[1].it.supervision.node_manager.heartbeat(0).status
        assert statuses == {"2": "normal", "3": "abnormal"}


async def test_one_that_dies_while_loading_takes_the_pod_s_relaunch_with_it(autojump_clock: MockClock) -> None:
    async with open_gang(endpoints=2) as gang:
        await gang.until(lambda: gang.pods[0].spawns() == 2)
        await gang.until(lambda: gang.pods[0].state.step == "loading")
        gang.pods[0].kill_engine(1)
        await gang.until_active(epoch=2)
        assert [record.epoch for record in gang.did("step:failed")] == [1]
        assert [pod.spawns() for pod in gang.pods] == [4, 4]


async def test_when_one_cannot_start_the_others_of_its_pod_are_stopped(autojump_clock: MockClock) -> None:
    """A failed relaunch leaves no engine (design 3, status table): without one of them the others are no use."""
    async with open_gang(endpoints=2, fault_tolerance={"enable_engine_relaunch": False}) as gang:
        pod = gang.pods[0]
        await gang.until(lambda: pod.spawns() == 2 and pod.state.step == "loading")
        pod.kill_engine(1)
        await gang.until(lambda: pod.it.processes.alive("engine") == 0, within=5)
        assert (pod.state.step, len(pod.boots)) == ("failed", 1)
