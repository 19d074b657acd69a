"""Run what is measured, plainly or as PID 1 of a pid namespace of its own, and leave nothing of it behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import trio

STOP_SEC = 10.0
REMOVAL_SEC = 5.0
TRY_SEC = 20
SHOWN = 2000
FORK_LOOK_SEC = 0.002
INTO_NAMESPACE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child=KILL", "--")


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    """The manager's own, as we number it."""

    @property
    def cpu_sec(self) -> float:
        """CPU time of the process, its dead threads included, in nanoseconds; the clock of clock_getcpuclockid(3)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def host_pid(self, pid: int) -> int:
        """How we number a process below it that knows itself as `pid`. Raises ProcessLookupError."""
        for process in psutil.Process(self.pid).children(recursive=True):
            if _innermost_pid(process.pid) == pid:
                return int(process.pid)
        raise ProcessLookupError(f"no process below {self.pid} is known as {pid} in its namespace")


@asynccontextmanager
async def running(argv: Sequence[str], directory: Path, *, in_namespace: bool = False) -> AsyncIterator[Running]:
    """The command in a session of its own, as PID 1 of a new pid namespace if asked for; output in `directory`/output.

    Leaving asks it to end and waits at most STOP_SEC, then kills. Raises RuntimeError, in a group, if it ends by
    itself.
    """
    with (directory / "output").open("ab") as output:
        process = await trio.lowlevel.open_process(
            [*(INTO_NAMESPACE if in_namespace else ()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_must_not_end, process, output.name)
            yield Running(await _only_child(process.pid) if in_namespace else process.pid)
            nursery.cancel_scope.cancel(reason="it may end now")
    finally:
        with trio.move_on_after(STOP_SEC, shield=True):
            _ask_to_end(process, in_namespace=in_namespace)
            await process.wait()
        if process.returncode is None:
            process.kill()
        with trio.move_on_after(REMOVAL_SEC, shield=True):
            await process.wait()


def free_port() -> int:
    """Of the loopback; nobody has it when this is asked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_leftovers() -> None:
    """Kill and reap what outlived its manager: as a subreaper we have inherited it. Call it when nothing runs."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=REMOVAL_SEC)


def namespaces_refused() -> str | None:
    """Why there can be no pid namespaces here; None if there can."""
    tried = subprocess.run([*INTO_NAMESPACE, "true"], capture_output=True, text=True, check=False, timeout=TRY_SEC)
    return None if tried.returncode == 0 else tried.stderr.strip()


async def _must_not_end(process: trio.Process, output: str) -> None:
    code = await process.wait()
    said = Path(output).read_text(errors="replace")[-SHOWN:]
    raise RuntimeError(f"{process.args!r} ended with {code} in the middle of a measurement: {said}")


async def _only_child(pid: int) -> int:
    """Of unshare, as soon as it has forked."""
    while not (children := psutil.Process(pid).children()):
        await trio.sleep(FORK_LOOK_SEC)
    return int(children[0].pid)


def _innermost_pid(pid: int) -> int:
    """proc_pid_status(5): NSpid tells a process's number in each pid namespace, its own last."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def _ask_to_end(process: trio.Process, *, in_namespace: bool) -> None:
    """unshare(1) waits for its only child and passes no signal on to it, so that one is told."""
    if process.returncode is not None:
        return
    told = psutil.Process(process.pid).children() if in_namespace else [process]
    for one in told:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGTERM)
