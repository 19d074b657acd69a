"""Many units: order, requirements, and one deadline for all."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from supervisor.process.disk import ANSWER_SEC, Disk
from supervisor.service.launch import unit_launch
from supervisor.service.launch_files import LaunchFiles
from supervisor.service.outcomes import StartFailed
from supervisor.service.relations import RelaunchGang
from supervisor.service.service import Service
from supervisor.service.units import NoSuchUnit, Units
from supervisor.unit.graph import Graph
from supervisor.unit.model import (
    Conditions,
    Dependencies,
    Execution,
    LogLineCheck,
    Probe,
    Probes,
    RestartPolicy,
    RestartSettings,
    ServiceType,
    StartSettings,
    StopSettings,
    Unit,
)
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.state import rules_of
from supervisor.unit.states import RunState, SubState
from tests.support.fake_processes import FAILED, FakeOutput, FakeProcesses, Program
from tests.support.instant_disk import InstantDisk
from tests.support.services import A_LONG_TIME_SEC, unit

NO_RESTART = RestartSettings(policy=RestartPolicy.NO)
READY = Probes(readiness=Probe(LogLineCheck("ready")))


@dataclass
class Pod:
    units: Units
    processes: FakeProcesses
    outputs: dict[str, FakeOutput] = field(default_factory=dict)

    def state(self, name: str) -> SubState:
        return self.units.get(name).state.sub_state

    @property
    def order(self) -> list[str]:
        return [argv[0] for _, argv in self.processes.spawned]

    async def settled(self) -> None:
        """Nothing more will happen by itself before time passes."""
        await trio.sleep(0.001)


@asynccontextmanager
async def pod(
    *declared: Unit,
    programs: Mapping[str, Program] | None = None,
    variables: Mapping[str, str] | None = None,
    started_elsewhere: tuple[str, ...] = (),
    gang: Mapping[str, RelaunchGang] | None = None,
    disk: Disk | None = None,
) -> AsyncIterator[Pod]:
    """Each unit's program bears its name."""
    everyone = {each.name: Program() for each in declared} | dict(programs or {})
    with trio.fail_after(A_LONG_TIME_SEC):
        async with trio.open_nursery() as fakes, trio.open_nursery() as nursery:
            graph = Graph.of(declared)
            units = Units(
                graph,
                lambda: variables or {},
                started_elsewhere=started_elsewhere,
                gang=gang,
                disk=disk or InstantDisk(),
            )
            world = Pod(units, FakeProcesses(fakes, everyone))
            for each in declared:
                world.outputs[each.name] = FakeOutput()
                units.add(
                    Service(
                        each,
                        rules_of(each),
                        world.processes,
                        world.outputs[each.name],
                        partial(unit_launch, each, {}, {}, LaunchFiles(disk or InstantDisk())),
                        around=units.surroundings_of(each.name),
                        chance=lambda: 0.0,
                    )
                )
            await nursery.start(units.run)
            yield world
            nursery.cancel_scope.cancel()
            fakes.cancel_scope.cancel()


def named(
    name: str,
    *,
    requires: str = "",
    wants: str = "",
    after: str = "",
    before: str = "",
    service: ServiceTable | None = None,
    **parts: object,
) -> Unit:
    dependencies = Dependencies(
        after=tuple(after.split()),
        before=tuple(before.split()),
        requires=tuple(requires.split()),
        wants=tuple(wants.split()),
    )
    return unit(name, program=name, service=service, dependencies=dependencies, **parts)


# --- starting --------------------------------------------------------------------------------------------------


async def test_units_start_along_their_order_and_in_parallel_where_they_may(autojump_clock: MockClock) -> None:
    slow = Program(spawn_takes_sec=5.0)
    units = named("a"), named("b", after="a"), named("c"), named("d", after="b c")
    async with pod(*units, programs={"a": slow, "b": slow, "c": slow}) as world:
        began = trio.current_time()
        await world.units.start_all(asked_by="boot")
        await world.units.get("d").wait_until(lambda state: state.ready_once)
        assert {argv[0]: when - began for when, argv in world.processes.spawned} == {"a": 5, "c": 5, "b": 10, "d": 10}


async def test_after_waits_until_the_other_is_ready(autojump_clock: MockClock) -> None:
    async with pod(named("store", probes=READY), named("engine", after="store")) as world:
        await world.units.start_all(asked_by="boot")
        await trio.sleep(50.0)
        assert (world.state("engine"), world.order) == (SubState.WAITING, ["store"])
        world.outputs["store"].write("ready")
        await world.units.get("engine").wait_until(lambda state: state.ready_once)


async def test_before_is_the_others_after(autojump_clock: MockClock) -> None:
    async with pod(named("first", before="second", probes=READY), named("second")) as world:
        await world.units.start_all(asked_by="boot")
        await world.settled()
        assert world.state("second") is SubState.WAITING


async def test_after_a_oneshot_waits_until_its_work_is_done(autojump_clock: MockClock) -> None:
    download = named("download", service=ServiceTable(type=ServiceType.ONESHOT, start=StartSettings(math.inf)))
    async with pod(
        download, named("engine", after="download"), programs={"download": Program(runs_sec=600.0)}
    ) as world:
        began = trio.current_time()
        await world.units.start_all(asked_by="boot")
        await world.units.get("engine").wait_until(lambda state: state.ready_once)
        assert trio.current_time() - began == 600.0
        assert world.state("download") is SubState.DEAD


async def test_a_requirement_that_fails_fails_its_dependents_and_order_alone_does_not(
    autojump_clock: MockClock,
) -> None:
    units = (
        named("store", service=ServiceTable(restart=NO_RESTART), probes=READY),
        named("engine", requires="store", after="store"),
        named("exporter", after="store"),
        named("router", requires="engine", after="engine"),
    )
    async with pod(*units, programs={"store": Program(runs_sec=1.0, ends=FAILED)}) as world:
        await world.units.start_all(asked_by="boot")
        await trio.sleep(5.0)
        assert world.state("engine") is SubState.FAILED
        assert (
            world.units.get("engine").state.reason
            == "dependency store is failed: exited with code 1; not restarted (Restart=no)"
        )
        assert world.state("router") is SubState.FAILED
        assert world.state("exporter") is SubState.READY


async def test_a_requirement_in_back_off_is_waited_for(autojump_clock: MockClock) -> None:
    restart = RestartSettings(delay_sec=20.0, max_delay_sec=20.0, limit_burst=0)
    units = (
        named("store", service=ServiceTable(restart=restart), probes=READY),
        named("engine", requires="store", after="store"),
    )
    async with pod(*units, programs={"store": Program(runs_sec=1.0, ends=FAILED)}) as world:
        await world.units.start_all(asked_by="boot")
        await trio.sleep(100.0)
        assert world.state("engine") is SubState.WAITING
        world.processes.programs["store"] = Program()
        await world.units.get("store").wait_until(lambda state: state.sub_state is SubState.LOADING)
        await trio.sleep(30.0)
        world.outputs["store"].write("ready")
        await world.units.get("engine").wait_until(lambda state: state.ready_once)


async def test_start_pulls_in_what_is_required_and_wanted(autojump_clock: MockClock) -> None:
    units = (
        named("store"),
        named("engine", requires="store", wants="exporter", after="store"),
        named("exporter"),
        named("other"),
    )
    async with pod(*units) as world:
        await world.units.start("engine", asked_by="test")
        await world.settled()
        assert sorted(world.order) == ["engine", "exporter", "store"]
        assert world.state("other") is SubState.DEAD


async def test_after_does_not_wait_for_what_nobody_starts(autojump_clock: MockClock) -> None:
    async with pod(named("store"), named("engine", after="store")) as world:
        await world.units.start("engine", asked_by="test")
        assert world.order == ["engine"]


async def test_a_unit_that_others_start_is_waited_for_by_those_that_require_it(autojump_clock: MockClock) -> None:
    units = named("engine"), named("router", requires="engine", after="engine"), named("exporter", after="engine")
    async with pod(*units, started_elsewhere=("engine",)) as world:
        await world.units.start_all(asked_by="boot")
        await trio.sleep(1000.0)
        assert world.order == ["exporter"]
        await world.units.get("engine").start(asked_by="controller")
        await world.units.get("router").wait_until(lambda state: state.ready_once)


@pytest.mark.parametrize(
    "conditions, variables, skipped",
    [
        (Conditions(node_rank=0), {"NODE_RANK": "0"}, False),
        (Conditions(node_rank=0), {"NODE_RANK": "1"}, True),
        (Conditions(node_rank=0), {}, True),
        (Conditions(environment=("ROLE=prefill",)), {"ROLE": "decode"}, True),
        (Conditions(environment=("!ROLE",)), {"ROLE": "decode"}, True),
        (Conditions(environment=("ROLE",)), {"ROLE": "decode"}, False),
        (Conditions(path_exists=("/no/such/path",)), {}, True),
        (Conditions(path_exists=("!/no/such/path", "/proc")), {}, False),
    ],
)
async def test_a_condition_that_does_not_hold_skips_the_unit_and_nobody_minds(
    conditions: Conditions, variables: dict[str, str], skipped: bool, autojump_clock: MockClock
) -> None:
    units = named("master", conditions=conditions), named("engine", requires="master", after="master")
    async with pod(*units, variables=variables) as world:
        await world.units.start_all(asked_by="boot")
        await world.units.get("engine").wait_until(lambda state: state.ready_once)
        assert world.units.get("master").state.skipped is skipped


async def test_an_unknown_unit_is_named_with_those_there_are(autojump_clock: MockClock) -> None:
    async with pod(named("store")) as world:
        with pytest.raises(NoSuchUnit, match="no unit 'stor' here; there are: store"):
            world.units.get("stor")


# --- stopping --------------------------------------------------------------------------------------------------


def chain(*names: str, service: ServiceTable | None = None) -> list[Unit]:
    return [named(names[0], service=service)] + [
        named(later, after=earlier, service=service) for earlier, later in itertools.pairwise(names)
    ]


async def all_up(world: Pod) -> None:
    await world.units.start_all(asked_by="boot")
    for service in world.units:
        await service.wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_units_stop_against_their_order(autojump_clock: MockClock) -> None:
    programs = dict.fromkeys(("store", "engine", "router"), Program(obeys_after_sec=2.0))
    async with pod(*chain("store", "engine", "router"), named("exporter"), programs=programs) as world:
        await all_up(world)
        began, stopped = trio.current_time(), {}

        async def note(name: str) -> None:
            await world.units.get(name).wait_until(lambda state: state.at_rest)
            stopped[name] = trio.current_time() - began

        async with trio.open_nursery() as nursery:
            for name in ("store", "engine", "router", "exporter"):
                nursery.start_soon(note, name)
            assert await world.units.stop_all(began + 60.0, asked_by="podvisor", reason="shutdown") == {}
        assert stopped == {"exporter": 0.0, "router": 2.0, "engine": 4.0, "store": 6.0}


async def test_one_deadline_holds_for_all_however_stubborn(autojump_clock: MockClock) -> None:
    stubborn = dict.fromkeys(("a", "b", "c"), Program(obeys_after_sec=None))
    async with pod(*chain("a", "b", "c"), programs=stubborn) as world:
        await all_up(world)
        deadline = trio.current_time() + 40.0  # each alone may take TimeoutStopSec, 30 s
        assert await world.units.stop_all(deadline, asked_by="podvisor", reason="shutdown") == {}
        assert trio.current_time() <= deadline
        assert all(service.state.at_rest for service in world.units)


async def test_what_cannot_be_killed_is_named_at_the_deadline(autojump_clock: MockClock) -> None:
    hopeless = Program(obeys_after_sec=None, unkillable=True)
    async with pod(named("driver"), named("fine"), programs={"driver": hopeless}) as world:
        await all_up(world)
        deadline = trio.current_time() + 40.0
        left = await world.units.stop_all(deadline, asked_by="podvisor", reason="shutdown")
        assert list(left) == ["driver"]
        assert trio.current_time() <= deadline


async def test_hurry_kills_at_once(autojump_clock: MockClock) -> None:
    stubborn = dict.fromkeys(("a", "b"), Program(obeys_after_sec=None))
    async with pod(*chain("a", "b"), programs=stubborn) as world:
        await all_up(world)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(world.units.stop_all, began + 60.0, asked_by="podvisor", reason="shutdown"))
            await trio.sleep(1.0)
            world.units.hurry()
        assert trio.current_time() - began == 1.0
        assert all(service.state.at_rest for service in world.units)


async def test_while_all_is_being_stopped_nothing_can_be_started(autojump_clock: MockClock) -> None:
    async with pod(named("a")) as world:
        await world.units.stop_all(trio.current_time() + 10.0, asked_by="podvisor", reason="shutdown")
        with pytest.raises(StartFailed, match="being stopped"):
            await world.units.start("a", asked_by="operator")


async def test_stopping_a_unit_stops_first_those_that_require_it(autojump_clock: MockClock) -> None:
    slow = Program(obeys_after_sec=1.0)
    units = named("store"), named("router", requires="store", after="store"), named("exporter", after="store")
    async with pod(*units, programs={"store": slow, "router": slow}) as world:
        await all_up(world)
        began = trio.current_time()
        await world.units.stop("store", asked_by="operator", reason="maintenance")
        assert trio.current_time() - began == 2.0
        assert world.state("router") is SubState.DEAD
        assert world.units.get("router").state.reason == "stopped by operator: store is stopped: maintenance"
        assert world.state("exporter") is SubState.READY


@pytest.mark.seed("S31")
async def test_a_crash_of_one_unit_touches_no_other(autojump_clock: MockClock) -> None:
    units = named("store"), named("engine", requires="store", after="store"), named("exporter", after="engine")
    async with pod(*units) as world:
        await all_up(world)
        pids = {service.unit.name: service.state.pid for service in world.units}
        assert pids["engine"] is not None
        world.processes.crash(pids["engine"])
        await world.units.get("engine").wait_until(lambda state: state.started == 2)
        assert world.units.get("store").state.pid == pids["store"]
        assert world.units.get("exporter").state.pid == pids["exporter"]


async def test_cancelling_the_units_stops_them_all(autojump_clock: MockClock) -> None:
    stop = ServiceTable(stop=StopSettings(timeout_sec=5.0))
    units = chain("a", "b", service=replace(stop))
    async with pod(*units, programs=dict.fromkeys("ab", Program(obeys_after_sec=None))) as world:
        await all_up(world)
    assert world.processes.alive("a") + world.processes.alive("b") == 0


# --- a disk that hangs -----------------------------------------------------------------------------------------


async def test_a_condition_on_a_disk_that_hangs_fails_its_unit_and_holds_up_no_other(autojump_clock: MockClock) -> None:
    disk = InstantDisk()
    disk.hangs_for.add("conditions of a")
    there = Conditions(path_exists=("/",))
    async with pod(named("a", conditions=there), named("b", conditions=there), disk=disk) as world:
        began = trio.current_time()
        await world.units.start_all(asked_by="boot")
        await world.units.get("b").wait_until(lambda state: state.ready_once)
        assert trio.current_time() == began
        state = await world.units.get("a").wait_until(lambda state: state.ended == 1)
        assert trio.current_time() - began == ANSWER_SEC
        assert "ConditionPathExists = '/' cannot be looked at: its file system does not answer" in state.reason
        disk.hangs_for.clear()
        await world.units.get("a").wait_until(lambda state: state.ready_once)  # the policy has tried again


async def test_an_environment_file_on_a_disk_that_hangs_fails_its_unit_alone(autojump_clock: MockClock) -> None:
    disk = InstantDisk()
    disk.hangs_for.add("launch of a")
    files = ServiceTable(execution=Execution(environment_files=("-/models/env",)))
    async with pod(named("a", service=files), named("b", service=files), disk=disk) as world:
        await world.units.start_all(asked_by="boot")
        await world.units.get("b").wait_until(lambda state: state.ready_once)
        state = await world.units.get("a").wait_until(lambda state: state.ended == 1)
        assert "cannot read EnvironmentFile -/models/env: its file system does not answer" in state.reason


async def test_of_units_in_conflict_one_that_cannot_be_looked_at_stands_back_for_nobody(
    autojump_clock: MockClock,
) -> None:
    disk = InstantDisk()
    disk.hangs_for.add("conditions of a")
    first = named("a", conditions=Conditions(path_exists=("/",)))
    rival = unit("b", program="b", dependencies=Dependencies(conflicts=("a",)))
    async with pod(first, rival, named("c"), disk=disk) as world:
        await world.units.start_all(asked_by="boot")
        await world.units.get("a").wait_until(lambda state: state.ended == 1)
        assert world.order == ["c"]
