"""What a unit says of itself, and how long that holds: hours of it in no time."""

from __future__ import annotations

import pytest
import trio
from msgspec.structs import replace

from supervisor.unit.model import (
    Command,
    ExecCheck,
    Probe,
    Probes,
    RestartPolicy,
    RestartSettings,
    ServiceType,
    StopSettings,
)
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.restart import Ending, Result
from supervisor.unit.states import SubState
from tests.support.fake_processes import FAILED, OK, Program
from tests.support.services import World, running, unit

NOTIFIES = ServiceTable(
    type=ServiceType.NOTIFY,
    restart=RestartSettings(policy=RestartPolicy.NO),
    stop=StopSettings(timeout_sec=100.0),
)


async def ending(world: World) -> Ending:
    await world.service.start(asked_by="test")
    state = await world.service.wait_until(lambda state: state.at_rest)
    assert state.last_ending is not None
    return state.last_ending


async def test_a_unit_that_stops_by_itself_is_not_probed_meanwhile(autojump_clock: trio.abc.Clock) -> None:
    sick = Probes(liveness=Probe(ExecCheck(Command(("sick",))), period_sec=10.0, failure_threshold=2))
    serve = Program(runs_sec=80.0, says=((1.0, "READY=1"), (5.0, "STOPPING=1")))
    async with running(unit(service=NOTIFIES, probes=sick), serve=serve, sick=Program(0.0, ends=FAILED)) as world:
        last = await ending(world)
        assert world.path[-4:] == ["ready", "stopping", "cleaning", "dead"]
        assert (last.result, last.code, last.ended_at - last.began_at) == (Result.SUCCESS, 0, 80.0)
        assert max(world.processes.times("sick")) < last.began_at + 5.0


async def test_it_has_the_time_of_a_stop_for_it(autojump_clock: trio.abc.Clock) -> None:
    serve = Program(says=((1.0, "READY=1"), (50.0, "STOPPING=1"), (60.0, "EXTEND_TIMEOUT_USEC=900000000")))
    async with running(unit(service=NOTIFIES), serve=serve) as world:
        last = await ending(world)
        assert (last.result, last.ended_at - last.began_at) == (Result.TIMEOUT, 150.0)
        assert world.processes.ladders[0].grace_sec == 0.0


@pytest.mark.parametrize("asked, at", [("WATCHDOG_USEC=600000000", 601.0), ("WATCHDOG=trigger", 1.0)])
async def test_the_watchdog_is_its_own(asked: str, at: float, autojump_clock: trio.abc.Clock) -> None:
    serve = Program(says=((1.0, f"READY=1\n{asked}"),))
    async with running(unit(service=replace(NOTIFIES, watchdog_sec=10.0)), serve=serve) as world:
        last = await ending(world)
        assert (last.result, last.ended_at - last.began_at) == (Result.WATCHDOG, at)
        assert world.processes.ladders[0].signal == "SIGABRT"


async def test_a_watchdog_that_is_switched_off_says_nothing(autojump_clock: trio.abc.Clock) -> None:
    serve = Program(runs_sec=7200.0, ends=OK, says=((1.0, "READY=1\nWATCHDOG_USEC=0"),))
    async with running(unit(service=replace(NOTIFIES, watchdog_sec=10.0)), serve=serve) as world:
        last = await ending(world)
        assert (last.result, last.ended_at - last.began_at) == (Result.SUCCESS, 7200.0)
        assert SubState.STOPPING not in world.path
