"""Whole gangs while their controller comes and goes, with nothing but its memory to lose."""

from __future__ import annotations

import pytest
import trio
from quart import Response
from quart_trio import QuartTrio
from trio.testing import MockClock

from supervisor import wire
from tests.support.controller_world import HOST, PORT, RESTART_ALL
from tests.support.virtual_gang import Gang, Script, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

WAYS = ["stopped", "crashed"]


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


async def end_controller(gang: Gang, way: str) -> None:
    if way == "stopped":
        await gang.stop_controller()
    else:
        await gang.crash_controller()


@pytest.mark.seed("S33")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["probe", "prepare", "start", "await"])
@pytest.mark.parametrize("away_sec", [0.5, 100.0])
async def test_F17_a_controller_that_ends_in_any_step_of_a_relaunch(
    autojump_clock: MockClock, step: str, way: str, away_sec: float
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: gang.step == step, every=0.0005)
        await end_controller(gang, way)
        await trio.sleep(away_sec)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=400)
        await trio.sleep(120)
        assert gang.is_active(epoch=2)
        assert not any(pod.is_frozen for pod in gang.pods)
        if step == "await":
            # They load on without anybody, and are healthy when it comes back: taken over, not relaunched.
            assert len(gang.did("spawn", since=died)) == 2
            assert boots(gang) == [1, 1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", [0.006, 0.1, 0.404])
async def test_F17_a_gang_that_waits_for_the_barrier_of_a_run_that_is_no_more_is_relaunched_at_once(
    autojump_clock: MockClock, way: str, moment: float
) -> None:
    """Not only when its freeze has ended by silence: meanwhile nobody serves."""
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].kill_engine()
        await trio.sleep(moment)
        await end_controller(gang, way)
        await trio.sleep(1.0)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=15)
        assert boots(gang) == [1, 1]


@pytest.mark.seed("S33")
@pytest.mark.parametrize("way", WAYS)
async def test_F17_a_controller_that_ends_at_any_moment_of_a_relaunch(autojump_clock: MockClock, way: str) -> None:
    for moment in (0.0, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.010, 0.012, 0.1, 0.3, 0.41, 0.415, 1.0, 5.4, 5.41):
        async with open_gang() as gang:
            await gang.until_active()
            gang.pods[1].kill_engine()
            await trio.sleep(moment)
            await end_controller(gang, way)
            await trio.sleep(1.0)
            await gang.start_controller()
            await gang.until_active(epoch=2, within=400)
            await trio.sleep(30)
            assert gang.is_active(epoch=2), moment


@pytest.mark.parametrize("way", WAYS)
async def test_F7_a_controller_that_ends_at_any_moment_of_a_cold_start(autojump_clock: MockClock, way: str) -> None:
    for moment in (0.0, 0.002, 0.004, 0.006, 0.008, 0.010, 0.012, 0.05, 0.11, 0.113, 0.115, 1.0, 5.1, 5.12):
        async with open_gang() as gang:
            await trio.sleep(moment)
            await end_controller(gang, way)
            await trio.sleep(1.0)
            await gang.start_controller()
            await gang.until_active(within=400)
            await trio.sleep(30)
            assert gang.is_active(), moment


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("away_sec", [1.0, 30.0, 3600.0])
async def test_a_healthy_gang_is_taken_over_and_not_touched(
    autojump_clock: MockClock, way: str, away_sec: float
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await end_controller(gang, way)
        await trio.sleep(away_sec)
        await gang.start_controller()
        await gang.until_active(within=60)
        await trio.sleep(60)
        assert gang.is_active()
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert boots(gang) == [1, 1]
        assert gang.runs == []
        gang.pods[0].kill_engine()
        await gang.until_active(epoch=2)


async def test_a_controller_that_comes_and_goes_relaunches_nothing_healthy(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for _ in range(10):
            await gang.crash_controller()
            await trio.sleep(3.0)
            await gang.start_controller()
            await trio.sleep(2.0)
        await gang.until_active(within=60)
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
        assert boots(gang) == [1, 1]


@pytest.mark.parametrize("way", WAYS)
async def test_a_controller_that_ends_in_phase_two(autojump_clock: MockClock, way: str) -> None:
    async with open_gang(3, policy=RESTART_ALL) as gang:
        await gang.until_active()
        gang.pods[0].change(container_restart_sec=40.0)
        gang.pods[0].kill_container()
        gang.pods[1].kill_engine()
        await gang.until(lambda: gang.step == "phase2", every=0.0005)
        await end_controller(gang, way)
        await trio.sleep(1.0)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=400)
        await trio.sleep(60)
        assert gang.is_active(epoch=2)


async def test_pods_that_wait_for_their_controller_start_once_it_is_there(autojump_clock: MockClock) -> None:
    async with open_gang(without_controller=True) as gang:
        await trio.sleep(600)
        assert gang.did("spawn") == []
        assert boots(gang) == [1, 1]
        await gang.start_controller()
        await gang.until_active(within=60)


async def test_a_controller_that_takes_registrations_and_no_heartbeats_is_not_asked_in_a_loop(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []
    application = QuartTrio("a controller of another mind")

    @application.post("/controller/<what>")
    async def answer(what: str) -> Response:
        asked.append(what)
        body = wire.encode(wire.RegisterAnswer(term=1)) if what == "register" else b"{}"
        return Response(body, status=200 if what == "register" else 503)

    async with open_gang(1, without_controller=True) as gang:
        gang.world.network.listen(HOST, PORT, application)
        await gang.until(lambda: "heartbeat" in asked)
        asked.clear()
        await trio.sleep(300)
        assert 90 <= asked.count("register") <= 100  # at the pace of heartbeats
        gang.world.network.close(HOST, PORT)
        await gang.start_controller()
        await gang.until_active(within=60)


async def test_an_engine_alone_in_its_instance_is_relaunched_without_a_controller_and_taken_over_later(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1) as gang:
        await gang.until_active()
        await trio.sleep(100)
        await gang.crash_controller()
        (pod,) = gang.pods
        pod.kill_engine()
        await gang.until(lambda: pod.serves and pod.state.epoch == 2, within=60)
        assert boots(gang) == [1]
        assert len(pod.it.stdout) == 1
        await trio.sleep(600)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=60)
        await trio.sleep(60)
        assert pod.spawns() == 2
        assert gang.runs == []


async def test_an_engine_alone_that_dies_soon_after_its_start_is_the_containers_business(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(1) as gang:
        await gang.until_active()
        await trio.sleep(10)
        await gang.crash_controller()
        gang.pods[0].kill_engine()
        await gang.until(lambda: boots(gang) == [2], within=60)
        await gang.start_controller()
        await gang.until_active(epoch=2, within=60)


@pytest.mark.seed("S11")
async def test_a_controller_that_is_gone_for_good_costs_its_gang_a_minute(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[0].change(gate_sec=5.0)
        died = trio.current_time()
        gang.pods[1].kill_engine()
        await gang.until(lambda: bool(gang.did("step:prepared", since=died)))
        await gang.crash_controller()
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=120)
        assert 60 <= trio.current_time() - died <= 60 + 15 + 10 + 5
        assert [pod.ended[0][0] for pod in gang.pods] == [255, 255]


async def test_loading_goes_on_while_the_controller_is_away(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(load_sec=400.0)) as gang:
        await gang.until(lambda: len(gang.did("spawn")) == 2)
        await trio.sleep(50)
        await gang.crash_controller()
        await trio.sleep(200)
        await gang.start_controller()
        await gang.until_active(within=400)
        assert boots(gang) == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [1, 1]
