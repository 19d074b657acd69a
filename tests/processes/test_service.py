"""Units made of real processes, in real time."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor import wire
from supervisor.process.children import Children
from supervisor.service.outcomes import StartFailed, Transition
from supervisor.service.service import Service
from supervisor.unit.model import (
    Command,
    Engine,
    ExecCheck,
    ExitType,
    LogLineCheck,
    Probe,
    Probes,
    RestartSettings,
    ServiceType,
    StartSettings,
    StopSettings,
    Unit,
)
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.restart import Result
from supervisor.unit.states import RunState, SubState
from tests.support.real_processes import alive, gone, reaping, told
from tests.support.real_services import FOREVER, NO_RESTART, python, running, shell_of, watched

DAEMON_AND_CRASH = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]): time.sleep(0.001)
os.kill(os.getpid(), 9)
"""


async def test_a_killed_unit_runs_again_under_a_new_pid() -> None:
    async with running() as service:
        await service.start(asked_by="test")
        first = service.state.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        state = await service.wait_until(lambda state: state.started == 2)
        assert state.pid not in (None, first)
        assert service.exits.last is not None
        assert (service.exits.last.ending.signal, service.exits.last.ending.asked) == ("SIGKILL", False)


async def test_what_a_crash_leaves_behind_is_gone_before_the_restart(tmp_path: Path) -> None:
    pids = tmp_path / "daemons"
    restart = RestartSettings(limit_burst=2)
    table = ServiceTable(
        exec_start=python(DAEMON_AND_CRASH, str(pids)), restart=restart, stop=StopSettings(relaunch_timeout_sec=0.2)
    )
    async with running(table) as service:
        await service.start(asked_by="test")
        await service.wait_until(lambda state: state.started == 2)
        first, *_ = await told(pids)
        assert not alive(int(first))
        await service.wait_until(lambda state: state.at_rest)
        assert not any(alive(int(pid)) for pid in await told(pids))


async def test_stop_takes_the_whole_tree(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"for i in 1 2 3; do sleep 600 & echo $! >>{pids}; done; wait"
    async with running(ServiceTable(exec_start=Command(("sh", "-c", script)))) as service:
        await service.start(asked_by="test")
        members = [int(pid) for pid in await told(pids, lines=3)]
        report = await service.stop(asked_by="test", reason="done")
        assert report.gone
        assert not any(alive(pid) for pid in members)
        assert service.state.sub_state is SubState.DEAD


async def test_a_command_that_does_not_exist_is_named_and_goes_through_the_policy() -> None:
    table = ServiceTable(exec_start=Command(("no-such-program",)), restart=RestartSettings(limit_burst=2))
    async with running(table) as service:
        with pytest.raises(StartFailed, match=r"no-such-program.*not found in PATH"):
            await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.START_LIMIT_HIT
        assert [record.ending.code for record in service.exits] == [127, 127]


async def test_stop_while_starting_leaves_nothing(tmp_path: Path) -> None:
    probes = Probes(readiness=Probe(LogLineCheck("never")))
    async with running(probes=probes) as service:
        await service.start(asked_by="test")
        pid = service.state.pid
        assert pid is not None
        assert service.state.sub_state is SubState.LOADING
        await service.stop(asked_by="test", reason="changed my mind")
        assert not alive(pid)


async def test_an_exec_probe_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "probes"
    hanging = Command(("sh", "-c", f"sleep 600 & echo $! >>{pids}; wait"))
    probes = Probes(readiness=Probe(ExecCheck(hanging), period_sec=0.1, timeout_sec=0.3))
    async with running(probes=probes) as service:
        await service.start(asked_by="test")
        first, second, *_ = await told(pids, lines=2)
        assert not alive(int(first))  # the next is asked only when the last is gone
        await service.stop(asked_by="test", reason="done")
        await gone(int(second))


async def test_a_log_line_makes_a_unit_ready() -> None:
    table = ServiceTable(exec_start=Command(("sh", "-c", "echo listening on port 8000; exec sleep 600")))
    async with running(table, probes=Probes(startup=Probe(LogLineCheck(r"port \d+")))) as service:
        await service.start(asked_by="test")
        await service.wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_commands_and_a_oneshot_run_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def note(word: str) -> Command:
        return Command(("sh", "-c", f"echo {word} >>{log}"))

    table = ServiceTable(
        type=ServiceType.ONESHOT,
        exec_start_pre=(note("pre1"), note("pre2")),
        exec_start=note("main"),
        exec_start_post=(note("post"),),
        exec_stop=(note("stop"),),
        exec_stop_post=(note("stop-post"),),
        remain_after_exit=True,
    )
    async with running(table) as service:
        await service.start(asked_by="test")
        await service.wait_until(lambda state: state.satisfied)
        await service.stop(asked_by="test", reason="done")
    assert log.read_text().split() == ["pre1", "pre2", "main", "post", "stop", "stop-post"]


async def test_a_failing_oneshot_fails_with_its_code() -> None:
    table = ServiceTable(
        type=ServiceType.ONESHOT, exec_start=Command(("sh", "-c", "echo why it failed; exit 3")), restart=NO_RESTART
    )
    async with running(table) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.FAILED
        assert service.exits.last is not None
        assert service.exits.last.ending.code == 3
        assert service.exits.last.log_tail == ("why it failed",)


async def test_a_process_that_ignores_being_asked_is_killed() -> None:
    stubborn = Command(("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"))
    async with running(
        ServiceTable(exec_start=stubborn), probes=Probes(readiness=Probe(LogLineCheck("ready")))
    ) as service:
        await service.start(asked_by="test")
        await service.wait_until(lambda state: state.ready_once)
        report = await service.stop(asked_by="test", reason="done", grace_sec=0.2)
        assert (report.gone, report.escalated) == (True, True)


async def test_a_start_that_takes_too_long_is_ended() -> None:
    table = replace(FOREVER, start=StartSettings(timeout_sec=0.2), restart=NO_RESTART)
    async with running(table, probes=Probes(readiness=Probe(LogLineCheck("never")))) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.last_ending is not None
        assert state.last_ending.result is Result.TIMEOUT


@pytest.mark.seed("S22")
async def test_the_death_of_a_critical_process_is_the_units_death() -> None:
    # A worker names itself as engines' workers do; the main process does not notice its death.
    script = """
        (exec -a VLLM::Worker_TP0 sleep 600) &
        until grep -qa ^VLLM /proc/$!/cmdline; do :; done
        echo ready
        exec sleep 600
    """
    table = ServiceTable(exec_start=Command(("bash", "-c", script)), restart=NO_RESTART)
    engine = Engine(critical_processes=("VLLM::Worker*",))
    probes = Probes(readiness=Probe(LogLineCheck("ready")))
    async with running(table, engine=engine, probes=probes) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.ready_once)
        worker = await child_of(state.pid)
        await watched(worker)
        os.kill(worker, signal.SIGKILL)
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.sub_state is SubState.FAILED
        assert "VLLM::Worker_TP0" in state.reason
        assert state.pid is None


async def test_the_name_of_a_critical_process_need_not_be_text() -> None:
    """What is told of it goes out as JSON, into files and to the controller."""
    script = """
        (exec -a $'Worker_\\xff' sleep 600) &
        until grep -qa ^Worker /proc/$!/cmdline; do :; done
        echo ready
        exec sleep 600
    """
    table = ServiceTable(exec_start=Command(("bash", "-c", script)), restart=NO_RESTART)
    probes = Probes(readiness=Probe(LogLineCheck("ready")))
    async with running(table, engine=Engine(critical_processes=("Worker*",)), probes=probes) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.ready_once)
        worker = await child_of(state.pid)
        await watched(worker)
        os.kill(worker, signal.SIGKILL)
        await service.wait_until(lambda state: state.at_rest)
        assert rb"Worker_\\xff" in wire.encode(service.view(trio.current_time()))


@pytest.mark.seed("S22")
async def test_critical_processes_are_found_where_nothing_tells_that_the_unit_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that serves no HTTP is active at once; its workers come, and name themselves, while it loads."""
    monkeypatch.setattr("supervisor.service.critical.LOOK_AGAIN_SEC", 0.05)
    script = f"""
        until [ -e {tmp_path}/go ]; do sleep 0.01; done
        (exec -a VLLM::Worker_TP1 sleep 600) &
        exec sleep 600
    """
    table = ServiceTable(exec_start=Command(("bash", "-c", script)), restart=NO_RESTART)
    async with running(table, engine=Engine(critical_processes=("VLLM::Worker*",))) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.ready_once)
        (tmp_path / "go").touch()
        worker = await named(state.pid, "VLLM::Worker_TP1")
        await watched(worker)
        os.kill(worker, signal.SIGKILL)
        state = await service.wait_until(lambda state: state.at_rest)
        assert "VLLM::Worker_TP1" in state.reason


async def named(parent: int | None, name: str) -> int:
    """The child of that name, once it has it."""
    while True:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{child}/cmdline").read_text().startswith(name):
                    return int(child)
        await trio.sleep(0.01)  # another process names itself: there is no event to wait for


async def child_of(pid: int | None) -> int:
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        await trio.sleep(0.01)  # another process forks: there is no event to wait for
    return int(children[0])


async def test_with_exit_type_cgroup_a_daemon_keeps_the_unit_alive(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    daemon = Command(("sh", "-c", f"setsid sleep 600 & echo $! >{pids}"))
    table = ServiceTable(exec_start=daemon, exit_type=ExitType.CGROUP, restart=NO_RESTART)
    async with running(table) as service:
        await service.start(asked_by="test")
        (pid,) = await told(pids)
        with trio.move_on_after(0.3):
            await service.wait_until(lambda state: state.state is not RunState.ACTIVE)
        assert service.state.state is RunState.ACTIVE
        os.kill(int(pid), signal.SIGKILL)
        await service.wait_until(lambda state: state.at_rest)


NOTIFY = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\\0" + os.environ["NOTIFY_SOCKET"][1:])
s.send(b"STATUS=loading\\nEXTEND_TIMEOUT_USEC=5000000")
s.send(b"READY=1")
assert os.environ["WATCHDOG_USEC"] == "300000"
s.send(b"WATCHDOG=1")
time.sleep(600)
"""


async def test_a_notifying_unit_is_ready_when_it_says_so_and_dies_when_it_stops_saying_so() -> None:
    table = ServiceTable(type=ServiceType.NOTIFY, exec_start=python(NOTIFY), watchdog_sec=0.3, restart=NO_RESTART)
    async with running(table) as service:
        await service.start(asked_by="test")
        await service.wait_until(lambda state: state.ready_once)
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.last_ending is not None
        assert (state.last_ending.result, state.last_ending.signal) == (Result.WATCHDOG, "SIGABRT")


async def test_cancelling_the_service_leaves_no_process() -> None:
    async with running() as service:
        await service.start(asked_by="test")
        pid = service.state.pid
    assert pid is not None
    assert not alive(pid)


async def test_an_error_of_our_own_ends_everything_and_leaves_no_process() -> None:
    pids: list[int] = []

    def broken(transition: Transition) -> None:
        if transition.after.pid is not None:
            pids.append(transition.after.pid)
            raise ZeroDivisionError("a bug")

    async def live(children: Children) -> None:
        unit = Unit("unit", Path("unit.toml"), service=FOREVER)
        async with trio.open_nursery() as nursery:
            service = shell_of(unit, children, observers=(broken,))
            await nursery.start(service.run)
            await service.start(asked_by="test")

    async with reaping() as children:
        with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
            await live(children)
        assert len(pids) == 1
        assert not alive(pids[0])


async def _killed_and_started_again(service: Service) -> float:
    """How long it took, in seconds."""
    pid, started = service.state.pid, service.state.started
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    await service.wait_until(lambda state: state.started == started + 1)
    return time.perf_counter() - began


async def test_a_restart_is_begun_without_polling() -> None:
    """No figure is asserted but one that polling once a second could never reach."""
    async with running(replace(FOREVER, restart=RestartSettings(delay_sec=0.0, limit_burst=0))) as service:
        await service.start(asked_by="test")
        took = [await _killed_and_started_again(service) for _ in range(20)]
        print(f"death -> running again, median {sorted(took)[10] * 1000:.1f} ms, most {max(took) * 1000:.1f} ms")
        assert sorted(took)[10] < 0.5


async def test_a_watchdog_that_nobody_feeds_bites_a_unit_of_any_type() -> None:
    table = replace(FOREVER, watchdog_sec=0.2, restart=NO_RESTART, stop=StopSettings(abort_timeout_sec=5.0))
    async with running(table) as service:
        await service.start(asked_by="test")
        state = await service.wait_until(lambda state: state.at_rest)
        assert state.last_ending is not None
        assert (state.last_ending.result, state.last_ending.signal) == (Result.WATCHDOG, "SIGABRT")
