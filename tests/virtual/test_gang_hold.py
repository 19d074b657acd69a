"""A gang that an operator holds: commands typed in one pod are the gang's, and nothing starts until it is released."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import Holder
from supervisor import wire
from supervisor.api.operations import ControllerAway, Refused
from tests.support.virtual_gang import ENGINE, STORE, Gang, Script, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

ANA = "ana"
LONG_SEC = 400.0
"""More than any freeze, silence or patience of the arbiter that could end what is held."""


async def change(pod: VirtualPod, verb: str, name: str = ENGINE) -> wire.UnitView:
    """`podvisor VERB UNIT`"""
    return await pod.it.operations.change(name, verb, asked_by=ANA, local=False)


def boots(gang: Gang) -> list[int]:
    return [len(pod.boots) for pod in gang.pods]


def alive(gang: Gang) -> list[int]:
    return [pod.it.processes.alive(ENGINE) for pod in gang.pods]


def steps(gang: Gang) -> list[wire.Step]:
    return [pod.state.step for pod in gang.pods]


def reasons(gang: Gang) -> list[str]:
    return [run.reason for run in gang.runs]


async def post(gang: Gang, verb: str, **body: object) -> wire.InstanceView:
    assert gang.instance is not None
    answer = await gang.world.client.post(f"/v1/instances/{gang.instance.id}/{verb}", json=body)
    assert answer.status_code == 202, answer.text
    return wire.decode(wire.InstanceView, answer.content)


async def shown(gang: Gang) -> wire.InstanceView:
    assert gang.instance is not None
    answer = await gang.world.client.get(f"/v1/instances/{gang.instance.id}")
    return wire.decode(wire.InstanceView, answer.content)


async def test_nobody_is_said_to_have_restarted_because_the_gang_is_held(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await post(gang, "hold", reason="maintenance")
        await gang.until(lambda: alive(gang) == [0, 0])
        await trio.sleep(60)
        assert [event.message for event in gang.events if "restarted" in event.message] == []
        assert (await shown(gang)).reason == "held: maintenance"
        assert (await post(gang, "hold")).held == "maintenance", "without a reason that of the hold before stays"
        assert (await post(gang, "hold", reason="new card")).held == "new card"


async def test_a_stop_in_one_pod_stops_the_gang_and_holds_it_until_a_start_in_any(autojump_clock: MockClock) -> None:
    async with open_gang(3) as gang:
        await gang.until_active()
        view = await change(gang.pods[1], "stop")
        assert view.state == "inactive"
        assert "held in all 3 pods of default/" in view.message
        assert f"`podvisor start {ENGINE}`" in view.message
        await gang.until(lambda: steps(gang) == [wire.Step.HELD] * 3, within=5)
        assert alive(gang) == [0, 0, 0]
        await trio.sleep(LONG_SEC)
        assert boots(gang) == [1, 1, 1], "paused on purpose: no arbiter counts it, nobody assembles it"
        told = await shown(gang)
        assert (told.held_by, told.recovery) == (Holder.OPERATOR, None)
        assert told.held == f"asked for by ana at {ENGINE}"
        assert {endpoint.status for endpoint in told.endpoints} == {wire.EndpointStatus.PAUSED}
        await change(gang.pods[2], "start")
        await gang.until_active(epoch=2, within=30)
        assert boots(gang) == [1, 1, 1]
        assert reasons(gang) == ["assemble", "hold", "assemble"]
        assert [pod.it.stdout for pod in gang.pods] == [[], [], []], "a start parts from no engine: no banner"


async def test_a_start_of_a_gang_that_is_not_held_does_nothing(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        assert (await change(gang.pods[0], "start")).state == "active"
        await trio.sleep(30)
        assert gang.is_active()
        assert reasons(gang) == ["assemble"]


async def test_a_restart_in_one_pod_relaunches_the_gang(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await change(gang.pods[1], "restart")
        assert gang.pods[1].spawns() == 2
        await gang.until_active(epoch=2, within=60)
        assert reasons(gang) == ["assemble", "operator"]


@pytest.mark.parametrize("verb", ["stop", "start", "restart"])
async def test_without_a_controller_nothing_is_done(autojump_clock: MockClock, verb: str) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.crash_controller()
        with pytest.raises(ControllerAway, match="nothing was done"):
            await change(gang.pods[1], verb)
        await trio.sleep(30)
        assert alive(gang) == [1, 1]
        assert [pod.spawns() for pod in gang.pods] == [1, 1]


async def test_a_dependency_that_takes_a_rank_along_is_not_restarted_without_a_controller(
    autojump_clock: MockClock,
) -> None:
    async with open_gang(relations=f'BindsTo = ["{STORE}"]') as gang:
        await gang.until_active()
        with pytest.raises(Refused, match=f"podvisor stop {ENGINE}"):
            await change(gang.pods[0], "stop", STORE)
        await gang.crash_controller()
        with pytest.raises(ControllerAway):
            await change(gang.pods[0], "restart", STORE)
        assert gang.pods[0].spawns(STORE) == 1
        await gang.start_controller()
        await gang.until(lambda: gang.is_active(), within=60)
        gang.touched.add(STORE)
        await change(gang.pods[0], "restart", STORE)
        await gang.until_active(epoch=2, within=60)
        assert [pod.spawns() for pod in gang.pods] == [2, 2]
        assert boots(gang) == [1, 1]


# --- a hold meets a run, a run meets a hold -------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 0.5, 1.0, 3.0])
async def test_a_hold_at_any_moment_of_a_relaunch_ends_it_with_all_engines_stopped(
    autojump_clock: MockClock, moment: float
) -> None:
    async with open_gang(3) as gang:
        await gang.until_active()
        gang.pods[0].kill_engine()
        await trio.sleep(moment)
        await post(gang, "hold", reason="maintenance")
        await gang.until(lambda: steps(gang) == [wire.Step.HELD] * 3, within=10)
        await trio.sleep(LONG_SEC)
        assert alive(gang) == [0, 0, 0]
        assert boots(gang) == [1, 1, 1]
        await post(gang, "release")
        await gang.until_active(epoch=2, within=60)


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.1, 0.2, 0.35, 2.0])
async def test_a_release_at_any_moment_of_a_hold_starts_the_gang(autojump_clock: MockClock, moment: float) -> None:
    async with open_gang(script=Script(stop_sec=0.3)) as gang:
        await gang.until_active()
        await post(gang, "hold")
        await trio.sleep(moment)
        await post(gang, "release")
        await gang.until_active(epoch=1 if moment == 0.0 else 2, within=120)
        await trio.sleep(120)
        assert gang.is_active()


async def test_a_gang_is_held_while_it_waits_to_be_assembled(autojump_clock: MockClock) -> None:
    async with open_gang(script=Script(load_sec=60.0)) as gang:
        await gang.until(lambda: steps(gang) == [wire.Step.LOADING] * 2)
        await post(gang, "hold")
        await gang.until(lambda: steps(gang) == [wire.Step.HELD] * 2, within=10)
        assert alive(gang) == [0, 0]
        await post(gang, "release")
        await gang.until_active(epoch=2, within=120)


async def test_the_hold_of_the_gang_takes_over_that_of_one_rank(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.pods[1].it.operations.change(ENGINE, "stop", asked_by=ANA, local=True)
        await change(gang.pods[0], "stop")
        await change(gang.pods[1], "start")
        await gang.until_active(epoch=2, within=60)
        assert boots(gang) == [1, 1]


# --- what happens while it is held ----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [(0,), (0, 1)])
async def test_F23_a_container_of_a_held_gang_that_dies_comes_back_idle(
    autojump_clock: MockClock, who: tuple[int, ...]
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await change(gang.pods[0], "stop")
        for index in who:
            gang.pods[index].kill_container()
        await trio.sleep(LONG_SEC)
        assert alive(gang) == [0, 0]
        assert boots(gang) == [2 if index in who else 1 for index in range(2)]
        assert gang.instance is not None
        assert gang.instance.held is not None
        await post(gang, "release")
        await gang.until_active(epoch=2, within=60)
        assert boots(gang) == [2 if index in who else 1 for index in range(2)], "no further container is given for it"


async def test_a_controller_without_memory_learns_that_the_gang_is_held(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await post(gang, "hold", reason="maintenance")
        await gang.until(lambda: steps(gang) == [wire.Step.HELD] * 2, within=5)
        await gang.crash_controller()
        await trio.sleep(60)
        await gang.start_controller()
        await gang.until(lambda: gang.instance is not None and gang.instance.complete, within=60)
        await trio.sleep(LONG_SEC)
        assert alive(gang) == [0, 0]
        assert gang.instance is not None
        assert gang.instance.held is not None
        assert (gang.instance.held.by, gang.instance.held.reason) == (Holder.OPERATOR, "held: maintenance")
        await post(gang, "release")
        await gang.until_active(epoch=3, within=60)


async def test_a_rank_that_could_not_be_told_stops_as_soon_as_it_can(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.cut_off(gang.pods[1])
        await post(gang, "hold")
        await gang.until(lambda: gang.pods[0].state.step is wire.Step.HELD, within=5)
        await trio.sleep(120)
        assert alive(gang) == [0, 1]
        gang.heal(gang.pods[1])
        await gang.until(lambda: alive(gang) == [0, 0], within=30)
        await trio.sleep(LONG_SEC)
        assert alive(gang) == [0, 0]
        await post(gang, "release")
        await gang.until_active(epoch=2, within=60)


async def test_a_rank_that_hears_no_command_is_told_by_its_heartbeat(autojump_clock: MockClock) -> None:
    """A partition in one direction: it leaves, and its next container is not started."""
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].deaf = True
        await post(gang, "hold")
        await gang.until(lambda: alive(gang) == [0, 0], within=60)
        gang.pods[1].deaf = False
        await trio.sleep(LONG_SEC)
        assert alive(gang) == [0, 0]


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 5.0])
async def test_F24_a_held_instance_is_terminated_at_any_moment_of_its_hold(
    autojump_clock: MockClock, moment: float
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for pod in gang.pods:
            pod.change(container_restart_sec=None)
        await post(gang, "hold")
        await trio.sleep(moment)
        assert gang.instance is not None
        answer = await gang.world.client.post(f"/v1/instances/{gang.instance.id}/terminate", json={"reason": "over"})
        assert answer.status_code == 202
        await gang.until(lambda: all(pod.ended for pod in gang.pods), within=60)
        assert gang.instance is None


async def test_a_held_instance_is_not_relaunched_and_says_what_to_do(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await change(gang.pods[0], "stop")
        with pytest.raises(Refused, match="release it"):
            await gang.pods[1].it.operations.relaunch(ANA)
        assert alive(gang) == [0, 0]


async def test_an_operator_s_hold_outlives_the_reset_of_its_failures(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        instance = await gang.until_active()
        await post(gang, "hold")
        assert (await gang.world.client.post(f"/v1/instances/{instance.id}/reset-failed")).status_code == 200
        await trio.sleep(60)
        assert alive(gang) == [0, 0]
