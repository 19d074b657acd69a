"""What the supervisor still does when the system has nothing left to give: descriptors, threads, processes."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.process import procfs
from supervisor.process.children import SpawnError
from supervisor.process.gate import GateSpec, run_gate
from supervisor.process.segments import segments_of
from supervisor.process.sink import Sink
from supervisor.process.tree import stop_tree
from supervisor.service.checks import check_exec, check_http, check_tcp
from supervisor.service.launch import Launch
from supervisor.service.processes import LinuxProcesses
from supervisor.unit.model import Command, ExecCheck, HttpCheck, TcpCheck
from tests.support.real_processes import gone, reaping, spawn_of, told

ID = "5b0e"
stop = partial(stop_tree, invocation_id=ID, mode="mixed", signal=signal.SIGTERM, grace_sec=2.0, kill_deadline_sec=2.0)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Not one more can be opened by this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CPython says it at the limit of a pids cgroup."""

    async def refuse(*arguments: object, **options: object) -> object:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)


async def test_without_descriptors_the_main_process_is_asked_and_the_group_killed(tmp_path: Path) -> None:
    script = "trap 'echo asked >> $HEARD' TERM; echo $$ > $HEARD; while :; do sleep 0.05; done"
    async with reaping() as children:
        child = await children.spawn(spawn_of("sh", "-c", script, invocation_id=ID, HEARD=str(tmp_path / "heard")))
        await told(tmp_path / "heard")
        with no_descriptors():
            report = await stop(children, child)
        assert not report.gone  # it could not be verified
        assert await told(tmp_path / "heard", 2) == [str(child.pid), "asked"]
        await gone(child.pid)
        assert (await stop(children, child)).gone


async def test_without_descriptors_deaths_are_seen(tmp_path: Path) -> None:
    async with reaping() as children:
        kept = await children.spawn(spawn_of("true"))
        await kept.exited.wait()  # its zombie hides the others
        child = await children.spawn(spawn_of("sleep", "600"))
        with no_descriptors():
            os.kill(child.pid, signal.SIGKILL)
            await child.exited.wait()
        children.release(kept)
        children.release(child)


async def test_without_descriptors_the_gate_does_not_pass() -> None:
    async with reaping() as children:
        with no_descriptors():
            report = await run_gate(children, GateSpec(lock_patterns=("/tmp/*.lock",), timeout_sec=0.2))
    assert not report.passed


async def test_without_descriptors_an_exec_probe_fails_with_a_reason() -> None:
    async with reaping() as children:
        processes, launch = LinuxProcesses(children), Launch((), {"PATH": os.environ["PATH"]})
        with no_descriptors():
            complaint = await check_exec(ExecCheck(Command(("true",))), processes, launch)
        assert complaint == "true cannot be run: [Errno 24] Too many open files"
        assert await check_exec(ExecCheck(Command(("true",))), processes, launch) is None


async def test_a_scan_without_descriptors_says_so() -> None:
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        procfs.scan()


async def test_without_threads_a_tree_is_stopped(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with reaping() as children:
        child = await children.spawn(
            spawn_of("sh", "-c", "sleep 600 & echo $! > $HEARD; wait", invocation_id=ID, HEARD=str(tmp_path / "pid"))
        )
        pid = int((await told(tmp_path / "pid"))[0])
        request.getfixturevalue("no_threads")
        assert (await stop(children, child)).gone
        assert procfs.read_stat(pid) is None


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_a_spawn_fails_with_a_reason() -> None:
    async with reaping() as children:
        with pytest.raises(SpawnError, match=r"cannot execute 'true': .*limit on processes"):
            await children.spawn(spawn_of("true"))


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_a_name_cannot_be_asked() -> None:
    assert "limit on processes" in str(await check_http(HttpCheck("http://controller.example/health")))
    assert "limit on processes" in str(await check_tcp(TcpCheck("controller.example:1026")))


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_the_gate_and_the_segments_are_looked_at() -> None:
    async with reaping() as children:
        assert (await run_gate(children, GateSpec(lock_patterns=("/nowhere/*",)))).passed
    assert isinstance(await segments_of(os.getpid()), dict)


async def test_what_was_written_without_threads_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    real: Callable[..., Awaitable[object]] = trio.to_thread.run_sync
    refusals = 2

    async def refuse_at_first(*arguments: object, **options: object) -> object:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise RuntimeError("can't start new thread")
        return await real(*arguments, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse_at_first)
    sink = Sink(written.extend, "a file")
    async with trio.open_nursery() as nursery:
        await nursery.start(sink.run)
        sink.offer([b"a line\n"])
        with trio.fail_after(30):
            assert await sink.flush(trio.current_time() + 30)
        nursery.cancel_scope.cancel()
    assert written == [b"a line\n"]
