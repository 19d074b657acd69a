"""What `look.py` has seen in a pod, as values, and what of an older look is still there."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path

import msgspec

SCRIPT = Path(__file__).with_name("look.py")


class Process(msgspec.Struct, frozen=True):
    pid: int
    """As the pod numbers it."""
    parent: int
    started: float
    title: str
    status: str
    resident: int
    """Bytes."""
    files: int
    """Open file descriptors."""

    def __str__(self) -> str:
        return f"{self.pid} {self.title[:40]}"

    def is_same(self, other: Process) -> bool:
        """A number may be used again."""
        return (self.pid, self.started) == (other.pid, other.started)


class PodLook(msgspec.Struct, frozen=True):
    host: str
    processes: tuple[Process, ...]
    listening: tuple[tuple[int, int], ...]
    """(port, pid)"""
    segments: tuple[str, ...]
    """Names in /dev/shm."""
    sockets: tuple[str, ...]
    """Names of the sockets in the directory for temporary files."""

    def tree(self, root: int) -> tuple[Process, ...]:
        """That process and all its descendants."""
        found = {root}
        grown = True
        while grown:
            more = {one.pid for one in self.processes if one.parent in found} - found
            found |= more
            grown = bool(more)
        return tuple(one for one in self.processes if one.pid in found)

    def titled(self, pattern: str, among: Iterable[Process] | None = None) -> Process:
        """The one process whose title fits (fnmatch). Raises AssertionError if there is none, or another one."""
        candidates = self.processes if among is None else among
        found = [one for one in candidates if fnmatch.fnmatchcase(one.title, pattern)]
        assert len(found) == 1, f"{self.host}: {pattern}: {[*map(str, found)]} of {[*map(str, self.processes)]}"
        return found[0]


def left_behind(old: Iterable[Process], before: PodLook, now: PodLook) -> list[str]:
    """What the engine whose processes were `old` has left in the pod."""
    old = tuple(old)
    pids = {one.pid for one in old}
    processes = [f"process {one}" for one in now.processes if any(one.is_same(was) for was in old)]
    zombies = [f"zombie {one}" for one in now.processes if one.status == "zombie"]
    alive = {one.pid for one in now.processes} - pids
    ports = [f"port {port} of {pid or 'nobody'}" for port, pid in now.listening if pid not in alive]
    segments = [f"segment {name}" for name in now.segments if name in before.segments]
    sockets = [f"socket {name}" for name in now.sockets if name in before.sockets]
    return [*processes, *zombies, *ports, *segments, *sockets]
