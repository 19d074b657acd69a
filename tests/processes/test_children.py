"""Statuses are never stolen, orphans never stay, and exec errors speak."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psutil
import pytest
import trio
from msgspec.structs import replace
from trio.testing import wait_all_tasks_blocked

import supervisor
from supervisor.process import procfs
from supervisor.process.attribution import certainly_not_newborn
from supervisor.process.children import Child, Children, ExitStatus, Spawn, SpawnError, stop_ignoring_signals
from supervisor.process.procfs import ProcessStat
from supervisor.unit.model import ResourceLimit
from tests.support.hanging_files import hanging_directory, needs_fuse
from tests.support.real_processes import (
    CAN_BECOME_OTHER_USERS,
    TIMEOUT_SEC,
    alive,
    gone,
    python_of,
    reaping,
    spawn_of,
    told,
)
from tests.support.running_supervisor import program

MANAGED, ORPHANS_EACH, NEWBORNS = 50, 20, 100


async def test_who_took_over_may_end_in_the_moment_in_which_another_does(tmp_path: Path) -> None:
    """Its parent lives and leaves it a zombie: nothing but the waiting for it tells of its end."""
    out = tmp_path / "out"
    async with reaping() as children:
        child = await children.spawn(spawn_of("sh", "-c", f"sleep 600 & echo $! > {out}; exec sleep 600"))
        pid = int((await told(out))[0])
        stat = procfs.read_stat(pid)
        assert stat is not None
        children.hand_over(child, stat.identity)
        waited = trio.Event()

        async def wait(successor: Child) -> None:
            await children.wait_exit(successor)
            waited.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, child.main)
            await wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
            while alive(pid):
                pass  # nobody else may have a turn
            children.hand_over(child, child.identity)
            await waited.wait()


async def _status(children: Children, spawn: Spawn) -> ExitStatus:
    child = await children.spawn(spawn)
    await child.exited.wait()
    assert child.status is not None
    children.release(child)
    return child.status


async def test_no_status_is_stolen_while_a_thousand_orphans_die(capsys: pytest.CaptureFixture[str]) -> None:
    statuses: dict[int, ExitStatus] = {}

    async def managed(number: int, delay: float, script: str) -> None:
        await trio.sleep(delay)
        statuses[number] = await _status(children, spawn_of("sh", "-c", f"{script} exit {number + 1}"))

    async with reaping() as children:
        async with trio.open_nursery() as nursery:
            for number in range(MANAGED):  # each leaves its orphans behind
                orphans = "".join(f"(sleep 1.{tenth} &);" for tenth in range(ORPHANS_EACH))
                nursery.start_soon(managed, number, 0, orphans)
            for number in range(MANAGED, MANAGED + NEWBORNS):  # dead at once, while orphans die
                nursery.start_soon(managed, number, 0.8 + number * 0.02, "")
        began = time.monotonic()
        while procfs.children_of_ours():
            await trio.sleep(0.01)
        took = time.monotonic() - began
        assert children.orphans_reaped == MANAGED * ORPHANS_EACH
    assert statuses == {number: ExitStatus(number + 1, None) for number in range(MANAGED + NEWBORNS)}
    with capsys.disabled():
        print(f"\n1,000 orphans: the last was reaped {took:.2f} s after the last managed child")


async def test_a_thousand_orphans_dying_at_once_are_reaped_while_a_zombie_is_pinned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with reaping() as children:
        pinned = await children.spawn(spawn_of("sh", "-c", "exit 3"))
        await pinned.exited.wait()
        crowd = [
            await children.spawn(spawn_of("sh", "-c", "for i in $(seq 100); do sleep 1000 & done")) for _ in range(10)
        ]
        for leader in crowd:
            await leader.exited.wait()
        began = time.monotonic()
        for leader in crowd:
            assert children.signal_group(leader, signal.SIGKILL)
        while children.orphans_reaped < 1000:
            await trio.sleep(0.005)
        took = time.monotonic() - began
        for leader in (pinned, *crowd):
            children.release(leader)
        assert pinned.status == ExitStatus(3, None)
        assert procfs.children_of_ours() == ()
    with capsys.disabled():
        print(f"\n1,000 orphans killed and reaped behind a pinned zombie in {took:.2f} s")


async def test_orphans_that_die_as_fast_as_they_are_reaped_do_not_keep_the_supervisor() -> None:
    storm, mourned = 600, 0

    def next_one() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def mourn(_: int) -> None:
        nonlocal mourned
        mourned += 1
        if mourned < storm:
            next_one()

    async with reaping() as children:
        with children.telling(mourn):
            next_one()
            while mourned == 0:
                await trio.lowlevel.checkpoint()
            assert mourned < storm
            while mourned < storm:
                await trio.sleep(0.001)
        assert children.orphans_reaped == storm


async def test_the_zombie_stays_until_it_is_released() -> None:
    async with reaping() as children:
        child = await children.spawn(spawn_of("true"))
        await child.exited.wait()
        children.collect()
        stat = procfs.read_stat(child.pid)
        assert stat is not None
        assert stat.state == "Z"
        assert children.managed == {child.pid}
        children.release(child)
        children.release(child)
        assert procfs.read_stat(child.pid) is None
        assert children.managed == frozenset()
        assert children.orphans_reaped == 0


async def _handed_over(children: Children, script: str, heard: Path) -> tuple[Child, Child]:
    """One that was spawned, and the one that it has started and told of."""
    child = await children.spawn(spawn_of("sh", "-c", f"sh -c '{script}' & echo $! > {heard}; sleep 1000"))
    pid = int((await told(heard))[0])
    stat = procfs.read_stat(pid)
    assert stat is not None
    children.hand_over(child, stat.identity)
    assert child.main.pid == pid
    return child, child.main


async def test_one_that_was_handed_over_to_is_kept_until_its_unit_is_released(tmp_path: Path) -> None:
    async with reaping() as children:
        child, main = await _handed_over(children, "sleep 1000; exit 6", tmp_path / "pid")
        assert children.signal(child, signal.SIGKILL)
        await child.exited.wait()
        assert children.managed == {child.pid}
        assert children.signal(main, signal.SIGTERM)
        await children.wait_exit(main)
        assert main.status == ExitStatus(None, "SIGTERM")
        assert not children.signal(main, signal.SIGTERM)
        assert set(procfs.children_of_ours()) >= {child.pid, main.pid}
        for orphan in set(procfs.children_of_ours()) - {child.pid, main.pid}:
            os.kill(orphan, signal.SIGKILL)  # what `sh` had started
            await gone(orphan)
        children.release(child)
        assert procfs.children_of_ours() == ()
        assert child.main is main, "who it was is still to be asked for"


async def test_one_whose_parent_reaps_it_has_ended_and_nobody_knows_how(tmp_path: Path) -> None:
    async with reaping() as children:
        child, main = await _handed_over(children, "exec sleep 1000", tmp_path / "pid")
        os.kill(main.pid, signal.SIGKILL)
        await children.wait_exit(main)
        await children.wait_exit(main)
        assert main.status == ExitStatus(None, None)
        assert str(main.status) == "exit status unknown"
        assert not children.signal(main, signal.SIGTERM)
        children.abandon(child)
        assert children.managed == frozenset()


async def test_the_group_can_be_killed_while_its_leader_is_a_pinned_zombie(tmp_path: Path) -> None:
    heard = tmp_path / "pids"
    async with reaping() as children:
        leader = await children.spawn(spawn_of("sh", "-c", f"sleep 1000 & echo $! > {heard}; exit 5"))
        await leader.exited.wait()
        member = int((await told(heard))[0])
        assert not children.signal(leader, signal.SIGTERM)
        assert children.signal_group(leader, signal.SIGKILL)
        await gone(member)
        children.release(leader)
        assert leader.status == ExitStatus(5, None)
        assert not children.signal_group(leader, signal.SIGKILL)


async def test_a_living_child_cannot_be_released() -> None:
    async with reaping() as children:
        child = await children.spawn(spawn_of("sleep", "1000"))
        with pytest.raises(RuntimeError, match="has not been seen to end"):
            children.release(child)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
async def test_death_by_signal_is_told_by_name(name: str) -> None:
    async with reaping() as children:
        status = await _status(children, spawn_of("sh", "-c", f"ulimit -c 0; kill -{name[3:]} $$"))
    assert status == ExitStatus(None, name)
    assert str(status) == f"killed by {name}"


async def test_a_real_time_signal_has_a_name_too() -> None:
    async with reaping() as children:
        status = await _status(children, spawn_of("sh", "-c", f"kill -{signal.SIGRTMIN + 2} $$"))
    assert status.signal == "SIGRTMIN+2"


async def test_exec_errors_say_what_is_wrong_and_leave_nothing(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o644)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o755)
    orphaned_script = tmp_path / "script"
    orphaned_script.write_text("#!/no/such/interpreter\n")
    orphaned_script.chmod(0o755)
    missing = f"{tmp_path}/missing"
    cases = [
        (spawn_of(missing), 127, f"cannot execute '{missing}': no such file"),
        (spawn_of("no-such-program-anywhere"), 127, "not found in PATH"),
        (spawn_of(str(orphaned_script)), 127, "interpreter or loader it names does not exist"),
        (spawn_of(str(plain)), 126, "permission denied (its mode is 0644)"),
        (spawn_of(str(tmp_path)), 126, "it is a directory"),
        (spawn_of(str(garbage)), 126, "not a program this machine can run"),
        (spawn_of("true", "a\0b"), 126, "embedded null byte"),
        (spawn_of("true", "x" * 3_000_000), 126, "argument list too long"),
        (replace(spawn_of("true"), argv=()), 126, "empty command"),
        (replace(spawn_of("true"), working_directory=missing), 126, f"cannot enter working directory '{missing}'"),
        (replace(spawn_of("true"), user="no-such-user"), 126, "there is no such user"),
        (replace(spawn_of("true"), group="no-such-group"), 126, "there is no such group"),
        (replace(spawn_of("true"), user=4_000_123), 126, "set Group as well"),
        (replace(spawn_of("true"), limits=(ResourceLimit("NONSENSE", 1, 1),)), 126, "knows no such limit"),
        (replace(spawn_of("true"), limits=(ResourceLimit("NOFILE", 20, 10),)), 126, "cannot set LimitNOFILE = 20:10"),
        (replace(spawn_of("true"), cpu_affinity=frozenset({1023})), 126, "cannot set CPUAffinity = [1023]"),
    ]
    async with reaping() as children:
        for spawn, exit_status, words in cases:
            with pytest.raises(SpawnError) as caught:
                await children.spawn(spawn)
            assert words in caught.value.reason
            assert caught.value.exit_status == exit_status
            assert procfs.children_of_ours() == ()
        assert children.managed == frozenset()
        assert children.orphans_reaped == 0


async def test_limits_and_priorities_reach_the_process() -> None:
    spawn = replace(
        spawn_of("sleep", "1000"),
        limits=(ResourceLimit("NOFILE", 123, 456), ResourceLimit("CORE", 0, None)),
        nice=5,
        oom_score_adj=300,
        cpu_affinity=frozenset({0}),
        io_scheduling_class="idle",
    )
    async with reaping() as children:
        child = await children.spawn(spawn)
        limits = Path(f"/proc/{child.pid}/limits").read_text()
        assert [line.split()[3:5] for line in limits.splitlines() if "open files" in line] == [["123", "456"]]
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 5
        assert Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "300"
        assert os.sched_getaffinity(child.pid) == {0}
        assert psutil.Process(child.pid).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE


@pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="becoming another user needs CAP_SETUID")
async def test_why_a_program_cannot_be_executed_is_told_without_cap_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has become its user already, whom we may not signal; and it ends by itself."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "operation not permitted")

    monkeypatch.setattr(os, "killpg", refuse)
    spawn = replace(spawn_of("/no/such/program"), user="nobody", limits=(ResourceLimit("NOFILE", 500, 500),))
    async with reaping() as children:
        with pytest.raises(SpawnError, match="'/no/such/program': no such file"):
            await children.spawn(spawn)
        assert procfs.children_of_ours() == ()


@pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="becoming another user needs CAP_SETUID")
async def test_a_user_never_keeps_the_groups_of_root(tmp_path: Path) -> None:
    heard = tmp_path / "ids"
    with heard.open("wb") as file:
        async with reaping() as children:
            spawn = replace(spawn_of("id"), stdout=file.fileno(), user="nobody", supplementary_groups=("daemon",))
            assert await _status(children, spawn) == ExitStatus(0, None)
    assert "uid=65534(nobody) gid=65534(nogroup) groups=65534(nogroup),1(daemon)" in heard.read_text()


@pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="becoming another user needs CAP_SETUID")
async def test_limits_of_another_users_process_need_no_capability_and_its_errors_are_the_same(tmp_path: Path) -> None:
    """CAP_SYS_RESOURCE, which containers lack, is needed for the process of another user: it is set before."""
    heard = tmp_path / "heard"
    script = "id -u; ulimit -Sn; ulimit -Hn; ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status"
    limits = (ResourceLimit("NOFILE", 123, 456),)
    with heard.open("wb") as file:
        async with reaping() as children:
            spawn = replace(spawn_of("sh", "-c", script), stdout=file.fileno(), user="nobody", limits=limits)
            assert await _status(children, spawn) == ExitStatus(0, None)
            for argv, words in (
                (("no-such-program",), "not found in PATH"),
                ((str(tmp_path),), "permission denied|it is a directory"),
            ):
                with pytest.raises(SpawnError, match=words):
                    await children.spawn(replace(spawn, argv=argv, environment={"PATH": "/usr/bin:/bin"}))
            with pytest.raises(SpawnError, match="cannot set CPUAffinity"):
                await children.spawn(replace(spawn, cpu_affinity=frozenset({1023})))
            assert procfs.children_of_ours() == ()
            assert children.orphans_reaped == 0
    user, soft, hard, descriptors, ignored = heard.read_text().splitlines()
    assert (user, soft, hard) == ("65534", "123", "456")
    assert int(descriptors) <= 5
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


async def test_surroundings_of_a_child_are_clean(tmp_path: Path) -> None:
    """Own session and group, no descriptors of ours, nothing masked, nothing ignored, stdin empty."""
    heard = tmp_path / "surroundings"
    program = """
import os, sys
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
lines = [os.getpid() == os.getsid(0) == os.getpgrp(), len(os.listdir("/proc/self/fd")) - 1,
         int(fields["SigBlk"], 16), os.readlink("/proc/self/fd/0"), sorted(os.environ)]
open(sys.argv[1], "w").write("".join(f"{line}\\n" for line in lines))
"""
    previous = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    descriptors = os.pipe()
    try:
        async with reaping() as children:
            stop_ignoring_signals()
            assert (await _status(children, python_of(program, str(heard)))).code == 0
            ignored = await _status(children, spawn_of("sh", "-c", "kill -USR2 $$"))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR2, previous)
    assert heard.read_text().splitlines()[:4] == ["True", "3", "0", "/dev/null"]
    assert ignored.signal == "SIGUSR2"


async def test_a_cancelled_spawn_leaves_no_process_or_a_child() -> None:
    async with reaping() as children:
        kept = []
        for step in range(60):
            with trio.move_on_after(step * 0.0002):
                kept.append(await children.spawn(spawn_of("sleep", "1000")))
        assert children.managed == {child.pid for child in kept}
        assert set(procfs.children_of_ours()) == set(children.managed)


async def test_two_hundred_spawns_leak_no_descriptor() -> None:
    async with reaping() as children:
        await _status(children, spawn_of("true"))
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(100):
            await _status(children, spawn_of("true"))
            with pytest.raises(SpawnError):
                await children.spawn(spawn_of("/no/such/program"))
        assert set(os.listdir("/proc/self/fd")) == before


async def test_orphans_are_reaped_while_a_spawn_hangs(tmp_path: Path) -> None:
    heard = tmp_path / "pid"
    async with reaping() as children:
        parent = await children.spawn(spawn_of("sh", "-c", f"sleep 1000 & echo $! > {heard}"))
        orphan = int((await told(heard))[0])
        await parent.exited.wait()
        began = children.newborn_ticks()
        children._in_flight.append(began)  # what a spawn that hangs in exec on a dead mount looks like
        os.kill(orphan, signal.SIGKILL)
        while procfs.read_stat(orphan) is not None:
            await trio.sleep(0.01)
        children._in_flight.remove(began)
        assert children.orphans_reaped == 1


@pytest.mark.parametrize(
    "started, session, expected",
    [
        (99, 7, True),  # was there before the spawn began
        (100, 7, False),  # just born, still in our session
        (100, 500, False),  # just born, has opened its own session
        (100, 400, True),  # a member of some unit's session
        (99, 500, True),
    ],
)
def test_what_can_be_a_newborn(started: int, session: int, expected: bool) -> None:
    stat = ProcessStat(500, "x", "Z", 1, 500, session, 1, started)
    assert certainly_not_newborn(stat, our_session=7, spawn_began_ticks=100) is expected


@pytest.mark.parametrize("name", ["plain", "with blank", "a) S 1 (b", "))((", "", "a\rb", "\v\f", "a\x85b", "\u2028"])
def test_any_process_name_is_read_right(name: str) -> None:
    fields = "S 1 2 3 0 -1 4194304 0 0 0 0 60 7 0 0 20 0 7 0 4242 0 0"
    stat = procfs.parse_stat(f"500 ({name}) {fields}\n".encode())
    assert stat == ProcessStat(500, name, "S", 1, 2, 3, 7, 4242, 67)


def test_a_process_whose_first_thread_ended_is_alive() -> None:
    assert ProcessStat(500, "x", "Z", 1, 500, 500, 3, 1).alive
    assert not ProcessStat(500, "x", "Z", 1, 500, 500, 1, 1).alive


EXECUTES = """
import sys
sys.path[:0] = sys.argv[2:]
import trio
from supervisor.process.children import Children, Spawn

async def main():
    children = Children()
    async with trio.open_nursery() as nursery:
        await nursery.start(children.run)
        print("alive", flush=True)
        nursery.start_soon(children.spawn, Spawn((sys.argv[1],), {}))
        while True:
            await trio.sleep(0.01)
            print("alive", flush=True)

trio.run(main)
"""


def interpreters() -> list[str]:
    """Debian 12's own is one of those that hold their lock from vfork(2) until exec."""
    system = Path("/usr/bin/python3.11")
    same = sys.version_info[:2] == (3, 11) and system.exists()  # our compiled modules are for one
    return [sys.executable, *([str(system)] if same else [])]


@needs_fuse
@pytest.mark.parametrize("python", interpreters())
async def test_an_exec_that_hangs_stops_no_other_thread(python: str, tmp_path: Path) -> None:
    ours = [Path(module.__file__ or "").parents[1] for module in (supervisor, trio, msgspec)]
    with ExitStack() as hanging:
        somebody_hangs = hanging.enter_context(hanging_directory(tmp_path))
        async with program(python, "-I", "-S", "-c", EXECUTES, str(tmp_path / "program"), *map(str, ours)) as running:
            try:
                await running.stdout.saw("alive")
                assert await trio.to_thread.run_sync(somebody_hangs.wait, TIMEOUT_SEC)
                await running.stdout.saw("alive", len(running.stdout.matching("alive")) + 20)
            finally:
                hanging.close()  # nothing ends before
