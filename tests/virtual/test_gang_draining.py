"""Pods that are asked to stop: who finishes which requests, who waits for whom, and that nobody is relaunched."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.ending import EXIT_OK
from supervisor.engine.model import progress
from tests.support.virtual_gang import Gang, Script, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

DELAY_SEC = 5.0
REQUESTS_SEC = 12.0
"""How long the engine takes to finish when asked to end."""
PATIENT: dict[str, object] = {"drain_sec": 60, "shutdown_timeout_sec": 120}


def terminate(*pods: VirtualPod) -> float:
    for pod in pods:
        pod.change(container_restart_sec=None)
        pod.it.ending.request(EXIT_OK, "SIGTERM received")
    return trio.current_time()


def stopped_at(gang: Gang, pod: VirtualPod) -> float:
    """When its engine was gone."""
    return gang.did("stopped", who=pod)[-1].at


def alarms(gang: Gang, since: int) -> list[str]:
    return [event.message for event in gang.events[since:] if event.level != "info"]


async def test_a_scale_down_finishes_the_requests_and_ends_the_instance_without_alarm(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(3, script=Script(stop_sec=REQUESTS_SEC), supervisor=PATIENT) as gang:
        await gang.until_active()
        events = len(gang.events)
        began = terminate(*gang.pods)
        await gang.until(lambda: all(pod.not_ready for pod in gang.pods), within=0.5)
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=60)
        first, *others = (stopped_at(gang, pod) - began for pod in gang.pods)
        assert DELAY_SEC + REQUESTS_SEC <= first <= DELAY_SEC + REQUESTS_SEC + 1
        assert all(first + REQUESTS_SEC <= other <= first + REQUESTS_SEC + 4 for other in others)
        await gang.until(lambda: gang.instance is None, within=2)
        assert gang.statuses()[-2:] == ["inactive", "deleted"]
        assert [run.reason for run in gang.runs] == ["assemble"]
        assert alarms(gang, events) == []
        assert [pod.ended[0][0] for pod in gang.pods] == [EXIT_OK] * 3


async def test_one_rank_that_leaves_is_waited_for_by_nobody_and_waits_for_rank_0(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=REQUESTS_SEC), supervisor=PATIENT) as gang:
        await gang.until_active()
        first, second = gang.pods
        began = terminate(second)
        await gang.until(lambda: first.state.paused is not None, within=4)
        assert first.not_ready == "endpoint is paused"
        await gang.until(lambda: bool(second.ended), within=60)
        assert stopped_at(gang, first) - began >= DELAY_SEC + REQUESTS_SEC
        assert stopped_at(gang, second) - stopped_at(gang, first) >= REQUESTS_SEC, "it is asked to end only then"
        assert first.state.drained
        await trio.sleep(60)
        assert not first.ended, "drained on purpose: the arbiter does not count it"
        assert [run.reason for run in gang.runs] == ["assemble"]


async def test_when_a_member_that_left_comes_back_the_gang_is_assembled_anew(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=1.0)) as gang:
        await gang.until_active()
        gang.pods[1].it.ending.request(EXIT_OK, "SIGTERM received")
        await gang.until(lambda: len(gang.pods[1].boots) == 2)
        await gang.until_active(epoch=2, within=120)


async def test_rank_0_alone_drains_and_the_others_keep_their_engines(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=REQUESTS_SEC), supervisor=PATIENT) as gang:
        await gang.until_active()
        first, second = gang.pods
        terminate(first)
        await gang.until(lambda: bool(first.ended), within=60)
        assert second.spawns() == 1
        assert second.it.processes.alive("engine") == 1
        assert [run.reason for run in gang.runs] == ["assemble"]


async def test_a_rank_that_the_controller_cannot_release_goes_when_its_time_is_up(autojump_clock: MockClock) -> None:
    drain_sec = 20.0
    async with open_gang(supervisor={"drain_sec": drain_sec, "shutdown_timeout_sec": 120}) as gang:
        await gang.until_active()
        await gang.crash_controller()
        began = terminate(gang.pods[1])
        await gang.until(lambda: bool(gang.pods[1].ended), within=60)
        assert DELAY_SEC + drain_sec <= trio.current_time() - began <= DELAY_SEC + drain_sec + 5


async def test_whoever_serves_nobody_leaves_at_once(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(load_sec=600.0), supervisor=PATIENT) as gang:
        await gang.until(lambda: len(gang.did("step:loading")) == 2)
        began = terminate(gang.pods[0])
        await gang.until(lambda: bool(gang.pods[0].ended))
        assert trio.current_time() - began < 3


async def test_a_second_signal_hurries(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=None), supervisor=PATIENT) as gang:
        await gang.until_active()
        began = terminate(*gang.pods)
        await trio.sleep(2)
        for pod in gang.pods:
            pod.it.ending.hurry()
        await gang.until(lambda: all(pod.ended for pod in gang.pods))
        assert trio.current_time() - began < 6


async def test_the_end_that_restarts_a_container_drains_nothing(autojump_clock: MockClock) -> None:
    async with open_gang(supervisor=PATIENT) as gang:
        await gang.until_active()
        began = trio.current_time()
        gang.pods[0].it.ending.restart_container("told to")
        await gang.until(lambda: bool(gang.pods[0].ended))
        assert trio.current_time() - began < 3
        await gang.until_active(epoch=2, within=120)
        assert "deleted" not in gang.statuses()


async def test_pause_takes_the_instance_out_of_routing_and_resume_brings_it_back(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        pid = gang.pods[0].it.supervision.engine.services[0].state.pid
        async with gang.client(gang.pods[0]) as client:
            assert (await client.post("/node-manager/pause", json={"reason": "preStop"})).status_code == 200
            await gang.until(lambda: gang.statuses()[-1] == "inactive", within=2)
            await gang.until(lambda: all(pod.not_ready for pod in gang.pods), within=4)
            await trio.sleep(60)
            assert (await client.post("/node-manager/resume", json={})).status_code == 200
        await gang.until_active(within=10)
        assert gang.pods[0].it.supervision.engine.services[0].state.pid == pid
        assert [run.reason for run in gang.runs] == ["assemble"]


async def test_a_drain_that_a_relaunch_has_overtaken_leaves_the_new_engine_alone(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(load_sec=1.0)) as gang:
        await gang.until_active()
        gang.pods[0].it.supervision.drain.begin("10.1.0.1:1026 is leaving")
        await trio.sleep(1)
        gang.pods[1].kill_engine()
        await gang.until_active(epoch=2, within=60)
        await trio.sleep(60)
        assert gang.is_active(epoch=2)
        assert [pod.spawns() for pod in gang.pods] == [2, 2]


async def test_after_the_last_word_nothing_is_heard_of_it_that_would_bring_the_instance_back(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1) as gang:
        await gang.until_active()
        link = gang.pods[0].it.operations.link
        assert link is not None
        gang.pods[0].it.supervision.operator.feed(progress.Leaving("SIGTERM"))
        await link.heartbeat.say_goodbye()
        await gang.until(lambda: gang.instance is None, within=2)
        await trio.sleep(60)
        assert gang.instance is None


async def test_all_engines_of_a_pod_finish_their_requests(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=REQUESTS_SEC), supervisor=PATIENT, endpoints=2) as gang:
        await gang.until_active()
        first, second = gang.pods
        terminate(second)
        await gang.until(lambda: first.state.drained, within=60)
        assert first.it.processes.alive("engine") == 0
        assert second.it.processes.alive("engine") == 2
        await gang.until(lambda: bool(second.ended), within=60)
        stopped = [record.who for record in gang.did("stopped")[-4:]]
        assert stopped == [first.ip] * 2 + [second.ip] * 2
        assert [run.reason for run in gang.runs] == ["assemble"]


async def test_a_held_gang_that_is_asked_to_stop_goes_at_once_and_without_alarm(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=REQUESTS_SEC), supervisor=PATIENT) as gang:
        await gang.until_active()
        await gang.pods[0].it.operations.change("engine", "stop", asked_by="ana", local=False)
        await trio.sleep(60)
        events = len(gang.events)
        began = terminate(*gang.pods)
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=60)
        assert trio.current_time() - began < 3, "there are no requests to finish"
        await gang.until(lambda: gang.instance is None, within=2)
        assert alarms(gang, events) == []
        assert [run.reason for run in gang.runs] == ["assemble", "hold"]
