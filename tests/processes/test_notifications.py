"""sd_notify(3) between real processes: who hands over to whom, who is listened to, and what is answered."""

from __future__ import annotations

import logging
import os
import signal
import socket
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.process import procfs
from supervisor.process.child import Child
from supervisor.service import notifications
from supervisor.service.service import Service
from supervisor.unit.model import Engine, ExitType, KillMode, NotifyAccess, ServiceType, StopSettings
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.restart import Result
from supervisor.unit.state import UnitState
from supervisor.unit.states import SubState
from supervisor.wire import Whom
from tests.support.real_processes import alive, gone, told
from tests.support.real_services import NO_RESTART, is_watched, python, running

WORDS = """
import os, signal, socket, sys, time

def say(text, *descriptors):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.connect("\\0" + os.environ["NOTIFY_SOCKET"][1:])
    socket.send_fds(s, [text if isinstance(text, bytes) else text.encode()], descriptors)

def note(text):
    with open(sys.argv[1], "a") as file:
        file.write(text + "\\n")

def on(number, action):
    signal.signal(number, lambda *_: action())

def sleep():
    while True:
        time.sleep(600)

def in_a_child(work):
    "Returns when it has done what it does first."
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        work(lambda: os.write(writing, b"."))
        sleep()
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return pid

def takes_over(done):
    on(signal.SIGUSR1, lambda: os._exit(7))
    say(f"READY=1\\nMAINPID={os.getpid()}")
    done()
"""


def notifying(program: str, *arguments: object, **more: object) -> ServiceTable:
    table = ServiceTable(
        type=ServiceType.NOTIFY,
        exec_start=python(WORDS + program, *map(str, arguments)),
        restart=NO_RESTART,
        stop=StopSettings(timeout_sec=20.0),
    )
    return replace(table, **more)


async def ready(service: Service) -> int:
    await service.start(asked_by="test")
    state = await service.wait_until(lambda state: state.ready_once or state.at_rest)
    assert state.pid is not None, state.reason
    return state.pid


def spawned(service: Service) -> Child:
    invocation = service._operations.invocation
    assert invocation is not None
    assert invocation.child is not None
    return invocation.child


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == notifications.__name__]


async def alone(service: Service) -> int:
    """Ready, and the process that was spawned has ended: the other one's parent are we."""
    pid = await ready(service)
    await spawned(service).exited.wait()
    assert service.state.sub_state is SubState.READY
    return pid


async def ended(service: Service) -> UnitState:
    state = await service.wait_until(lambda state: state.at_rest)
    assert procfs.children_of_ours() == ()
    return state


DAEMON = "in_a_child(takes_over)"


@pytest.mark.parametrize("attempt", range(5))
async def test_a_program_that_forks_and_ends_goes_on_as_the_one_that_it_named(attempt: int) -> None:
    """It ends in the moment after the word was sent: that is told first, whichever is seen first."""
    async with running(notifying(DAEMON)) as service:
        pid = await alone(service)
        assert pid != spawned(service).pid
        assert await service.kill(signal.SIGUSR1, Whom.MAIN) == (pid,)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.code) == (pid, 7)
        assert state.last_ending.result is Result.EXIT_CODE


async def test_the_signal_that_ended_it_is_known_too() -> None:
    async with running(notifying("in_a_child(lambda done: (os.setsid(), takes_over(done)))")) as service:
        pid = await alone(service)
        os.kill(pid, signal.SIGSEGV)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.signal) == (pid, "SIGSEGV")


KEEPS_ITS_PARENT = "pid = in_a_child(takes_over)\nos.waitpid(pid, 0)\nsleep()"


async def test_how_one_ended_whose_parent_lives_is_not_known_and_no_success() -> None:
    async with running(notifying(KEEPS_ITS_PARENT)) as service:
        pid = await ready(service)
        os.kill(pid, signal.SIGUSR1)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.code, state.last_ending.signal) == (pid, None, None)
        assert state.last_ending.result is Result.PROTOCOL
        assert state.sub_state is SubState.FAILED


async def test_a_zombie_that_its_parent_leaves_is_an_end_as_well() -> None:
    async with running(notifying("in_a_child(takes_over)\nsleep()")) as service:
        os.kill(await ready(service), signal.SIGKILL)
        state = await ended(service)
        assert state.last_ending is not None
        assert state.last_ending.result is Result.PROTOCOL


async def test_the_code_of_one_whose_parent_ends_first_is_known() -> None:
    program = "on(signal.SIGUSR2, lambda: os._exit(0))\nin_a_child(takes_over)\nsleep()"
    async with running(notifying(program)) as service:
        pid = await ready(service)
        os.kill(spawned(service).pid, signal.SIGUSR2)
        await spawned(service).exited.wait()
        assert service.state.sub_state is SubState.READY
        os.kill(pid, signal.SIGUSR1)
        state = await ended(service)
        assert state.last_ending is not None
        assert state.last_ending.code == 7


async def test_it_may_be_handed_back_and_on_again() -> None:
    program = """
first = os.getpid()
def second(done):
    say(f"MAINPID={os.getpid()}")
    say(f"MAINPID={first}")
    done()
in_a_child(second)
in_a_child(takes_over)
os._exit(0)
"""
    async with running(notifying(program)) as service:
        pid = await alone(service)
        os.kill(pid, signal.SIGUSR1)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.code) == (pid, 7)


@pytest.mark.parametrize("named", ["1", "os.getppid()", "gone"])
async def test_a_process_of_nobody_here_is_refused(named: str, caplog: pytest.LogCaptureFixture) -> None:
    program = f"""
gone = os.fork()
if gone == 0:
    os._exit(0)
os.waitpid(gone, 0)
on(signal.SIGUSR1, lambda: os._exit(3))
for _ in range(5):
    say(f"MAINPID={{{named}}}")
say("READY=1")
sleep()
"""
    with caplog.at_level(logging.WARNING):
        async with running(notifying(program)) as service:
            pid = await ready(service)
            os.kill(pid, signal.SIGUSR1)
            state = await ended(service)
    assert state.last_ending is not None
    assert (state.last_ending.pid, state.last_ending.code) == (pid, 3)
    (line,) = dropped(caplog)
    if named != "1":
        assert f"is no living process of this unit; pid {pid} stays its main process" in line


@pytest.mark.parametrize("mode", [KillMode.MIXED, KillMode.PROCESS])
async def test_a_stop_asks_the_one_that_was_handed_over_to_first(mode: KillMode, tmp_path: Path) -> None:
    program = """
def takes_over_slowly(done):
    def end():
        note("main")
        time.sleep(0.2)
        os._exit(0)
    on(signal.SIGTERM, end)
    takes_over(done)
def end():
    note("old")
    os._exit(0)
on(signal.SIGTERM, end)
pid = in_a_child(takes_over_slowly)
os.waitpid(pid, 0)
note("seen")
sleep()
"""
    heard = tmp_path / "heard"
    stop = StopSettings(timeout_sec=20.0, kill_mode=mode)
    async with running(notifying(program, heard, stop=stop)) as service:
        await ready(service)
        report = await service.stop(asked_by="test", reason="test")
        assert report.gone
        assert report.killed == ()
        assert service.state.last_ending is not None
        assert service.state.last_ending.asked
        if mode is KillMode.MIXED:
            assert [line for line in await told(heard, 2) if line != "seen"] == ["main", "old"]
            assert procfs.children_of_ours() == ()
        else:
            assert (await told(heard, 2))[0] == "main"
            assert alive(spawned(service).pid)
            os.kill(spawned(service).pid, signal.SIGKILL)
            while procfs.read_stat(spawned(service).pid) is not None:
                await trio.sleep(0.01)  # until it is reaped, as what belongs to nobody


async def test_a_stop_ends_what_was_handed_over_to_in_a_session_of_its_own() -> None:
    async with running(notifying("in_a_child(lambda done: (os.setsid(), takes_over(done)))")) as service:
        pid = await alone(service)
        report = await service.stop(asked_by="test", reason="test")
        assert report.gone
        assert not alive(pid)
        assert procfs.children_of_ours() == ()
        assert service.state.last_ending is not None
        assert (service.state.last_ending.pid, service.state.last_ending.signal) == (pid, "SIGTERM")


async def test_a_unit_of_all_its_processes_ends_with_the_last_and_as_the_one_that_it_named(tmp_path: Path) -> None:
    program = """
def lives_on(done):
    on(signal.SIGUSR2, lambda: os._exit(9))
    note(str(os.getpid()))
    done()
in_a_child(lives_on)
in_a_child(takes_over)
"""
    pids = tmp_path / "pids"
    async with running(notifying(program, pids, exit_type=ExitType.CGROUP)) as service:
        pid = await alone(service)
        (other,) = map(int, await told(pids))
        os.kill(pid, signal.SIGUSR1)
        await gone(pid)
        assert service.state.sub_state is SubState.READY
        os.kill(other, signal.SIGUSR2)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.code) == (pid, 7)


async def test_of_all_its_processes_one_may_take_over_when_the_main_one_is_dead(tmp_path: Path) -> None:
    program = """
def waits(done):
    on(signal.SIGUSR1, lambda: os._exit(9))
    on(signal.SIGUSR2, lambda: say(f"MAINPID={os.getpid()}"))
    note(str(os.getpid()))
    done()
in_a_child(waits)
say("READY=1")
"""
    pids = tmp_path / "pids"
    async with running(notifying(program, pids, exit_type=ExitType.CGROUP)) as service:
        first = await alone(service)
        (other,) = map(int, await told(pids))
        assert service.state.pid == first
        os.kill(other, signal.SIGUSR2)
        await service.wait_until(lambda state: state.pid == other)
        os.kill(other, signal.SIGUSR1)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.pid, state.last_ending.code) == (other, 9)


async def test_the_critical_processes_are_those_of_the_one_that_took_over(tmp_path: Path) -> None:
    program = """
def worker():
    def works(done):
        note(str(os.getpid()))
        done()
    return in_a_child(works)
def takes_over_with_a_worker(done):
    worker()
    takes_over(done)
def upgrade():
    in_a_child(takes_over_with_a_worker)
    os._exit(0)
on(signal.SIGUSR2, upgrade)
worker()
say("READY=1")
sleep()
"""
    workers = tmp_path / "workers"
    engine = Engine(critical_processes=("*def worker():*",))
    async with running(notifying(program, workers), engine=engine) as service:
        first = await ready(service)
        os.kill(first, signal.SIGUSR2)
        await service.wait_until(lambda state: state.pid not in (None, first))
        await spawned(service).exited.wait()
        old, new = map(int, await told(workers, 2))
        while is_watched(old) or not is_watched(new):
            await trio.sleep(0.01)  # looked for in a worker thread: there is no event to wait for
        os.kill(old, signal.SIGKILL)
        await gone(old)
        os.kill(new, signal.SIGKILL)
        state = await ended(service)
        assert state.last_ending is not None
        assert f"(pid {new}) is gone" in state.last_ending.cause


STOPS_BY_ITSELF = """
on(signal.SIGUSR1, lambda: say("STOPPING=1\\nERRNO=28"))
on(signal.SIGUSR2, lambda: os._exit(3))
say("READY=1")
sleep()
"""


async def test_a_unit_that_stops_by_itself_shows_it_and_ends_as_it_ends() -> None:
    async with running(notifying(STOPS_BY_ITSELF)) as service:
        pid = await ready(service)
        os.kill(pid, signal.SIGUSR1)
        await service.wait_until(lambda state: state.sub_state is SubState.STOPPING)
        view = service.view(trio.current_time())
        assert (view.state, view.sub_state, view.pid) == ("deactivating", "stopping", pid)
        os.kill(pid, signal.SIGUSR2)
        state = await ended(service)
        assert state.last_ending is not None
        assert state.last_ending.code == 3
        words = "exited with code 3, after it said that it stops; it reported ENOSPC (No space left on device)"
        assert state.last_ending.cause == words


async def test_a_unit_that_says_that_it_stops_and_does_not_is_killed() -> None:
    table = notifying(STOPS_BY_ITSELF, stop=StopSettings(timeout_sec=0.2))
    async with running(table) as service:
        os.kill(await ready(service), signal.SIGUSR1)
        state = await ended(service)
        assert state.last_ending is not None
        assert (state.last_ending.result, state.last_ending.signal) == (Result.TIMEOUT, "SIGKILL")


BARRIER = """
def barrier():
    reading, writing = os.pipe()
    say("BARRIER=1", writing)
    os.close(writing)
    os.read(reading, 1)
    note("answered")
barrier()
on(signal.SIGTERM, lambda: (barrier(), os._exit(0)))
say("READY=1\\nRELOADING=1", 0, 1, 2)
sleep()
"""


async def test_a_barrier_is_answered_also_by_a_unit_that_is_being_stopped(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    async with running(notifying(BARRIER, answers)) as service:
        before = len(os.listdir("/proc/self/fd"))
        await ready(service)
        during = len(os.listdir("/proc/self/fd"))
        report = await service.stop(asked_by="test", reason="test")
        assert not report.escalated
        assert len(await told(answers, 2)) == 2
        assert during - before <= 4, "descriptors that came along stay open"


async def test_rubbish_is_dropped_with_one_line_and_the_rest_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    program = r"""
say(b"READY=1\0")
say("READY=1\n" * 1000)
say("rubbish\nWATCHDOG_USEC=soon\nMAINPID=-1\nMAINPID=\nEXTEND_TIMEOUT_USEC=" + "9" * 3000)
say("")
on(signal.SIGUSR1, lambda: os._exit(0))
say("STATUS=fine\nREADY=1\nX_MINE=1")
sleep()
"""
    with caplog.at_level(logging.WARNING):
        async with running(notifying(program)) as service:
            os.kill(await ready(service), signal.SIGUSR1)
            state = await ended(service)
    assert state.sub_state is SubState.DEAD
    assert dropped(caplog) == ["unit: notification dropped: it holds a NUL byte"]


async def test_with_notify_access_main_nobody_else_is_listened_to(caplog: pytest.LogCaptureFixture) -> None:
    program = """
in_a_child(lambda done: (say("READY=1\\nSTOPPING=1"), done()))
say("READY=1")
sleep()
"""
    with caplog.at_level(logging.WARNING):
        async with running(notifying(program, notify_access=NotifyAccess.MAIN)) as service:
            pid = await ready(service)
            assert service.state.sub_state is SubState.READY
    assert f"NotifyAccess=main: only pid {pid} is listened to" in caplog.text


async def test_a_process_that_is_none_of_the_units_is_not_listened_to(caplog: pytest.LogCaptureFixture) -> None:
    """Everybody can read the address; here it is the test that has."""
    with caplog.at_level(logging.WARNING):
        async with running(notifying("say('READY=1')\nsleep()")) as service:
            pid = await ready(service)
            address = procfs.environment_value(pid, "NOTIFY_SOCKET")
            assert address is not None
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                stranger.connect("\0" + address[1:])
                stranger.send(b"STOPPING=1")
            while not dropped(caplog):
                await trio.sleep(0.01)  # a log line is no event
            assert service.state.sub_state is SubState.READY
    assert "none of this unit's processes" in caplog.text
