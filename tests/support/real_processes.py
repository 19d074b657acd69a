"""A reaper for tests with real processes, and small programs for it to run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from supervisor.process import procfs
from supervisor.process.children import Children, Spawn
from supervisor.process.subreaper import become_subreaper

_CAP_SETUID = 7


def _capabilities() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


CAN_BECOME_OTHER_USERS = bool(_capabilities() >> _CAP_SETUID & 1)
TIMEOUT_SEC = 60.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))


@asynccontextmanager
async def reaping(timeout_sec: float = TIMEOUT_SEC) -> AsyncIterator[Children]:
    """Children of a process to which orphans fall; at the end every process below us is killed and reaped."""
    become_subreaper()
    children = Children()
    try:
        with trio.fail_after(timeout_sec):
            async with trio.open_nursery() as nursery:
                await nursery.start(children.run)
                yield children
                nursery.cancel_scope.cancel()
    finally:
        _end_everything_below_us()  # once nobody else reaps


def _end_everything_below_us() -> None:
    while pids := procfs.children_of_ours():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def spawn_of(*argv: str, invocation_id: str = "test", **environment: str) -> Spawn:
    known = {"PATH": os.environ["PATH"], "INVOCATION_ID": invocation_id, **environment}
    return Spawn(argv, known)


def python_of(program: str, *arguments: str, **environment: str) -> Spawn:
    """A small Python program; it starts slowly, so let it tell when it is ready."""
    return spawn_of(sys.executable, "-I", "-S", "-c", program, *arguments, **environment)


def alive(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.alive


async def told(path: Path, lines: int = 1) -> list[str]:
    """What processes wrote into a file, once there are so many whole lines."""
    while not path.exists() or path.read_text().count("\n") < lines:
        await trio.sleep(0.01)  # another process's file: there is no event to wait for
    return path.read_text().splitlines()


async def gone(pid: int) -> None:
    while alive(pid):
        await trio.sleep(0.01)  # possibly no child of ours
