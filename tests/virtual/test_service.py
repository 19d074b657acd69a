"""Hours of a unit's life in milliseconds: the service over fake processes."""

from __future__ import annotations

import gc
import itertools
import math
from typing import NoReturn

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from supervisor.process.children import SpawnError
from supervisor.service.launch import LaunchError
from supervisor.service.operations import Surroundings
from supervisor.service.outcomes import ConditionUnmet, DependencyUnmet, StartFailed
from supervisor.unit.model import (
    Command,
    ExecCheck,
    ExitType,
    LivenessAction,
    LogLineCheck,
    Probe,
    Probes,
    RestartPolicy,
    RestartSettings,
    Service,
    ServiceType,
    StartSettings,
    StopSettings,
)
from supervisor.unit.start_clock import ProgressKind
from supervisor.unit.states import RunState, SubState
from tests.support.fake_processes import FAILED, KILLED, OK, Program
from tests.support.services import World, running, unit


async def test_start_returns_when_spawned_and_stop_when_all_is_gone(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=2.0)) as world:
        await world.service.start(asked_by="test")
        assert world.sub_state() is SubState.READY
        report = await world.service.stop(asked_by="test", reason="done")
        assert (report.gone, report.escalated, report.duration_sec) == (True, False, 2.0)
        assert world.processes.alive("serve") == 0
        assert world.sub_state() is SubState.DEAD


async def test_a_process_that_ignores_being_asked_is_killed_after_the_grace(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=None)) as world:
        await world.service.start(asked_by="test")
        report = await world.service.stop(asked_by="test", reason="done", grace_sec=5.0)
        assert (report.gone, report.escalated, report.duration_sec) == (True, True, 5.0)


async def test_the_first_restart_is_immediate_and_the_others_back_off_until_the_start_limit(
    autojump_clock: MockClock,
) -> None:
    declared = unit(service=Service(restart=RestartSettings(delay_sec=1.0, steps=2, max_delay_sec=100.0)))
    async with running(declared, serve=Program(runs_sec=1.0, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.START_LIMIT_HIT
        starts = world.processes.times("serve")
        gaps = [later - earlier - 1.0 for earlier, later in itertools.pairwise(starts)]
        assert gaps == pytest.approx([0.0, 1.0, 10.0, 100.0])
        assert [record.ending.code for record in world.service.exits] == [1] * 5
        assert state.restarts == 4


async def test_a_slow_loader_hits_its_start_limit_too(autojump_clock: MockClock) -> None:
    """Five failures in ten seconds never happen to what loads for three minutes: the window grows with the start."""
    declared = unit(
        service=Service(start=StartSettings(timeout_sec=180.0)),
        probes=Probes(readiness=Probe(LogLineCheck("never"))),
    )
    async with running(declared, serve=Program()) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.START_LIMIT_HIT
        assert len(world.processes.times("serve")) == 5


async def test_back_off_begins_anew_after_a_minute_of_health(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(restart=RestartSettings(limit_burst=0)))
    async with running(declared, serve=Program(runs_sec=61.0, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.restarts == 30)
        starts = world.processes.times("serve")
        assert {later - earlier for earlier, later in itertools.pairwise(starts)} == {61.0}


async def test_no_second_process_while_anything_of_the_first_is_left(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(stop=StopSettings(relaunch_timeout_sec=3.0)))
    program = Program(runs_sec=1.0, ends=FAILED, leaves_orphan=True, obeys_after_sec=None)
    async with running(declared, serve=program) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.started == 2)
        assert world.processes.alive("serve") == 1
        first, second = world.processes.times("serve")
        assert second - first == pytest.approx(1.0 + 3.0)


async def test_survivors_are_named_and_nothing_is_started_beside_them(autojump_clock: MockClock) -> None:
    program = Program(runs_sec=1.0, ends=FAILED, leaves_orphan=True, obeys_after_sec=None, unkillable=True)
    async with running(unit(), serve=program) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.UNKILLABLE
        assert "state D" in state.reason
        with pytest.raises(StartFailed, match="state D"):
            await world.service.start(asked_by="test")
        report = await world.service.stop(asked_by="test", reason="again")
        assert not report.gone
        assert len(world.processes.spawned) == 1


# --- starting --------------------------------------------------------------------------------------------------


async def test_a_start_that_stands_still_is_given_up_at_the_stall_limit(autojump_clock: MockClock) -> None:
    declared = unit(
        service=Service(
            start=StartSettings(timeout_sec=3600.0, stall_sec=300.0, cpu_only_sec=900.0),
            restart=RestartSettings(policy=RestartPolicy.NO),
        ),
        probes=Probes(readiness=Probe(LogLineCheck("never"))),
    )
    work, cpu = ProgressKind.WORK, ProgressKind.CPU
    program = Program(progress=((250.0, work), (500.0, work), (700.0, cpu), (900.0, cpu), (1100.0, cpu)))
    async with running(declared, serve=program) as world:
        began = trio.current_time()
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert trio.current_time() - began == 500.0 + 900.0
        assert "nothing but CPU time" in state.reason


async def test_new_log_lines_are_progress_and_repeated_ones_are_not(autojump_clock: MockClock) -> None:
    declared = unit(
        service=Service(
            start=StartSettings(timeout_sec=3600.0, stall_sec=100.0),
            restart=RestartSettings(policy=RestartPolicy.NO),
        ),
        probes=Probes(readiness=Probe(LogLineCheck("ready"))),
    )
    async with running(declared, serve=Program()) as world:
        await world.service.start(asked_by="test")
        began = trio.current_time()
        for line in ("loading weights", "waiting for peers 1", "waiting for peers 2", "waiting for peers 3"):
            await trio.sleep(60.0)
            world.output.write(line)
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.since - began == 120.0 + 100.0


async def test_a_log_line_makes_a_unit_ready_but_not_one_of_an_earlier_life(autojump_clock: MockClock) -> None:
    declared = unit(probes=Probes(readiness=Probe(LogLineCheck(r"listening on port \d+"))))
    async with running(declared, serve=Program()) as world:
        world.output.write("listening on port 1")
        await world.service.start(asked_by="test")
        await trio.testing.wait_all_tasks_blocked()
        assert world.service.state.sub_state is SubState.LOADING
        world.output.write("listening on port 8000")
        await world.service.wait_until(lambda state: state.ready_once)


async def test_startup_and_readiness_may_see_their_lines_in_any_order(autojump_clock: MockClock) -> None:
    probes = Probes(startup=Probe(LogLineCheck("warm")), readiness=Probe(LogLineCheck("listening")))
    async with running(unit(probes=probes), serve=Program()) as world:
        await world.service.start(asked_by="test")
        await trio.testing.wait_all_tasks_blocked()
        world.output.write("listening")
        world.output.write("warm")
        await world.service.wait_until(lambda state: state.ready_once)


@pytest.mark.parametrize(
    "probes",
    [
        Probes(),
        Probes(readiness=Probe(LogLineCheck("ready"))),
        Probes(startup=Probe(LogLineCheck("ready")), readiness=Probe(LogLineCheck("ready"))),
    ],
    ids=["none", "one", "two for the same line"],
)
async def test_once_a_unit_is_up_nobody_reads_its_lines(probes: Probes, autojump_clock: MockClock) -> None:
    """A reader makes each line a string: a fifth of the speed at which output is passed on."""
    async with running(unit(probes=probes), serve=Program()) as world:
        await world.service.start(asked_by="test")
        await trio.testing.wait_all_tasks_blocked()
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.ready_once)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert world.output.followers == 0


@pytest.mark.seed("S16")
async def test_liveness_waits_for_readiness_however_long_that_takes(autojump_clock: MockClock) -> None:
    declared = unit(
        service=Service(start=StartSettings(timeout_sec=7200.0)),
        probes=Probes(
            readiness=Probe(LogLineCheck("ready")),
            liveness=Probe(ExecCheck(Command(("alive",))), period_sec=1.0),
        ),
    )
    async with running(declared, serve=Program(), alive=Program(runs_sec=0.1, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(3600.0)
        assert world.service.state.sub_state is SubState.LOADING
        assert not world.processes.times("alive")
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.restarts == 1)
        assert len(world.processes.times("alive")) == 3


async def test_a_reported_unit_is_unhealthy_while_its_liveness_fails(autojump_clock: MockClock) -> None:
    probes = Probes(
        liveness=Probe(ExecCheck(Command(("alive",))), period_sec=1.0), liveness_action=LivenessAction.REPORT
    )
    async with running(unit(probes=probes), serve=Program(), alive=Program(runs_sec=0.1, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.sub_state is SubState.UNHEALTHY)
        assert "alive: exit status 1" in state.complaints[0].reason
        world.processes.programs["alive"] = Program(runs_sec=0.1)
        await world.service.wait_until(lambda state: state.sub_state is SubState.READY)
        assert len(world.processes.times("serve")) == 1


async def test_an_exec_probe_that_hangs_is_killed_at_its_time_out(autojump_clock: MockClock) -> None:
    probes = Probes(readiness=Probe(ExecCheck(Command(("ask",))), period_sec=1.0, timeout_sec=0.5))
    async with running(unit(probes=probes), serve=Program(), ask=Program()) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(5.0)
        # Up to the fifth the pause before the next try is shorter than the time-out, or hardly longer.
        assert world.processes.times("ask") == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.8, 3.8, 4.8])
        assert world.processes.alive("ask") == 1  # the one that is just being asked


async def test_a_spawn_that_fails_is_told_to_the_caller_and_goes_through_the_policy(autojump_clock: MockClock) -> None:
    program = Program(spawn_fails=SpawnError("cannot execute 'serve': not found in PATH", 127))
    async with running(unit(), serve=program) as world:
        with pytest.raises(StartFailed, match="not found in PATH"):
            await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.START_LIMIT_HIT
        assert {record.ending.code for record in world.service.exits} == {127}


async def test_a_launch_that_cannot_be_made_fails_the_start_with_its_words(autojump_clock: MockClock) -> None:
    async def launch() -> NoReturn:
        raise LaunchError("MODEL_PATH: ${MODEL_PATH} is not set and has no default")

    declared = unit(service=Service(restart=RestartSettings(policy=RestartPolicy.NO)))
    async with running(declared, None, launch, serve=Program()) as world:
        with pytest.raises(StartFailed, match="MODEL_PATH"):
            await world.service.start(asked_by="test")
        assert world.service.state.sub_state is SubState.FAILED


async def test_a_failed_gate_fails_the_start_within_the_start_deadline(autojump_clock: MockClock) -> None:
    async def gate() -> None:
        await trio.sleep_forever()

    declared = unit(
        service=Service(start=StartSettings(timeout_sec=50.0), restart=RestartSettings(policy=RestartPolicy.NO))
    )
    async with running(declared, Surroundings(before_spawn=gate), serve=Program()) as world:
        began = trio.current_time()
        with pytest.raises(StartFailed, match="TimeoutStartSec"):
            await world.service.start(asked_by="test")
        assert trio.current_time() - began == 50.0


async def test_a_dependency_that_failed_fails_the_start(autojump_clock: MockClock) -> None:
    async def dependencies() -> None:
        raise DependencyUnmet("dependency kv-store failed")

    async with running(unit(), Surroundings(dependencies=dependencies), serve=Program()) as world:
        with pytest.raises(StartFailed, match="dependency kv-store failed"):
            await world.service.start(asked_by="test")


async def test_a_unit_whose_condition_is_not_met_is_skipped(autojump_clock: MockClock) -> None:
    async def dependencies() -> None:
        raise ConditionUnmet("NODE_RANK is 1, not 0")

    async with running(unit(), Surroundings(dependencies=dependencies), serve=Program()) as world:
        await world.service.start(asked_by="test")
        assert world.service.state.skipped
        assert not world.processes.spawned


async def test_commands_run_in_their_places_one_after_the_other(autojump_clock: MockClock) -> None:
    service = Service(
        exec_start_pre=(Command(("pre1",)), Command(("pre2",), ignore_failure=True)),
        exec_start_post=(Command(("post",)),),
        exec_stop=(Command(("ask-to-stop",)),),
        exec_stop_post=(Command(("clean-up",)),),
    )
    quick = Program(runs_sec=1.0)
    programs = {"pre1": quick, "pre2": Program(runs_sec=1.0, ends=FAILED), "post": quick, "clean-up": quick}
    programs |= {"ask-to-stop": quick}
    async with running(unit(service=service), serve=Program(), **programs) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.state is RunState.ACTIVE)
        await world.service.stop(asked_by="test", reason="done")
        order = [argv[0] for _, argv in world.processes.spawned]
        assert order == ["pre1", "pre2", "serve", "post", "ask-to-stop", "clean-up"]


async def test_a_oneshot_that_remains_is_active_after_its_work(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(type=ServiceType.ONESHOT, remain_after_exit=True))
    async with running(declared, serve=Program(runs_sec=10.0)) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.satisfied)
        assert state.sub_state is SubState.EXITED
        await world.service.stop(asked_by="test", reason="done")
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.satisfied)
        assert len(world.processes.spawned) == 2


async def test_with_exit_type_cgroup_a_unit_lives_as_long_as_any_of_its_processes(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(exit_type=ExitType.CGROUP))
    async with running(declared, serve=Program(runs_sec=1.0, leaves_orphan=True)) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(1000.0)
        assert world.service.state.state is RunState.ACTIVE
        await world.service.stop(asked_by="test", reason="done")


async def test_an_external_unit_has_probes_and_no_process(autojump_clock: MockClock) -> None:
    declared = unit(
        service=Service(type=ServiceType.EXTERNAL),
        probes=Probes(readiness=Probe(ExecCheck(Command(("ping",))), period_sec=1.0)),
    )
    async with running(declared, ping=Program(runs_sec=0.1, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(10.0)
        assert world.service.state.sub_state is SubState.LOADING
        world.processes.programs["ping"] = Program(runs_sec=0.1)
        await world.service.wait_until(lambda state: state.satisfied)
        world.processes.programs["ping"] = Program(runs_sec=0.1, ends=FAILED)
        await world.service.wait_until(lambda state: state.sub_state is SubState.UNHEALTHY)
        await world.service.stop(asked_by="test", reason="done")
        assert world.processes.alive("ping") == 0


# --- stopping --------------------------------------------------------------------------------------------------


async def test_stop_while_the_fork_is_in_flight_takes_the_child_along(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(spawn_takes_sec=5.0)) as world:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_and_fail, world)
            await trio.sleep(1.0)
            report = await world.service.stop(asked_by="test", reason="changed my mind")
        assert report.gone
        assert len(world.processes.spawned) == 1
        assert world.processes.alive("serve") == 0


async def start_and_fail(world: World) -> None:
    with pytest.raises(StartFailed):
        await world.service.start(asked_by="test")


async def test_a_spawn_that_hangs_for_ever_does_not_hang_the_stop(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(spawn_takes_sec=1000.0)) as world:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_and_fail, world)
            await trio.sleep(1.0)
            await world.service.stop(asked_by="test", reason="changed my mind", grace_sec=1.0)
        assert world.service.state.sub_state is SubState.UNKILLABLE
        await trio.sleep(2000.0)
        assert world.processes.alive("serve") == 0  # the ladder was late, and did its work


async def test_stop_while_a_command_runs_ends_the_command(autojump_clock: MockClock) -> None:
    service = Service(exec_start_pre=(Command(("pre",)),))
    async with running(unit(service=service), serve=Program(), pre=Program()) as world:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_and_fail, world)
            await trio.sleep(1.0)
            await world.service.stop(asked_by="test", reason="changed my mind")
        assert world.processes.alive("pre") == 0
        assert not world.processes.times("serve")


async def test_a_start_during_a_stop_is_remembered(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=5.0)) as world:
        await world.service.start(asked_by="test")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, world)
            await trio.sleep(1.0)
            await world.service.start(asked_by="test")
        assert world.service.state.sub_state is SubState.READY
        assert len(world.processes.spawned) == 2


async def stop(world: World) -> None:
    await world.service.stop(asked_by="test", reason="because")


async def test_a_hurried_second_stop_kills_at_once(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=None)) as world:
        await world.service.start(asked_by="test")
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, world)
            await trio.sleep(1.0)
            await world.service.stop(asked_by="test", reason="now", grace_sec=0.0)
        assert trio.current_time() - began == 1.0


async def test_the_caller_of_a_stop_may_go_away_and_the_stop_goes_on(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=5.0)) as world:
        await world.service.start(asked_by="test")
        with trio.move_on_after(1.0):
            await stop(world)
        await world.service.wait_until(lambda state: state.sub_state is SubState.DEAD)


async def test_stop_during_back_off_leaves_it_down(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(restart=RestartSettings(delay_sec=50.0, max_delay_sec=50.0)))
    async with running(declared, serve=Program(runs_sec=1.0, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.sub_state is SubState.AUTO_RESTART)
        assert world.service.view(trio.current_time()).next_restart_in_sec == 50.0
        await stop(world)
        await trio.sleep(1000.0)
        assert len(world.processes.spawned) == 2


async def test_restart_is_a_new_process_and_a_new_life(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(obeys_after_sec=1.0)) as world:
        await world.service.start(asked_by="test")
        first = world.service.state.pid
        await world.service.restart(asked_by="test", reason="new weights")
        assert world.service.state.pid not in (None, first)
        assert world.service.exits.last is not None
        assert world.service.exits.last.view.asked_by == "test"


async def test_cancelling_the_service_stops_its_tree_within_the_stops_own_time(autojump_clock: MockClock) -> None:
    for program, takes in ((Program(obeys_after_sec=3.0), 3.0), (Program(obeys_after_sec=None), 30.0)):
        async with running(unit(), serve=program) as world:
            await world.service.start(asked_by="test")
            began = trio.current_time()
        assert trio.current_time() - began == takes
        assert world.processes.alive("serve") == 0


async def test_the_last_twenty_exits_are_kept_with_what_was_written(autojump_clock: MockClock) -> None:
    declared = unit(service=Service(restart=RestartSettings(delay_sec=0.0, limit_burst=0)))
    async with running(declared, serve=Program(runs_sec=1.0, ends=KILLED)) as world:
        await world.service.start(asked_by="test")
        world.output.write("the last words")
        await world.service.wait_until(lambda state: state.restarts == 1)
        first = world.service.view(trio.current_time()).last_exit
        assert first is not None
        assert first.log_tail == ("the last words",)
        await world.service.wait_until(lambda state: state.restarts == 30)
        assert len(world.service.exits) == 20
        view = world.service.view(trio.current_time())
        assert view.last_exit is not None
        assert (view.last_exit.signal, view.last_exit.asked, view.last_exit.uptime_sec) == ("SIGKILL", False, 1.0)
        assert view.last_exit.log_tail == (), "they were another life's"


async def test_a_clean_exit_of_a_service_leaves_it_inactive(autojump_clock: MockClock) -> None:
    async with running(unit(), serve=Program(runs_sec=1.0, ends=OK)) as world:
        await world.service.start(asked_by="test")
        state = await world.service.wait_until(lambda state: state.at_rest)
        assert (state.sub_state, state.deadline) == (SubState.DEAD, math.inf)
