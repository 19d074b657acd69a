"""Units that follow each other: BindsTo, PartOf, Conflicts, OnDependencyRestart, on services that run."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from supervisor.engine.relaunch_request import ASK_AGAIN_SEC, NotTaken, RelaunchRequest
from supervisor.unit.model import (
    Conditions,
    Dependencies,
    OnDependencyRestart,
    Probes,
    RestartPolicy,
    RestartRule,
    RestartSettings,
    Unit,
)
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.states import SubState
from tests.support.fake_processes import Program
from tests.support.services import unit
from tests.virtual.test_service_units import NO_RESTART, READY, Pod, all_up, pod

RESTART = RestartRule(OnDependencyRestart.RESTART)
SLOW_RESTART = ServiceTable(restart=RestartSettings(delay_sec=20.0, max_delay_sec=20.0, limit_burst=0))
NO_PROBES, NO_CONDITIONS = Probes(), Conditions()
LATE = Program(obeys_after_sec=2.0)


def related(
    name: str,
    *,
    service: ServiceTable | None = None,
    probes: Probes = NO_PROBES,
    conditions: Conditions = NO_CONDITIONS,
    **dependencies: object,
) -> Unit:
    relations = replace(Dependencies(), **dependencies)
    return unit(name, program=name, service=service, probes=probes, conditions=conditions, dependencies=relations)


def bound(name: str = "sidecar", to: str = "store") -> Unit:
    return related(name, binds_to=(to,), after=(to,))


def crash(world: Pod, name: str) -> None:
    pid = world.units.get(name).state.pid
    assert pid is not None
    world.processes.crash(pid)


async def gone_to(world: Pod, name: str, sub_state: SubState) -> None:
    await world.units.get(name).wait_until(lambda state: state.sub_state is sub_state)


# --- BindsTo ---------------------------------------------------------------------------------------------------


async def test_what_is_bound_goes_down_with_a_crash_and_comes_back_with_the_restart(autojump_clock: MockClock) -> None:
    store = related("store", service=SLOW_RESTART, probes=READY)
    async with pod(store, bound()) as world:
        await world.units.start_all(asked_by="boot")
        await world.settled()
        world.outputs["store"].write("ready")
        await gone_to(world, "sidecar", SubState.READY)
        crash(world, "store")
        await gone_to(world, "sidecar", SubState.DEAD)
        reason = world.units.get("sidecar").state.reason
        assert reason == "stopped by podvisor: store, to which it is bound, goes down: killed by SIGKILL"
        await world.units.get("store").wait_until(lambda state: state.started == 2)
        await trio.sleep(30.0)
        assert world.state("sidecar") is SubState.DEAD  # the store runs and is not ready
        world.outputs["store"].write("ready")
        await gone_to(world, "sidecar", SubState.READY)
        assert world.order == ["store", "sidecar", "store", "sidecar"]


async def test_what_is_bound_to_a_failure_comes_back_when_somebody_mends_it(autojump_clock: MockClock) -> None:
    async with pod(related("store", service=ServiceTable(restart=NO_RESTART)), bound()) as world:
        await all_up(world)
        crash(world, "store")
        await gone_to(world, "sidecar", SubState.DEAD)
        assert world.state("store") is SubState.FAILED
        await world.units.start("store", asked_by="operator")
        await gone_to(world, "sidecar", SubState.READY)


async def test_what_a_person_stopped_does_not_come_back(autojump_clock: MockClock) -> None:
    async with pod(related("store", service=ServiceTable(restart=NO_RESTART)), bound()) as world:
        await all_up(world)
        crash(world, "store")
        await gone_to(world, "sidecar", SubState.DEAD)
        await world.units.stop("sidecar", asked_by="operator", reason="not now")
        await world.units.start("store", asked_by="operator")
        await trio.sleep(100.0)
        assert world.state("sidecar") is SubState.DEAD


async def test_stopping_the_other_stops_first_what_is_bound_and_starting_it_does_not_bring_it_back(
    autojump_clock: MockClock,
) -> None:
    async with pod(related("store"), bound(), bound("third", "sidecar"), programs={"sidecar": LATE}) as world:
        await all_up(world)
        began = trio.current_time()
        await world.units.stop("store", asked_by="operator", reason="maintenance")
        assert trio.current_time() - began == 2.0
        assert world.units.get("sidecar").state.reason == "stopped by operator: store is stopped: maintenance"
        await world.units.start("store", asked_by="operator")
        await trio.sleep(10.0)
        assert (world.state("sidecar"), world.state("third")) == (SubState.DEAD, SubState.DEAD)
        await world.units.start("third", asked_by="operator")  # it pulls in what it is bound to
        await gone_to(world, "third", SubState.READY)
        assert world.state("sidecar") is SubState.READY


async def test_units_that_a_person_stopped_together_have_seen_each_other_go_down_and_owe_nothing(
    autojump_clock: MockClock,
) -> None:
    sidecar = related("sidecar", binds_to=("store",), after=("third",))  # so that it stops before what is bound to it
    async with pod(related("store"), sidecar, related("third", binds_to=("sidecar",))) as world:
        await all_up(world)
        await world.units.stop("store", asked_by="operator", reason="maintenance")
        await world.units.start("sidecar", asked_by="operator")
        await trio.sleep(100.0)
        assert world.state("third") is SubState.DEAD


async def test_what_is_bound_to_a_skipped_unit_is_skipped(autojump_clock: MockClock) -> None:
    master = related("store", conditions=Conditions(node_rank=0))
    async with pod(master, bound(), variables={"NODE_RANK": "1"}) as world:
        await world.units.start_all(asked_by="boot")
        await world.settled()
        state = world.units.get("sidecar").state
        assert state.skipped
        assert state.reason.startswith("skipped: store, to which it is bound, is skipped: ConditionNodeRank")


async def test_what_is_bound_waits_for_a_unit_that_others_start(autojump_clock: MockClock) -> None:
    async with pod(related("engine"), related("sidecar", binds_to=("engine",)), started_elsewhere=("engine",)) as world:
        await world.units.start_all(asked_by="boot")
        await trio.sleep(1000.0)
        assert world.state("sidecar") is SubState.WAITING
        await world.units.get("engine").start(asked_by="controller")
        await gone_to(world, "sidecar", SubState.READY)
        await world.units.get("engine").stop(asked_by="controller", reason="relaunch", grace_sec=0.0)
        await gone_to(world, "sidecar", SubState.DEAD)
        await world.units.get("engine").start(asked_by="controller")
        await gone_to(world, "sidecar", SubState.READY)


# --- PartOf ----------------------------------------------------------------------------------------------------


async def test_a_restart_takes_parts_down_before_and_brings_them_back_after(autojump_clock: MockClock) -> None:
    part = related("part", part_of=("store",), after=("store",))
    async with pod(related("store"), part, related("idle", part_of=("store",)), programs={"part": LATE}) as world:
        await all_up(world)
        await world.units.stop("idle", asked_by="operator", reason="not needed")
        began = trio.current_time()
        await world.units.restart("store", asked_by="operator", reason="new settings")
        assert trio.current_time() - began == 2.0  # the part was asked first
        await world.units.get("part").wait_until(lambda state: state.started == 2 and state.ready_once)
        assert world.state("idle") is SubState.DEAD
        assert world.processes.most_alive == {"store": 1, "part": 1, "idle": 1}


async def test_a_part_is_restarted_with_a_crash_and_left_alone_by_a_failure_and_a_start(
    autojump_clock: MockClock,
) -> None:
    part = related("part", part_of=("store",), after=("store",))
    restart = RestartSettings(policy=RestartPolicy.ALWAYS, limit_burst=2, limit_interval_sec=1e6)
    async with pod(related("store", service=ServiceTable(restart=restart)), part) as world:
        await all_up(world)
        crash(world, "store")
        await world.units.get("part").wait_until(lambda state: state.started == 2 and state.ready_once)
        crash(world, "store")
        await gone_to(world, "store", SubState.START_LIMIT_HIT)
        await world.units.start("store", asked_by="operator")
        await trio.sleep(100.0)
        assert world.units.get("part").state.invocation == 2


async def test_a_restart_goes_on_when_its_caller_goes_away(autojump_clock: MockClock) -> None:
    async with pod(
        related("store"), related("part", part_of=("store",), after=("store",)), programs={"part": LATE}
    ) as world:
        await all_up(world)
        with trio.move_on_after(1.0):
            await world.units.restart("store", asked_by="operator", reason="new settings")
        await world.units.get("part").wait_until(lambda state: state.started == 2 and state.ready_once)


# --- Conflicts -------------------------------------------------------------------------------------------------


async def test_starting_one_stops_the_other_first_whoever_says_so(autojump_clock: MockClock) -> None:
    left, right = related("left", conflicts=("right",)), related("right")
    async with pod(left, right, programs={"left": LATE, "right": LATE}) as world:
        await world.units.start_all(asked_by="boot")
        await gone_to(world, "left", SubState.READY)
        assert world.order == ["left"]  # at boot the first in order
        for starts, stops in (("right", "left"), ("left", "right")):
            began = trio.current_time()
            await world.units.start(starts, asked_by="operator")
            assert trio.current_time() - began == 2.0
            reason = f"stopped by podvisor: {starts}, with which it conflicts, is started"
            assert world.units.get(stops).state.reason == reason
        await trio.sleep(100.0)
        assert world.order == ["left", "right", "left"]


async def test_at_boot_a_unit_whose_conditions_do_not_hold_stands_in_nobodys_way(autojump_clock: MockClock) -> None:
    master = related("a-master", conflicts=("client",), conditions=Conditions(node_rank=0))
    async with pod(master, related("client"), variables={"NODE_RANK": "1"}) as world:
        await world.units.start_all(asked_by="boot")
        await gone_to(world, "client", SubState.READY)
        assert world.order == ["client"]


# --- OnDependencyRestart ---------------------------------------------------------------------------------------


async def test_who_wants_it_is_restarted_once_the_other_is_back_and_others_are_not(autojump_clock: MockClock) -> None:
    units = (
        related("store", probes=READY),
        related("client", requires=("store",), after=("store",), on_restart=RESTART),
        related("robust", requires=("store",), after=("store",)),
        related("idle", after=("store",), on_restart=RestartRule(by_name=(("store", OnDependencyRestart.RESTART),))),
    )
    async with pod(*units) as world:
        await world.units.start_all(asked_by="boot")
        await world.settled()
        world.outputs["store"].write("ready")
        await gone_to(world, "robust", SubState.READY)
        await world.units.stop("idle", asked_by="operator", reason="not needed")
        crash(world, "store")
        await world.units.get("store").wait_until(lambda state: state.started == 2)
        await trio.sleep(50.0)
        assert world.units.get("client").state.invocation == 1
        world.outputs["store"].write("ready")
        await world.units.get("client").wait_until(lambda state: state.started == 2 and state.ready_once)
        await trio.sleep(50.0)
        assert {name: world.order.count(name) for name in ("store", "client", "robust", "idle")} == {
            "store": 2,
            "client": 2,
            "robust": 1,
            "idle": 1,
        }
        ending = world.units.get("client").state.last_ending
        assert ending is not None
        assert ending.asked_by == "podvisor"


# --- one rank of a gang ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine",
    [related("engine", on_restart=RESTART, after=("store",)), related("engine", binds_to=("store",))],
    ids=["restarts", "bound"],
)
async def test_a_rank_of_a_gang_is_not_touched_and_its_relaunch_is_asked_for(
    engine: Unit, autojump_clock: MockClock
) -> None:
    asked: list[str] = []

    async def relaunch(reason: str) -> None:
        asked.append(reason)

    async with pod(related("store"), engine, gang={"engine": relaunch}) as world:
        await all_up(world)
        crash(world, "store")
        await trio.sleep(100.0)
        assert len(asked) == 1
        assert asked[0].startswith("store")
        assert world.units.get("engine").state.invocation == 1
        assert world.state("engine") is SubState.READY


async def test_a_relaunch_is_asked_for_until_it_is_taken_or_the_engine_is_another(autojump_clock: MockClock) -> None:
    async with pod(related("engine")) as world:
        await all_up(world)
        engine, asked = world.units.get("engine"), []
        request = RelaunchRequest(lambda: engine)

        async def refuse_twice(reason: str) -> None:
            asked.append(trio.current_time())
            if len(asked) < 3:
                raise NotTaken("a run is open")

        async with trio.open_nursery() as nursery:
            request.ask = refuse_twice
            began = trio.current_time()
            nursery.start_soon(request.make, "store was relaunched")
            nursery.start_soon(request.make, "store was relaunched again")
        assert [when - began for when in asked] == [0.0, ASK_AGAIN_SEC, 2 * ASK_AGAIN_SEC]

        async def refuse(reason: str) -> None:
            raise NotTaken("the controller is away")

        request.ask = refuse
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request.make, "store was relaunched")
            await trio.sleep(1.0)
            await engine.restart(asked_by="controller", reason="somebody else's reason")
        assert trio.current_time() - began < 3 * ASK_AGAIN_SEC
        with trio.fail_after(700.0):
            await partial(request.make, "store was relaunched")()
