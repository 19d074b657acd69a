"""Workers that tell when they began: both ends of a figure are taken on one clock, CLOCK_MONOTONIC.

They tell it through a FIFO, so that the benchmark waits for the event and takes no time from the programs that it
measures. They are compiled where there is a C compiler; a script of the same meaning, whose own start costs some
10 ms, takes their place elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

COMPILE_TIMEOUT_SEC = 30
SOURCES = Path(__file__).parent
WORKER_SCRIPT = """
import os, signal, sys, time
now = time.monotonic_ns()
with open(sys.argv[1], "w") as fifo:
    fifo.write(f"{sys.argv[2]} {os.getpid()} {now}\\n")
signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Birth:
    """One worker's first statement."""

    label: str
    pid: int
    at_ns: int
    """On time.monotonic_ns()'s clock."""


class Births:
    """Those of the workers that were given this FIFO, in the order in which they came."""

    def __init__(self, fifo: Path, stream: trio.lowlevel.FdStream, worker: Sequence[str]) -> None:
        self._fifo = fifo
        self._stream = stream
        self._worker = worker
        self._rest = b""

    def command(self, label: str) -> tuple[str, ...]:
        """What to execute; `label` is one word."""
        return (*self._worker, str(self._fifo), label)

    async def next(self) -> Birth:
        while b"\n" not in self._rest:
            self._rest += await self._stream.receive_some(4096)
        line, _, self._rest = self._rest.partition(b"\n")
        label, pid, at_ns = line.decode().split()
        return Birth(label, int(pid), int(at_ns))


@asynccontextmanager
async def open_births(fifo: Path) -> AsyncIterator[Births]:
    """Makes the FIFO, which must not exist."""
    os.mkfifo(fifo)
    # Also open for writing: no worker is then the last writer, and reading never ends.
    async with trio.lowlevel.FdStream(os.open(fifo, os.O_RDWR)) as stream:
        yield Births(fifo, stream, worker_command())


def worker_command() -> Sequence[str]:
    built = compiled("worker")
    return [sys.executable, "-I", "-S", "-c", WORKER_SCRIPT] if built is None else [str(built)]


def compiled(name: str) -> Path | None:
    """The program made of `name`.c, kept beside the figures; None where there is no compiler."""
    source = SOURCES / f"{name}.c"
    target = built_directory() / name
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-O2", "-o", str(target), str(source)], check=True, timeout=COMPILE_TIMEOUT_SEC)
    return target


def built_directory() -> Path:
    return results_directory() / "built"


def results_directory() -> Path:
    return Path(__file__).parents[2] / "bench-results"
