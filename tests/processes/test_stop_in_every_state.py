"""Stop works from every state of the machine, on real processes, and leaves nothing (process-managers §3, 4)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from supervisor.process import procfs
from supervisor.service.operations import Surroundings
from supervisor.service.service import Service
from supervisor.unit.model import (
    Command,
    Engine,
    ExecCheck,
    LivenessAction,
    LogLineCheck,
    Probe,
    Probes,
    RestartSettings,
    ServiceType,
    StopSettings,
)
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.states import AT_REST, SubState
from tests.support.real_services import FOREVER, NO_RESTART, python, running

HANGS = Command(("sh", "-c", "setsid sleep 600 & exec sleep 600"))
STUBBORN = Command(("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
LEAVES_A_STUBBORN_ONE = Command(
    ("sh", "-c", "sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.05; done' & sleep 0.3; exit 1")
)
SAYS_THAT_IT_STOPS = r"""
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
s.send(b"READY=1\nSTOPPING=1")
time.sleep(600)
"""
UP = Probes(startup=Probe(LogLineCheck("up")))
NEVER_UP = Probes(startup=Probe(LogLineCheck("never")))
SICK = Probe(ExecCheck(Command(("false",))), period_sec=0.05, failure_threshold=1)
SLOW = StopSettings(timeout_sec=1.0)
SHORT = StopSettings(timeout_sec=0.3, relaunch_timeout_sec=0.5)


def kill_main(service: Service) -> None:
    assert service.state.pid is not None
    os.kill(service.state.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Way:
    """How a unit gets into a state and stays there for a while."""

    table: ServiceTable = FOREVER
    probes: Probes = field(default_factory=Probes)
    engine: Engine | None = None
    then: Callable[[Service], None] | None = None
    """Done when it runs."""
    stops_first: bool = False
    """It is in this state while it is being stopped: the second stop joins the first."""
    waits_for_ever: bool = False
    """For its dependencies."""


WAYS = {
    SubState.WAITING: Way(waits_for_ever=True),
    SubState.START_PRE: Way(replace(FOREVER, exec_start_pre=(HANGS,))),
    SubState.LOADING: Way(replace(FOREVER, exec_start=HANGS), NEVER_UP),
    SubState.RESTORING: Way(probes=NEVER_UP, engine=Engine(restore_exec=HANGS)),
    SubState.START_POST: Way(replace(FOREVER, exec_start_post=(HANGS,))),
    SubState.READY: Way(replace(FOREVER, exec_start=HANGS)),
    SubState.UNHEALTHY: Way(probes=Probes(liveness=SICK, liveness_action=LivenessAction.REPORT)),
    SubState.DIAGNOSE: Way(probes=Probes(liveness=SICK), engine=Engine(diagnose_exec=HANGS)),
    SubState.EXITED: Way(ServiceTable(type=ServiceType.ONESHOT, exec_start=Command(("true",)), remain_after_exit=True)),
    SubState.STOPPING: Way(ServiceTable(type=ServiceType.NOTIFY, exec_start=python(SAYS_THAT_IT_STOPS))),
    SubState.STOP: Way(replace(FOREVER, exec_stop=(HANGS,), stop=SHORT), stops_first=True),
    SubState.STOP_TERM: Way(
        ServiceTable(exec_start=STUBBORN, stop=StopSettings(timeout_sec=1.0)), UP, stops_first=True
    ),
    SubState.CLEANING: Way(ServiceTable(exec_start=LEAVES_A_STUBBORN_ONE, stop=SHORT), UP),
    SubState.STOP_POST: Way(replace(FOREVER, exec_stop_post=(HANGS,), restart=NO_RESTART, stop=SHORT), then=kill_main),
    SubState.AUTO_RESTART: Way(
        ServiceTable(exec_start=Command(("false",)), restart=RestartSettings(delay_sec=600.0, max_delay_sec=600.0))
    ),
    SubState.FAILED: Way(ServiceTable(exec_start=Command(("false",)), restart=NO_RESTART)),
    SubState.START_LIMIT_HIT: Way(
        ServiceTable(exec_start=Command(("false",)), restart=RestartSettings(delay_sec=0.0, limit_burst=1))
    ),
    SubState.DEAD: Way(ServiceTable(exec_start=Command(("true",)), restart=NO_RESTART)),
}
ELSEWHERE = {
    SubState.START: "test_stop_while_the_fork_is_in_flight",
    SubState.STOP_KILL: "test_field_hangs: a process that not even SIGKILL ends",
    SubState.UNKILLABLE: "test_field_hangs: a process that not even SIGKILL ends",
}


def test_no_state_is_forgotten() -> None:
    assert WAYS.keys() | ELSEWHERE.keys() == set(SubState)


@pytest.mark.parametrize("wanted", WAYS, ids=str)
async def test_3_04_stop_works_from_every_state(wanted: SubState) -> None:
    way = WAYS[wanted]

    async def never() -> None:
        await trio.sleep_forever()

    around = Surroundings(dependencies=never) if way.waits_for_ever else None
    async with (
        running(way.table, probes=way.probes, engine=way.engine, around=around) as service,
        trio.open_nursery() as nursery,
    ):
        service.ask_to_start("test")
        if way.then is not None:
            await service.wait_until(lambda state: state.pid is not None)
            way.then(service)
        if way.stops_first:
            await service.wait_until(lambda state: state.ready_once)
            nursery.start_soon(partial(service.stop, asked_by="first", reason="first"))
        await service.wait_until(lambda state: state.sub_state is wanted)
        for report in (
            await service.stop(asked_by="test", reason="now", grace_sec=0.3),
            await service.stop(asked_by="test", reason="again"),
        ):
            assert report.gone
        assert service.state.sub_state in AT_REST
        assert service.state.pid is None
        assert procfs.children_of_ours() == ()
        before = service.state.invocation
        await trio.testing.wait_all_tasks_blocked()
        assert service.state.invocation == before  # nothing starts it again


async def test_stop_while_the_fork_is_in_flight(tmp_path: Path) -> None:
    """The fork cannot be taken back: what it brought is ended as soon as it is known."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nsetsid sleep 600 &\nexec sleep 600\n")
    script.chmod(0o755)
    async with running(ServiceTable(exec_start=Command((str(script),)))) as service:
        for _ in range(20):
            service.ask_to_start("test")
            await service.wait_until(lambda state: state.sub_state is SubState.START)
            assert (await service.stop(asked_by="test", reason="changed my mind")).gone
            assert procfs.children_of_ours() == ()
