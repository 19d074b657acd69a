"""Processes that do not do what they are told: in uninterruptible sleep, or stopped; and a supervisor that was."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.process import procfs
from supervisor.process.gate import GateSpec, run_gate
from supervisor.service import operations
from supervisor.unit.model import Command, LogLineCheck, Probe, Probes, StopSettings
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.states import SubState
from tests.support.hanging_files import hanging_directory, needs_fuse
from tests.support.real_processes import TIMEOUT_SEC, alive, reaping, spawn_of
from tests.support.real_services import NO_RESTART, running
from tests.support.running_supervisor import FOREVER, left_behind, service, supervisor

VFORK = """
import ctypes, signal, time
signal.signal(signal.SIGTERM, lambda *_: None)  # what has no handler and is fatal wakes it
print("up", flush=True)
ctypes.CDLL(None).vfork()  # the parent does not get further than this while its child neither ends nor calls exec
time.sleep(600)
"""
SENDS_KEEP_ALIVES = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\\0" + os.environ["NOTIFY_SOCKET"][1:])
s.send(b"READY=1")
while True:
    s.send(b"WATCHDOG=1")
    time.sleep(0.05)
"""


async def set_in_thread(event: threading.Event) -> None:
    assert await trio.to_thread.run_sync(event.wait, TIMEOUT_SEC)


def state_of(pid: int | None) -> str:
    assert pid is not None
    stat = procfs.read_stat(pid)
    return stat.state if stat is not None else "gone"


@needs_fuse
async def test_a_process_that_not_even_sigkill_ends_is_told_and_nothing_is_started_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "KILL_DEADLINE_SEC", 0.5)
    table = ServiceTable(exec_start=Command(("ls", str(tmp_path / "device"))), restart=NO_RESTART)
    async with running(table) as unit:
        with hanging_directory(tmp_path) as somebody_hangs:
            await unit.start(asked_by="test")
            await set_in_thread(somebody_hangs)
            pid = unit.state.pid
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(unit.stop, asked_by="first", reason="it hangs", grace_sec=0.1))
                await unit.wait_until(lambda state: state.sub_state is SubState.STOP_KILL)
                report = await unit.stop(asked_by="test", reason="it hangs")  # joins the first
            assert state_of(pid) == "D"
            assert not report.gone
            assert report.survivors == (f"pid {pid} (ls: in uninterruptible sleep in the kernel (state D))",)
            assert unit.state.sub_state is SubState.UNKILLABLE
            again = await unit.stop(asked_by="test", reason="once more")
            assert again.survivors == report.survivors
        while alive(pid or 0):
            await trio.sleep(0.01)  # until the kernel has let it go
        assert (await unit.stop(asked_by="test", reason="it can be ended now")).gone
        assert unit.state.sub_state is not SubState.UNKILLABLE


@needs_fuse
async def test_the_gate_names_who_hangs_in_the_kernel_and_is_done_in_time(tmp_path: Path) -> None:
    async with reaping() as children:
        with hanging_directory(tmp_path) as somebody_hangs:
            child = await children.spawn(spawn_of("sh", "-c", f"(ls {tmp_path}/device &)", invocation_id="old"))
            await set_in_thread(somebody_hangs)
            await child.exited.wait()
            children.release(child)
            report = await run_gate(children, GateSpec(invocation_ids=frozenset({"old"}), timeout_sec=0.5))
            assert "killed, and still there: " in report.reason
            assert "(ls, state D)" in report.reason


async def test_a_parent_in_vfork_is_deaf_and_is_killed() -> None:
    """vfork(2): state D, and SIGTERM is heard by nobody; SIGKILL is."""
    table = ServiceTable(exec_start=Command((sys.executable, "-I", "-S", "-c", VFORK)), restart=NO_RESTART)
    async with running(table, probes=Probes(startup=Probe(LogLineCheck("up")))) as unit:
        await unit.start(asked_by="test")
        pid = (await unit.wait_until(lambda state: state.ready_once)).pid
        while state_of(pid) != "D":
            await trio.sleep(0.01)  # another process's state: there is no event to wait for
        report = await unit.stop(asked_by="test", reason="it hangs", grace_sec=0.3)
        assert (report.gone, report.escalated) == (True, True)


async def test_a_stopped_unit_is_stopped_and_a_crash_of_it_is_seen() -> None:
    stop = StopSettings(timeout_sec=TIMEOUT_SEC)
    async with running(ServiceTable(exec_start=Command(("sleep", "600")), stop=stop)) as unit:
        await unit.start(asked_by="test")
        first = unit.state.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        second = (await unit.wait_until(lambda state: state.started == 2)).pid
        assert second is not None
        os.kill(second, signal.SIGSTOP)
        report = await unit.stop(asked_by="test", reason="done")
        assert (report.gone, report.escalated) == (True, False)  # SIGTERM, and SIGCONT so that it is heard


async def test_a_supervisor_that_was_stopped_blames_nobody_for_the_time_it_missed(tmp_path: Path) -> None:
    fed = service(sys.executable, "-I", "-S", "-c", SENDS_KEEP_ALIVES, Type="notify", WatchdogSec=2)
    answers = {
        **service(*FOREVER),
        "Liveness": {"Exec": ["sleep", "0.5"], "PeriodSec": 0.1, "TimeoutSec": 3, "FailureThreshold": 1},
    }
    async with supervisor(tmp_path, {"fed": fed, "web": answers}) as running_supervisor:
        await running_supervisor.moved("fed", "loading", "ready")
        pids = {name: view.pid for name, view in (await running_supervisor.units()).items()}
        for _ in range(2):
            running_supervisor.signal(signal.SIGSTOP)
            await trio.sleep(5)  # longer than anybody may be silent
            running_supervisor.signal(signal.SIGCONT)
            views = await running_supervisor.units()  # asked later than its timers went off
        assert {name: view.pid for name, view in views.items()} == pids
        assert {name: view.restarts for name, view in views.items()} == {"fed": 0, "web": 0}
        running_supervisor.signal(signal.SIGTERM)
        assert await running_supervisor.ended() == 0
        assert left_behind() == {}


async def test_what_died_while_the_supervisor_was_stopped_is_seen_at_once_afterwards(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER), "other": service(*FOREVER)}) as running_supervisor:
        first = await running_supervisor.started("web")
        await running_supervisor.online()
        running_supervisor.signal(signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        while alive(first):
            await trio.sleep(0.01)  # no child of ours
        running_supervisor.signal(signal.SIGCONT)
        assert await running_supervisor.started("web", 2) != first


@needs_fuse
async def test_a_mount_that_hangs_holds_up_nobody_but_the_unit_that_looks_there(tmp_path: Path) -> None:
    """The kernel lets nobody go who waits for an answer: so it must not be the loop."""
    mount = tmp_path / "models"
    mount.mkdir()
    units = {
        "a": {"Unit": {"ConditionPathExists": [str(mount / "weights")]}, **service(*FOREVER)},
        "b": service(*FOREVER, EnvironmentFile=[str(mount / "env")]),
        "c": service(*FOREVER, LoadCredential=[f"token:{mount}/token"]),
        "web": service(*FOREVER),
    }
    with ExitStack() as hanging:
        hanging.enter_context(hanging_directory(mount))
        async with supervisor(tmp_path, units) as running_supervisor:
            pid = await running_supervisor.started("web")
            views = await running_supervisor.units()
            assert {name for name, view in views.items() if view.pid is None} == {"a", "b", "c"}
            running_supervisor.signal(signal.SIGTERM)
            await running_supervisor.stderr.saw("ended in")
            assert not alive(pid)
            hanging.close()  # not even the end of a process comes before the answers to its threads
            assert await running_supervisor.ended() == 0


@needs_fuse
async def test_a_state_directory_that_hangs_later_holds_up_nobody(tmp_path: Path) -> None:
    with ExitStack() as hanging:
        async with supervisor(tmp_path, {"web": service(*FOREVER, Restart="always")}) as running_supervisor:
            first = await running_supervisor.started("web")
            somebody_hangs = hanging.enter_context(hanging_directory(tmp_path / "state"))
            os.kill(first, signal.SIGKILL)
            second = await running_supervisor.started("web", 2)
            await set_in_thread(somebody_hangs)  # its exit is being written
            assert (await running_supervisor.units())["web"].pid == second
            running_supervisor.signal(signal.SIGTERM)
            await running_supervisor.stderr.saw("ended in")
            assert not alive(second)
            hanging.close()
            assert await running_supervisor.ended() == 0
