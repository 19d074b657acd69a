"""An error of our own in the handling of one unit: that unit follows its policy, the others do not notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from supervisor.process.children import Child, Spawn
from supervisor.process.tree import TreeReport
from supervisor.service.operations import Surroundings
from supervisor.service.outcomes import Transition
from supervisor.service.processes import Ladder
from supervisor.unit.events import DependenciesMet, Exited, Spawned
from supervisor.unit.model import (
    Command,
    Engine,
    ExecCheck,
    LogLineCheck,
    Probe,
    Probes,
    RestartPolicy,
    RestartSettings,
    Service,
    StartSettings,
)
from supervisor.unit.restart import Result
from supervisor.unit.states import SubState
from tests.support.fake_processes import FAILED, FakeProcesses, Program
from tests.support.services import running, unit
from tests.virtual.test_service_units import Pod, pod

ON_FAILURE = RestartSettings(policy=RestartPolicy.ON_FAILURE, limit_burst=3)
WEB = unit(
    "web",
    program="web",
    service=Service(
        exec_start_pre=(Command(("prepare",)),),
        restart=ON_FAILURE,
        start=StartSettings(stall_sec=60.0),
    ),
    probes=Probes(readiness=Probe(LogLineCheck("ready"))),
)
STORE = unit("store", program="store")
PREPARES = Program(runs_sec=0.0)


def break_down(processes: FakeProcesses, method: str, program: str) -> None:
    """From now on this fails for that program."""
    real: Callable[..., Awaitable[object]] = getattr(processes, method)

    async def broken(subject: Spawn | Child, *more: object) -> object:
        argv = subject.argv if isinstance(subject, Spawn) else processes._trees[subject.pid].argv
        if argv[0] == program:
            await trio.sleep(1.0)
            raise KeyError("a bug")
        return await real(subject, *more)

    setattr(processes, method, broken)


async def at_rest(world: Pod, name: str) -> SubState:
    return (await world.units.get(name).wait_until(lambda state: state.at_rest)).sub_state


@pytest.mark.parametrize(
    ("method", "program", "starts", "result"),
    [
        ("spawn", "prepare", 0, Result.EXIT_CODE),
        ("spawn", "web", 0, Result.EXIT_CODE),
        ("watch_usage", "web", 3, Result.PROTOCOL),
        ("wait_exit", "web", 3, Result.PROTOCOL),
    ],
)
async def test_it_costs_that_unit_a_restart_and_in_the_end_its_start_limit(
    method: str,
    program: str,
    starts: int,
    result: Result,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pod(STORE, WEB, programs={"prepare": PREPARES}) as world:
        break_down(world.processes, method, program)
        await world.units.start_all(asked_by="boot")
        assert await at_rest(world, "web") is SubState.START_LIMIT_HIT
        web, store = world.units.get("web"), world.units.get("store")
        assert [record.ending.result for record in web.exits] == [result] * 3
        assert "internal error" in web.state.reason
        assert "KeyError: 'a bug'" in web.state.reason
        assert len(world.processes.times("web")) == starts
        assert world.processes.alive("web") == 0
        assert (store.state.sub_state, store.state.invocation) == (SubState.READY, 1)
        assert world.processes.alive("store") == 1
    errors = [record for record in caplog.records if "this is a bug of podvisor" in record.message]
    assert len(errors) == 3
    assert all(record.exc_info and record.unit == "web" for record in errors)  # type: ignore[attr-defined]


async def test_what_cannot_be_stopped_for_it_is_left_as_it_is_and_told(autojump_clock: MockClock) -> None:
    async with pod(STORE, unit("web", program="web")) as world:
        await world.units.start_all(asked_by="boot")
        await world.settled()
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(world.processes, "stop", world.processes.stop)
            break_down(world.processes, "stop", "web")
            report = await world.units.get("web").stop(asked_by="test", reason="try")
        assert (report.gone, world.state("web")) == (False, SubState.UNKILLABLE)
        assert "internal error" in world.units.get("web").state.reason
        assert world.state("store") is SubState.READY
        await world.units.get("web").stop(asked_by="test", reason="again")
        await trio.sleep(1)
        assert (world.state("web"), world.processes.alive("web")) == (SubState.DEAD, 0)


@pytest.mark.parametrize("event", [Spawned, Exited, DependenciesMet])
async def test_an_error_of_those_who_observe_is_nobodys_who_tells_and_ends_the_service(
    event: type, autojump_clock: MockClock
) -> None:
    """Half a move was made: actions are not carried out of which the state says that they are."""

    def broken(transition: Transition) -> None:
        if isinstance(transition.event, event):
            raise KeyError("a bug")

    alive: list[FakeProcesses] = []
    with pytest.RaisesGroup(KeyError, flatten_subgroups=True):
        async with running(unit(), Surroundings(moved=broken), serve=Program(runs_sec=5.0)) as world:
            alive.append(world.processes)
            world.service.ask_to_start("test")
            await trio.sleep(100)
    assert alive[0].alive("serve") == 0


async def test_it_is_no_dependency_that_holds(autojump_clock: MockClock) -> None:
    async def broken() -> None:
        raise KeyError("a bug")

    async with running(unit(), Surroundings(dependencies=broken), serve=Program()) as world:
        world.service.ask_to_start("test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.FAILED
        assert "internal error" in state.reason


async def test_what_comes_too_late_from_a_task_that_was_called_off_decides_nothing(autojump_clock: MockClock) -> None:
    """A stop is ordered again with no grace, and the one before it breaks at that: the second still does its work."""
    async with running(unit(), serve=Program(obeys_after_sec=None)) as world:
        real = world.processes.stop

        async def broken(child: Child, ladder: Ladder) -> TreeReport:
            try:
                return await real(child, ladder)
            except trio.Cancelled:
                raise KeyError("a bug") from None

        world.processes.stop = broken  # type: ignore[method-assign]
        await world.service.start(asked_by="test")
        world.service.ask_to_stop("test", "enough")
        await trio.sleep(1)
        assert (await world.service.stop(asked_by="test", reason="now", grace_sec=0.0)).gone
        assert world.path[-1] == "dead"


async def test_watchers_that_break_while_they_are_called_off_do_not_break_the_stop(autojump_clock: MockClock) -> None:
    async with running(replace(WEB, name="unit"), prepare=PREPARES, web=Program()) as world:

        async def broken(child: Child, tell: object) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("a bug")

        world.processes.watch_usage = broken  # type: ignore[method-assign]
        await world.service.start(asked_by="test")
        report = await world.service.stop(asked_by="test", reason="enough")
        assert report.gone
        assert world.service.state.sub_state is SubState.DEAD
        await world.service.start(asked_by="test")  # and at the end everything is cancelled from outside


async def test_a_diagnosis_that_breaks_says_so_and_the_stop_goes_on(autojump_clock: MockClock) -> None:
    declared = unit(
        probes=Probes(
            readiness=Probe(LogLineCheck("ready")),
            liveness=Probe(ExecCheck(Command(("live",))), period_sec=1.0, failure_threshold=1),
        ),
        engine=Engine(diagnose_exec=Command(("look",))),
    )
    async with running(declared, serve=Program(), live=Program(0.0, ends=FAILED), look=Program()) as world:
        break_down(world.processes, "spawn", "look")
        await world.service.start(asked_by="test")
        await trio.sleep(1)
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.invocation == 2)
        assert "diagnose" in world.path
        (record,) = world.service.exits
        assert "internal error (DiagnoseExec): KeyError: 'a bug'" in record.diagnosis[-1]
