"""The hygiene gate against real processes, ports, segments and locks."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.process import holders
from supervisor.process.children import Children
from supervisor.process.gate import Baseline, GateItem, GateReport, GateSpec, Port, run_gate
from supervisor.process.holders import held_by
from supervisor.process.leftover_files import SHARED_MEMORY
from tests.support.hanging_files import hanging_directory, needs_fuse
from tests.support.real_processes import CAN_BECOME_OTHER_USERS, alive, gone, python_of, reaping, spawn_of, told

LATER = Baseline(segments=frozenset())
"""This is not the gate of the first start, and nothing was in /dev/shm then."""
OLD, OTHER = "old-invocation", "other-unit"
LISTEN = """
import os, socket, sys, time
if os.fork():
    os._exit(0)
os.setsid()
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind((sys.argv[1], 0))
server.listen()
print(os.getpid(), server.getsockname()[1], file=open(sys.argv[2], "w"), flush=True)
time.sleep(1000)
"""
HOLD = """
import mmap, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "mapped":
    memory = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
print(os.getpid(), file=open(sys.argv[3], "w"), flush=True)
time.sleep(1000)
"""
HOLD_AS_DAEMON = HOLD.replace("descriptor = ", "os.fork() and os._exit(0)\ndescriptor = ", 1)


def item(report: GateReport, name: str) -> GateItem:
    (found,) = [one for one in report.items if one.name.startswith(name)]
    return found


def recorded(*paths: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_dev, path.stat().st_ino) for path in paths}


async def daemon(
    children: Children, tmp_path: Path, program: str, *arguments: str, invocation_id: str = OLD
) -> list[int]:
    """What the program, which may daemonise, told about itself."""
    heard = tmp_path / f"heard-{time.monotonic_ns()}"
    await children.spawn(python_of(program, *arguments, str(heard), INVOCATION_ID=invocation_id))
    return [int(word) for word in (await told(heard))[0].split()]


@pytest.fixture
def segment() -> Iterator[Path]:
    path = SHARED_MEMORY / f"podvisor-test-{os.getpid()}-{time.monotonic_ns()}"
    path.write_bytes(bytes(4096))
    yield path
    path.unlink(missing_ok=True)


async def test_nothing_in_the_way_passes() -> None:
    async with reaping() as children:
        report = await run_gate(children, GateSpec(ports=(Port("127.0.0.1", 0, "any"),)))
    assert report.passed
    assert report.reason == ""
    assert [(one.name, one.detail) for one in report.items] == [
        ("leftover processes", "none"),
        ("port 127.0.0.1:0 (any)", "free"),
        ("shared memory", "nothing was left"),
        ("locks", "nothing was left"),
    ]


@pytest.mark.seed("S29")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
async def test_a_leftover_that_holds_the_port_and_a_segment_is_killed(host: str, tmp_path: Path, segment: Path) -> None:
    async with reaping() as children:
        leftover, port = await daemon(children, tmp_path, LISTEN, host)
        (holder,) = await daemon(children, tmp_path, HOLD_AS_DAEMON, str(segment), "mapped")
        report = await run_gate(
            children,
            GateSpec(
                invocation_ids=frozenset({OLD}),
                ports=(Port(host, port, "service"),),
                shared_memory_patterns=("podvisor-test-*",),
                baseline=LATER,
                timeout_sec=30,
            ),
        )
        assert report.passed, report.reason
        assert f"killed {leftover} (python" in item(report, "leftover").detail
        assert item(report, "shared").detail == f"removed {segment}"
        assert not alive(leftover)
        assert not alive(holder)
        assert not segment.exists()


@pytest.mark.seed("S29")
@pytest.mark.parametrize("user", [None, 65534])
async def test_of_earlier_epochs_nobody_is_left_whatever_they_made_of_themselves(
    user: int | None, tmp_path: Path
) -> None:
    """Forked twice, in sessions of their own, without an environment, as another user; the leaders are long reaped."""
    if user is not None and not CAN_BECOME_OTHER_USERS:
        pytest.skip("becoming another user needs CAP_SETUID")
    become = "" if user is None else f"setpriv --reuid={user} --clear-groups"
    hide = f"(env -i HEARD=$HEARD setsid sh -c '{become} sleep 1000 & echo $! > $HEARD' &)"
    async with reaping() as children:
        pids = {}
        for invocation_id in ("epoch-1", "epoch-2", OTHER):
            heard = tmp_path / invocation_id
            leader = await children.spawn(spawn_of("sh", "-c", hide, invocation_id=invocation_id, HEARD=str(heard)))
            await leader.exited.wait()
            children.release(leader)
            pids[invocation_id] = int((await told(heard))[0])
        report = await run_gate(children, GateSpec(invocation_ids=frozenset({"epoch-1", "epoch-2"}), timeout_sec=30))
        assert report.passed
        old = sorted((pids["epoch-1"], pids["epoch-2"]))
        assert all(f"killed {pid} (" in item(report, "leftover").detail for pid in old)
        assert not any(alive(pid) for pid in old)
        assert alive(pids[OTHER])


async def test_a_stranger_on_the_port_is_named_and_lives(tmp_path: Path) -> None:
    async with reaping() as children:
        stranger, port = await daemon(children, tmp_path, LISTEN, "127.0.0.1", invocation_id=OTHER)
        spec = GateSpec(frozenset({OLD}), (Port("0.0.0.0", port, "service"),), timeout_sec=1)
        report = await run_gate(children, spec)
        assert not report.passed
        assert f"port 0.0.0.0:{port} (service): held by process {stranger} (" in report.reason
        assert "python" in report.reason
        assert alive(stranger)

        async with trio.open_nursery() as nursery:

            async def kill_it() -> None:
                await trio.sleep(0.1)
                os.kill(stranger, signal.SIGKILL)

            nursery.start_soon(kill_it)
            report = await run_gate(children, replace(spec, timeout_sec=30))
        assert report.passed


async def test_time_wait_is_no_obstacle() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = server.accept()
    accepted.close()  # who closes first waits
    client.close()
    server.close()
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    assert any(row[1].endswith(f":{port:04X}") and row[3] == "06" for row in rows)
    async with reaping() as children:
        assert (await run_gate(children, GateSpec(ports=(Port("127.0.0.1", port, "service"),)))).passed


@pytest.mark.parametrize(
    "host, words",
    [("192.0.2.1", "cannot be bound: cannot assign requested address"), ("localhost", "is not an address")],
)
async def test_a_port_that_can_never_be_bound_fails_at_once(host: str, words: str) -> None:
    async with reaping() as children:
        report = await run_gate(children, GateSpec(ports=(Port(host, 8000, "service"),), timeout_sec=60))
    assert words in report.reason


@pytest.mark.parametrize("how", ["open", "mapped"])
async def test_a_segment_that_somebody_uses_stays(how: str, tmp_path: Path, segment: Path) -> None:
    spec = GateSpec(shared_memory_patterns=("podvisor-test-*",), baseline=LATER)
    async with reaping() as children:
        (owner,) = await daemon(children, tmp_path, HOLD, str(segment), how, invocation_id=OTHER)
        assert held_by(SHARED_MEMORY, (owner,))[owner].keys() == {segment}
        report = await run_gate(children, spec)
        assert report.passed
        assert segment.exists()
        assert f"kept {segment}: process {owner} (python" in item(report, "shared").detail
        os.kill(owner, signal.SIGKILL)
        await gone(owner)
        assert (await run_gate(children, spec)).passed
        assert not segment.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"shared_memory_patterns": ("another-*",)},
        {"uids": frozenset({os.geteuid() + 1})},
        {"baseline": Baseline()},
    ],
)
async def test_a_segment_that_is_not_surely_ours_stays(change: dict[str, object], segment: Path) -> None:
    spec = GateSpec(shared_memory_patterns=("podvisor-test-*",), baseline=LATER)
    async with reaping() as children:
        assert (await run_gate(children, replace(spec, **change))).passed
    assert segment.exists()


async def test_a_recorded_segment_needs_no_pattern(segment: Path) -> None:
    async with reaping() as children:
        await run_gate(children, GateSpec(shared_memory_recorded=recorded(segment), baseline=LATER))
    assert not segment.exists()


@pytest.mark.parametrize("mode, user, stays", [(0o600, None, True), (0o644, 1, True), (0o600, 1, False)])
@pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="becoming another user needs CAP_SETUID")
async def test_what_a_process_below_us_may_hold_that_cannot_be_looked_into_stays(
    mode: int, user: int | None, stays: bool, segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another user's process has open is not shown without CAP_SYS_PTRACE."""
    real = holders._files_of

    segment.chmod(mode)
    async with reaping() as children:
        closed = await children.spawn(replace(spawn_of("sleep", "1000"), user=user))

        def refuse(pid: int, names: frozenset[str]) -> Iterator[tuple[int, int]]:
            if pid == closed.pid:
                raise PermissionError
            return real(pid, names)

        monkeypatch.setattr(holders, "_files_of", refuse)
        report = await run_gate(children, GateSpec(shared_memory_patterns=("podvisor-test-*",), baseline=LATER))
    assert segment.exists() is stays
    words = f"process {closed.pid} (sleep) may have it and cannot be looked into"
    assert (words in item(report, "shared").detail) is stays


async def test_where_others_have_files_too_only_dead_sockets_go(tmp_path: Path) -> None:
    """The directory for temporary files is everybody's."""
    (tmp_path / "tmp-file").touch()
    server, stale = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "tmp-live"))
    server.listen()
    stale.bind(str(tmp_path / "tmp-stale"))
    stale.close()
    try:
        async with reaping() as children:
            report = await run_gate(children, GateSpec(socket_patterns=(f"{tmp_path}/tmp-*",)))
    finally:
        server.close()
    assert report.passed
    assert {path.name for path in tmp_path.iterdir()} == {"tmp-file", "tmp-live"}
    assert item(report, "locks").detail == f"removed {tmp_path}/tmp-stale"


async def test_locks_and_sockets_of_the_dead_go_and_those_in_use_stay(tmp_path: Path) -> None:
    dead, locked, kept_open = (tmp_path / name for name in ("dead.lock", "locked.lock", "open.lock"))
    for path in (dead, locked, kept_open):
        path.touch()
    (tmp_path / "directory.lock").mkdir()
    (tmp_path / "link.lock").symlink_to(tmp_path / "target")
    (tmp_path / "target").touch()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "live.lock"))
    server.listen()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale.lock"))
    stale.close()
    holder = os.open(locked, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    opened = os.open(kept_open, os.O_RDWR)
    try:
        async with reaping() as children:
            report = await run_gate(children, GateSpec(lock_patterns=(f"{tmp_path}/*.lock",)))
    finally:
        os.close(holder)
        os.close(opened)
        server.close()
    assert report.passed
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"locked.lock", "open.lock", "directory.lock", "link.lock", "target", "live.lock"}
    detail = item(report, "locks").detail
    assert f"kept {locked}: process {os.getpid()} (" in detail
    assert f"kept {tmp_path}/live.lock: it is in use" in detail
    assert f"kept {kept_open}: process {os.getpid()} (" in detail


async def test_a_file_that_cannot_be_removed_fails_the_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dead.lock"
    path.touch()

    def refuse(_: Path) -> None:
        raise PermissionError(13, "permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    async with reaping() as children:
        report = await run_gate(children, GateSpec(lock_patterns=(str(path),)))
    assert report.reason == f"locks: cannot remove {path}: permission denied"


async def test_a_leftover_that_cannot_be_killed_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reaping() as children:
        leftover, _ = await daemon(children, tmp_path, LISTEN, "127.0.0.1")

        def forbid(*_: object) -> None:
            raise PermissionError

        with monkeypatch.context() as patched:
            patched.setattr("signal.pidfd_send_signal", forbid)
            report = await run_gate(children, GateSpec(frozenset({OLD}), timeout_sec=0.5))
        assert report.reason.startswith(f"leftover processes: killed, and still there: {leftover} (python")
        assert len(report.items) == 3  # the others were looked at all the same


@needs_fuse
async def test_who_has_a_descriptor_on_a_dead_mount_is_in_nobodys_way(tmp_path: Path, segment: Path) -> None:
    spec = GateSpec(shared_memory_patterns=(segment.name,), baseline=LATER)
    async with reaping() as children:
        with hanging_directory(tmp_path) as somebody_hangs:
            mount = os.open(tmp_path, os.O_PATH)
            sidecar = await children.spawn(replace(spawn_of("sleep", "600"), stdin=mount))
            os.close(mount)
            assert item(await run_gate(children, spec), "shared").detail == f"removed {segment}"
            assert not somebody_hangs.is_set()
        segment.write_bytes(bytes(4096))
        with pytest.raises(OSError, match="not connected"):
            os.stat(f"/proc/{sidecar.pid}/fd/0")
        assert item(await run_gate(children, spec), "shared").detail == f"removed {segment}"
