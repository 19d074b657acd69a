"""Real supervisors and the real controller: cold start, a death, and what is and is not done about it."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from controller.model.settings import RelaunchSettings
from controller.policy import Policy
from tests.support.virtual_gang import Gang, Script, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

INTERVAL_SEC = 3.0
SUICIDE_SEC = 5 * INTERVAL_SEC


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


def has_faults(gang: Gang, count: int) -> bool:
    return len(faults(gang)) == count


def faults(gang: Gang) -> list[str]:
    return [event.message for event in gang.events if event.kind == "fault"]


@pytest.mark.parametrize("size", [2, 8])
async def test_a_cold_start_becomes_active(autojump_clock: MockClock, size: int) -> None:
    async with open_gang(size) as gang:
        instance = await gang.until_active(within=60)
        assert instance.epoch == 1
        assert [member.node_rank for member in instance.members] == list(range(size))
        assert boots(gang) == [1] * size
        assert [pod.state.relaunch_count for pod in gang.pods] == [0] * size
        assert [pod.it.stdout for pod in gang.pods] == [[]] * size  # no banner: there was no old engine
        assert not any(pod.is_frozen for pod in gang.pods)
        assert [(run.reason, run.outcome) for run in gang.runs] == [("assemble", "done")]


@pytest.mark.seed("S01")
@pytest.mark.seed("S02")
@pytest.mark.seed("S04")
@pytest.mark.seed("S21")
@pytest.mark.seed("S26")
@pytest.mark.seed("S27")
@pytest.mark.parametrize("size", [2, 8])
async def test_a_death_relaunches_all_engines_in_place(autojump_clock: MockClock, size: int) -> None:
    async with open_gang(size) as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until_active(epoch=2, within=60)
        everybody = {pod.ip for pod in gang.pods}
        # C2, I1: all are stopped and clean before the first is spawned.
        order = [record.what for record in gang.did("step:prepared", "spawn", since=died)]
        assert order == ["step:prepared"] * size + ["spawn"] * size
        assert {record.who for record in gang.did("spawn", since=died)} == everybody
        assert {record.epoch for record in gang.did("spawn", since=died)} == {2}
        assert [pod.spawns() for pod in gang.pods] == [2] * size
        # S26, I3: store and monitor live on, and so do the containers.
        assert boots(gang) == [1] * size
        assert [pod.spawns("kv-store") for pod in gang.pods] == [1] * size
        assert [pod.state.relaunch_count for pod in gang.pods] == [1] * size
        for pod in gang.pods:
            (banner,) = pod.it.stdout
            assert "[ENGINE RELAUNCH #1]" in banner
            assert "epoch=2 instance=" in banner
        # C6: out of routing once, and back once.
        assert gang.statuses() == ["active", "inactive", "active"]


@pytest.mark.seed("S12")
@pytest.mark.seed("S11")
async def test_the_freeze_begins_with_the_accepted_report_and_ends_with_the_start(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until_active(epoch=2)
        frozen, *_ = gang.did("frozen", since=died, who=gang.pods[1])
        assert frozen.epoch == 1, "by the report, before prepare took it into the next epoch"
        assert len(faults(gang)) == 1
        assert "answered engine_relaunch" in faults(gang)[0]
        for pod in gang.pods:
            assert pod.state.freeze is None
            assert [record.epoch for record in gang.did("unfrozen", since=died, who=pod)] == [2]


@pytest.mark.seed("S12")
async def test_a_frozen_member_waits_for_its_turn(autojump_clock: MockClock) -> None:
    """The run is queued behind another instance's for longer than the arbiter would wait."""
    async with open_gang(policy=Policy(max_concurrent_runs=1)) as gang:
        others = gang.world.add_gang("other")
        await gang.until_active()
        await gang.world.until_active("other")
        for other in others:
            other.change(prepare_sec=90.0)
        others[0].kill_engine()
        await trio.sleep(1)
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until_active(epoch=2, within=300)
        assert gang.did("step:stopping", since=died)[0].at - died > 80
        assert boots(gang) == [1, 1]


@pytest.mark.seed("S16")
@pytest.mark.seed("S17")
async def test_loading_longer_than_the_grace_period_is_neither_reported_nor_ended(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(load_sec=1800.0, healthy=False)) as gang:
        await gang.until(lambda: len(gang.did("step:loading")) == 2)
        await gang.until(lambda: len(gang.did("step:done")) == 2, within=1801)
        for pod in gang.pods:
            pod.change(healthy=True)
        await gang.until_active(within=60)
        assert faults(gang) == []
        assert boots(gang) == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert [(run.reason, run.outcome) for run in gang.runs] == [("assemble", "done")]


@pytest.mark.seed("S16")
async def test_a_load_without_progress_is_given_up_once_by_its_supervisor(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].change(load_sec=100_000.0, progress_every_sec=None)
        gang.pods[0].kill_engine()
        await gang.until(lambda: len(gang.did("spawn")) == 4)
        began = trio.current_time()
        await gang.until(lambda: bool(gang.did("step:failed")), within=400)
        gang.pods[1].change(load_sec=5.0)
        # StartStallSec is the only verdict: neither grace, nor a poll, nor a time-out of the controller came first.
        assert 300 <= trio.current_time() - began < 305
        assert [record.who for record in gang.did("step:failed")] == [gang.pods[1].ip]
        await gang.until_active(epoch=3)
        assert len(gang.did("step:failed")) == 1
        assert boots(gang) == [1, 1]


@pytest.mark.seed("S25")
async def test_a_sick_engine_is_reported_once_and_relaunched(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await trio.sleep(200)
        gang.pods[1].change(healthy=False)
        await gang.until(lambda: bool(faults(gang)), within=60)
        gang.pods[1].change(healthy=True)
        await gang.until_active(epoch=2)
        await trio.sleep(60)
        assert len(faults(gang)) == 1
        assert [event.reason for event in gang.events if event.kind == "fault"] == ["unhealthy:liveness"]
        assert boots(gang) == [1, 1]


@pytest.mark.seed("S14")
async def test_while_engines_are_replaced_no_probe_is_news_and_afterwards_it_is_again(
    autojump_clock: MockClock,
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await trio.sleep(200)
        gang.pods[0].kill_engine()
        for pod in gang.pods:  # whatever was to be said of the old engines, and of those that load
            pod.change(load_sec=60.0, healthy=False)
        await gang.until(lambda: len(gang.did("step:loading")) == 4)
        await trio.sleep(50)
        assert [event.reason for event in gang.events if event.kind == "fault"] == ["engine_dead"]
        for pod in gang.pods:
            pod.change(healthy=True)
        await gang.until_active(epoch=2)
        await trio.sleep(200)
        assert len(faults(gang)) == 1
        gang.pods[1].change(healthy=False)
        await gang.until(lambda: len(faults(gang)) == 2, within=60)
        gang.pods[1].change(healthy=True)
        await gang.until_active(epoch=3)


@pytest.mark.seed("S25")
async def test_deaths_are_told_whatever_fault_tolerance_is_configured(autojump_clock: MockClock) -> None:
    off = RelaunchSettings(enable_engine_relaunch=False)
    switches: dict[str, object] = {"enable_engine_relaunch": False}
    async with open_gang(policy=Policy(relaunch=off), fault_tolerance=switches) as gang:
        await gang.until_active()
        await trio.sleep(200)
        gang.pods[0].kill_engine()
        gang.pods[1].change(healthy=False)
        await gang.until(lambda: len(faults(gang)) == 2, within=60)
        told = sorted(event.reason or "" for event in gang.events if event.kind == "fault")
        assert told == ["engine_dead", "unhealthy:liveness"]
        gang.pods[1].change(healthy=True)


@pytest.mark.seed("S25")
async def test_a_sick_engine_that_recovers_is_not_relaunched_and_its_next_sickness_is_news(
    autojump_clock: MockClock,
) -> None:
    policy = Policy(relaunch=RelaunchSettings(enable_engine_relaunch=False))
    async with open_gang(policy=policy, supervisor={"suicide_threshold": 100}) as gang:
        await gang.until_active()
        await trio.sleep(200)
        for times in (1, 2):
            gang.pods[1].change(healthy=False)
            await gang.until(partial(has_faults, gang, times), within=60)
            await trio.sleep(60)
            gang.pods[1].change(healthy=True)
            await gang.until_active(within=60)
            assert len(faults(gang)) == times
        assert gang.statuses() == ["active", "inactive", "active", "inactive", "active"]
        assert [pod.spawns() for pod in gang.pods] == [1, 1]


@pytest.mark.seed("S12")
@pytest.mark.seed("S15")
@pytest.mark.parametrize("after_sec", [10.0, 300.0], ids=["F16-inside-the-grace-period", "after-it"])
async def test_without_a_controller_a_death_restarts_the_container(autojump_clock: MockClock, after_sec: float) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await trio.sleep(after_sec)
        await gang.crash_controller()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: bool(gang.pods[1].ended), within=60)
        assert SUICIDE_SEC - INTERVAL_SEC <= trio.current_time() - died <= SUICIDE_SEC + INTERVAL_SEC
        assert gang.pods[1].ended[0][0] == 255
        assert gang.did("frozen", since=died) == []
        assert boots(gang)[0] == 1
        await gang.start_controller()
        await gang.until_active(epoch=2)
        assert len({record.epoch for record in gang.did("spawn", since=died)}) == 1


@pytest.mark.seed("S09")
@pytest.mark.seed("S13")
@pytest.mark.seed("S20")
@pytest.mark.parametrize("side", ["controller", "supervisors"])
async def test_with_the_switch_off_the_containers_restart_at_once(autojump_clock: MockClock, side: str) -> None:
    off = side == "controller"
    policy = Policy(relaunch=RelaunchSettings(enable_engine_relaunch=not off))
    fault_tolerance: dict[str, object] = {"enable_engine_relaunch": off}
    async with open_gang(policy=policy, fault_tolerance=fault_tolerance) as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: bool(gang.pods[1].ended), within=60)
        assert trio.current_time() - died <= SUICIDE_SEC + INTERVAL_SEC
        assert gang.pods[1].ended[0][0] == 255
        assert [r for r in gang.did("frozen", since=died) if r.epoch == 1] == []
        await gang.until_active(epoch=2)
        assert boots(gang) == [2, 2]


async def test_an_engine_that_ignores_being_asked_is_killed_and_the_gang_goes_on(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(stop_sec=None)) as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: len(gang.did("step:prepared", since=died)) == 2)
        assert trio.current_time() - died <= 3.0 + 2.0  # RelaunchTimeoutStopSec, and what the rest may take
        await gang.until_active(epoch=2)


async def test_a_gate_that_does_not_pass_costs_the_containers_and_not_the_freeze(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[0].change(gate_refuses="port 8000: held by pid 4711")
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: boots(gang) == [2, 2], within=60)
        assert trio.current_time() - died < 30
        gang.pods[0].change(gate_refuses=None)
        await gang.until_active(epoch=3)


async def test_an_engine_that_dies_while_loading_is_tried_again_and_then_the_containers(
    autojump_clock: MockClock,
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].change(dies_after_sec=2.0)
        gang.pods[0].kill_engine()
        await gang.until(lambda: boots(gang) == [2, 2])
        assert [pod.boots[0].processes.times("engine") for pod in gang.pods][1][1:]  # it was tried in place
        tried = len(gang.pods[1].boots[0].processes.times("engine")) - 1
        assert tried == 3, "engine_relaunch_max_attempts"
        gang.pods[1].change(dies_after_sec=float("inf"))
        await gang.until_active(epoch=5)
