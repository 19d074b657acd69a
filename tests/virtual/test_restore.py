"""A start from a snapshot as those see it who asked for the start; and what a diagnosis may not be taken for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.process.children import SpawnError
from supervisor.service.commands import KILL_DEADLINE_SEC
from supervisor.service.outcomes import StartFailed
from supervisor.unit.model import Command, Engine, ExecCheck, LivenessAction, LogLineCheck, Probe, Probes
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.states import SubState
from tests.support.fake_processes import FAILED, Program
from tests.support.services import running, unit

READINESS = Probe(LogLineCheck("ready"))
NOT_THERE = Program(spawn_fails=SpawnError("cannot execute 'restore': no such file"))
RESTORES = unit(
    service=ServiceTable(exec_start=Command(("serve",))),
    probes=Probes(readiness=READINESS),
    engine=Engine(restore_exec=Command(("restore",))),
)


async def test_a_start_goes_on_cold_when_its_snapshot_cannot_even_be_executed(autojump_clock: MockClock) -> None:
    async with running(RESTORES, serve=Program(), restore=NOT_THERE) as world:
        await world.service.start(asked_by="test")
        assert world.service.state.sub_state is SubState.LOADING
        await trio.sleep(1)
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.ready)
        assert world.service.state.restarts == 0
        assert world.path == ["waiting", "start", "cleaning", "waiting", "start", "loading", "ready"]


async def test_a_start_fails_when_neither_can_be_executed(autojump_clock: MockClock) -> None:
    async with running(RESTORES, serve=NOT_THERE, restore=NOT_THERE) as world:
        with pytest.raises(StartFailed):
            await world.service.start(asked_by="test")


async def test_the_end_of_a_diagnosis_that_was_cut_short_is_not_the_end_of_exec_stop(autojump_clock: MockClock) -> None:
    sick = unit(
        service=ServiceTable(exec_start=Command(("serve",)), exec_stop=(Command(("bye",)),)),
        probes=Probes(
            readiness=READINESS,
            liveness=Probe(ExecCheck(Command(("live",))), failure_threshold=1),
            liveness_action=LivenessAction.REPORT,
        ),
        engine=Engine(diagnose_exec=Command(("look",))),
    )
    programs = {"serve": Program(), "live": Program(0.0, ends=FAILED), "look": Program(), "bye": Program(10.0)}
    async with running(sick, **programs) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(1)
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.sub_state is SubState.UNHEALTHY)
        began = trio.current_time()
        await world.service.stop(asked_by="test", reason="enough")
        assert 15.0 <= trio.current_time() - began < 16.0  # DiagnoseExec has its 5 s, ExecStop its 10 s
        assert world.path[-4:] == ["diagnose", "stop", "stop-term", "dead"]


SICK = unit(
    probes=Probes(
        readiness=READINESS, liveness=Probe(ExecCheck(Command(("live",))), period_sec=1.0, failure_threshold=1)
    ),
    engine=Engine(diagnose_exec=Command(("look",))),
)


@pytest.mark.parametrize(
    ("look", "left", "longest"),
    [(Program(dies_after_sec=2.0), 0, 2.5), (Program(unkillable=True), 1, KILL_DEADLINE_SEC + 0.5)],
)
async def test_stopped_means_that_nothing_of_its_diagnosis_runs_either_but_no_driver_holds_up_the_stop(
    autojump_clock: MockClock, look: Program, left: int, longest: float
) -> None:
    async with running(SICK, serve=Program(), live=Program(0.0, ends=FAILED), look=look) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(1)
        world.output.write("ready")
        await world.service.wait_until(lambda state: state.sub_state is SubState.DIAGNOSE)
        await trio.sleep(1)
        began = trio.current_time()
        await world.service.stop(asked_by="test", reason="now", grace_sec=0.0)
        assert world.processes.alive("look") == left
        assert trio.current_time() - began <= longest
