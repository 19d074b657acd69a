"""Several owners keep things under similar names: what is anybody else's is never touched, whatever came together.

Every combination of who holds a file, since when it is there, whose it is and how it is known is made at once; then
the gate passes, and what is gone must be exactly what the rule allows.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from supervisor.process import leftover_files
from supervisor.process.gate import Baseline, GateSpec, run_gate
from supervisor.process.holders import FileId
from supervisor.process.leftover_files import present_segments
from tests.support.real_processes import CAN_BECOME_OTHER_USERS, python_of, reaping, told
from tests.support.running_supervisor import (
    PODVISOR,
    RunningSupervisor,
    free_port,
    program,
    service,
    shell,
    socket_of,
    write_files,
)

pytestmark = pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="files of another user need CAP_CHOWN")

ANOTHER_UID = 65534
HOLD_ALL = """
import mmap, os, sys, time
kept = []
for path in sys.argv[2:]:
    descriptor = os.open(path, os.O_RDWR)
    if ".mapped." in path:
        kept.append(mmap.mmap(descriptor, 4096))
        os.close(descriptor)
print("held", file=open(sys.argv[1], "w"), flush=True)
time.sleep(1000)
"""


class Segment(NamedTuple):
    held: str
    """`open` or `mapped` by a KV store; `nobody` has the dead engine's, and those a weight daemon keeps for later."""
    since: str
    """`before` or `after` the engine's first start."""
    uid: int
    name: str
    """`psm`: as the engine's pattern has it."""
    record: str
    """`own`: seen in the engine's tree alone; `stale`: another file had this name then."""

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.since}.{self.held}.{self.uid}.{self.record}"

    def is_the_dead_engines(self, *, scope: str) -> bool:
        if self.held != "nobody" or self.since == "before" or self.uid != os.geteuid() or self.record == "stale":
            return False
        return self.record == "own" or (self.name == "psm" and scope == "pod")


EVERY_SEGMENT = [
    Segment(*parts)
    for parts in itertools.product(
        ("nobody", "open", "mapped"), ("before", "after"), (0, ANOTHER_UID), ("psm", "kv"), ("own", "stale", "none")
    )
]


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A tmpfs directory of the test's own in the place of /dev/shm, where other tests have segments."""
    directory = Path("/dev/shm") / f"podvisor-test-{os.getpid()}"
    directory.mkdir()
    monkeypatch.setattr(leftover_files, "SHARED_MEMORY", directory)
    yield directory
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def make(path: Path, uid: int) -> FileId:
    path.write_bytes(bytes(4096))
    os.chown(path, uid, -1)
    return path.stat().st_dev, path.stat().st_ino


@pytest.mark.seed("S29")
@pytest.mark.parametrize("scope", ["pod", "shared"])
async def test_of_all_segments_the_dead_engines_alone_are_removed(
    scope: str, shared_memory: Path, tmp_path: Path
) -> None:
    assert os.geteuid() == 0
    recorded: dict[Path, FileId] = {}
    made: dict[str, dict[Path, Segment]] = {"before": {}, "after": {}}
    for segment in EVERY_SEGMENT:
        made[segment.since][shared_memory / segment.file_name] = segment

    def make_all(since: str) -> None:
        for path, segment in made[since].items():
            file = make(path, segment.uid)
            if segment.record != "none":
                recorded[path] = file if segment.record == "own" else (file[0], file[1] + 1_000_000)

    make_all("before")
    baseline = Baseline(segments=present_segments())
    make_all("after")
    everything = made["before"] | made["after"]
    held = [str(path) for path, segment in everything.items() if segment.held != "nobody"]
    async with reaping() as children:
        await children.spawn(python_of(HOLD_ALL, str(tmp_path / "told"), *held, INVOCATION_ID="kv-store"))
        await told(tmp_path / "told")
        patterns = ("psm_*",) if scope == "pod" else ()
        spec = GateSpec(shared_memory_patterns=patterns, shared_memory_recorded=recorded, baseline=baseline)
        report = await run_gate(children, spec)
    assert report.passed
    gone = {segment for path, segment in everything.items() if not path.exists()}
    assert gone == {segment for segment in EVERY_SEGMENT if segment.is_the_dead_engines(scope=scope)}
    assert len(gone) == (3 if scope == "pod" else 2)


def bound(path: Path, kind: int = socket.SOCK_STREAM, *, listening: bool = False) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(str(path))
    if listening:
        server.listen()
    return server


async def test_of_all_lock_files_and_sockets_the_dead_ones_alone_are_removed(tmp_path: Path) -> None:
    """ZeroMQ's ipc sockets are files like any other: they stay when their process is killed."""
    run = tmp_path / "run"
    run.mkdir()
    alive: list[socket.socket] = []
    held: list[int] = []
    expected_gone = set()
    for number, uid in enumerate((0, ANOTHER_UID)):
        for name, kind, listening, dead in (
            ("ipc-listening", socket.SOCK_STREAM, True, False),
            ("ipc-starting", socket.SOCK_STREAM, False, False),
            ("datagrams", socket.SOCK_DGRAM, False, False),
            ("ipc-dead", socket.SOCK_STREAM, True, True),
            ("datagrams-dead", socket.SOCK_DGRAM, False, True),
        ):
            path = run / f"{name}-{number}.sock"
            server = bound(path, kind, listening=listening)
            os.chown(path, uid, -1)
            if dead:
                server.close()
                expected_gone |= {path} if uid == 0 else set()
            else:
                alive.append(server)
        for name, lock in (("flock", fcntl.flock), ("record-lock", fcntl.lockf), ("open", None), ("dead", None)):
            path = run / f"{name}-{number}.lock"
            make(path, uid)
            if name == "dead":
                expected_gone |= {path} if uid == 0 else set()
                continue
            descriptor = os.open(path, os.O_RDWR)
            held.append(descriptor)
            if lock is not None:
                lock(descriptor, fcntl.LOCK_EX)
    make(run / "dead.pid", 0)  # no pattern names it
    before = set(run.iterdir())
    patterns = (f"{run}/*.lock", f"{run}/*.sock")
    try:
        async with reaping() as children:
            report = await run_gate(children, GateSpec(lock_patterns=patterns))
        assert report.passed
        assert before - set(run.iterdir()) == expected_gone
    finally:
        for server in alive:
            server.close()
        for descriptor in held:
            os.close(descriptor)


async def test_what_the_units_user_left_is_removed(shared_memory: Path) -> None:
    path = shared_memory / "psm_1"
    make(path, ANOTHER_UID)
    spec = GateSpec(shared_memory_patterns=("psm_*",), baseline=Baseline(segments=frozenset()))
    async with reaping() as children:
        await run_gate(children, spec)
        assert path.exists()
        await run_gate(children, replace(spec, uids=frozenset({0, ANOTHER_UID})))
    assert not path.exists()


UNREADABLE = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
LEAVES_A_SEGMENT = "echo x > {path}; chmod 666 {path}; echo ready; trap 'exit 1' USR1; sleep 600 & wait"


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes the capability away")
@pytest.mark.parametrize("user", [str(ANOTHER_UID), None])
async def test_what_cannot_be_looked_into_counts_as_alive(user: str | None, tmp_path: Path) -> None:
    """Without CAP_SYS_PTRACE (no container has it by default) another user's descriptors are not shown."""
    path = Path(f"/dev/shm/psm_podvisor_test_{os.getpid()}")
    identity = {} if user is None else {"User": user, "Group": user}
    engine = service(*shell(LEAVES_A_SEGMENT.format(path=path)), RestartSec="50ms")
    units = {
        "store": service(*shell("sleep 600 & wait"), **identity),
        "engine": {
            **engine,
            "Engine": {"Launcher": "exec", "BasePort": free_port(), "SharedMemoryPatterns": [path.name]},
            "Readiness": {"LogLine": "ready"},
        },
    }
    arguments = write_files(tmp_path, units)
    try:
        async with program(*UNREADABLE, *PODVISOR, *arguments) as begun:
            running = RunningSupervisor(begun.process, socket_of(tmp_path))
            running.stderr, running.stdout = begun.stderr, begun.stdout
            store = await running.started("store")
            await running.moved("engine", "loading", "ready")
            os.kill(await running.started("engine"), signal.SIGUSR1)
            said = (await running.stderr.saw("hygiene gate passed: (.*)", 2))[1]
            await running.moved("engine", "loading", "ready", 2)
        if user is None:
            assert f"removed {path}" in said
        else:
            assert f"kept {path}: process {store} (sh) may have it and cannot be looked into" in said
    finally:
        path.unlink(missing_ok=True)
