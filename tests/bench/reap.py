"""A thousand orphans of a living unit end at one moment: how long until none is left, not even as a zombie."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from tests.bench.figures import Goal, Sheet
from tests.bench.managers import Manager, find_peers
from tests.bench.running import running
from tests.bench.workers import compiled

ORPHANS = 1000
ROUNDS = 5
PATIENCE_SEC = 13.0
"""For all rounds of one manager: supervisord takes a hundred in a second, and so gets one round."""
LOOK_SEC = 0.002
GOAL = Goal(1000)
NAME = f"the end of {ORPHANS} orphans to none left"
AS_SUBREAPER = (
    "import ctypes, os, sys; PR_SET_CHILD_SUBREAPER = 36\n"
    "assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Orphans come to managers that do not ask for them too, as they would to PID 1; the mark survives exec (prctl(2))."""

Command = Callable[[Path, Sequence[str]], Sequence[str]]
"""How to run a program, given an empty directory."""


async def measure(sheet: Sheet, scratch: Path) -> None:
    program = compiled("orphans")
    if program is None:
        sheet.remark("needs a C compiler: with a thousand Python processes the figure would be Python's")
        return
    for name, command in _commands().items():
        samples: list[float] = []
        with trio.move_on_after(PATIENCE_SEC):
            while len(samples) < ROUNDS:
                samples.append(await _round(command, scratch / f"{name}-{len(samples)}", program))
        sheet.add(name, NAME, "ms", samples, GOAL if name.startswith("podvisor") else None)
    sheet.remark("every one as a subreaper in the place of PID 1; the orphans' own ends are part of the time")


def _commands() -> dict[str, Command]:
    peers = find_peers()
    commands: dict[str, Command] = {
        "podvisor": _managed_by(peers.podvisor),
        "podvisor run --": lambda directory, argv: [str(peers.podvisor.program), "run", "--", *argv],
    }
    if (tini := shutil.which("tini")) is not None:
        commands["tini"] = lambda directory, argv: [tini, "--", *argv]
    if peers.supervisord is not None:
        commands[peers.supervisord.name] = _managed_by(peers.supervisord)
    return commands


def _managed_by(manager: Manager) -> Command:
    return lambda directory, argv: manager.prepare(directory, {"orphans": argv})


async def _round(command: Command, directory: Path, program: Path) -> float:
    directory.mkdir()
    fifo = directory / "release"
    os.mkfifo(fifo)
    argv = command(directory, [str(program), str(fifo), str(ORPHANS)])
    # Held open for writing, so that the orphans wait; closing it is the signal for all of them.
    release = os.open(fifo, os.O_RDWR)
    try:
        async with running([sys.executable, "-I", "-S", "-c", AS_SUBREAPER, *argv], directory) as manager:
            await _until(lambda: len(_children(manager.pid)) > ORPHANS)
            began_ns = time.monotonic_ns()
            os.close(release)
            release = -1
            await _until(lambda: len(_children(manager.pid)) <= 1)
            return (time.monotonic_ns() - began_ns) / 1e6
    finally:
        if release >= 0:
            os.close(release)


async def _until(seen: Callable[[], bool]) -> None:
    while not seen():
        await trio.sleep(LOOK_SEC)


def _children(pid: int) -> list[str]:
    """Zombies included; a child stands under the thread that forked it (proc(5))."""
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in _children_of(task)]


def _children_of(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # the thread has ended
