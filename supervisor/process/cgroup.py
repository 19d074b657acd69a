"""One cgroup for each invocation that is put into one, below the supervisor's own: the evidence that no fork escapes.

`cgroup.kill` reaches all of a cgroup in one stroke, also what forks and calls setsid faster than /proc can be read.
Few pods have a cgroup2 that may be written to (`own_cgroup.py` finds out), so this is one piece of evidence among
others: where there is none, nothing here does anything.

The supervisor itself stays where it is. It turns on no controller, so that the rule against processes in inner
cgroups does not apply, and whoever joins the container later (kubectl exec) finds its cgroup as it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.process.pidfd import OUT_OF_DESCRIPTORS

log = logging.getLogger(__name__)

PREFIX = "podvisor."
"""Before the supervisor's pid and the invocation id."""


class Cgroups:
    """Those of one supervisor. What touches the file system can wait for locks: call it in a worker thread."""

    def __init__(self, own: Path | None = None) -> None:
        """`own`: the cgroup to make them in. None: make none."""
        self._own = own
        self._made: set[str] = set()
        """The invocations that have one. Worker threads add and take away, each in one step."""
        self._lingering: set[str] = set()
        """Those that are over and could not be removed yet: KillMode=process leaves somebody behind."""

    @property
    def usable(self) -> bool:
        return self._own is not None

    def has(self, invocation_ids: Iterable[str]) -> bool:
        """Touches nothing."""
        return not self._made.isdisjoint(invocation_ids)

    def enter(self, invocation_id: str, pid: int) -> None:
        """Put a process there that has not forked yet. When it cannot be, a warning says so and it starts without.

        Takes some ten milliseconds: the kernel first waits until no fork is under way anywhere.
        """
        if self._own is None:
            return
        cgroup = self._path(self._own, invocation_id)
        self._made.add(invocation_id)
        try:
            cgroup.mkdir()
            write(cgroup / "cgroup.procs", str(pid))
        except OSError as error:
            self.remove((invocation_id,))
            log.warning(
                "process %d starts without a cgroup of its own (%s: %s): what escapes from it is found by the other "
                "evidence, unless it forks faster than /proc can be read",
                pid,
                cgroup,
                error.strerror,
            )

    def kill(self, invocation_ids: Iterable[str]) -> None:
        """SIGKILL to all that live there. Raise OSError when descriptors have run out."""
        for cgroup in self._of(invocation_ids):
            with _if_it_can_be():
                write(cgroup / "cgroup.kill", "1")

    def pids(self, invocation_ids: Iterable[str]) -> frozenset[int]:
        """Who is there. Raise OSError when descriptors have run out."""
        found: set[int] = set()
        for cgroup in self._of(invocation_ids):
            with _if_it_can_be():
                found.update(pids_in(cgroup))
        return frozenset(found)

    def populated(self, invocation_ids: Iterable[str]) -> bool:
        """Whether anything lives there. Raise OSError when descriptors have run out."""
        for cgroup in self._of(invocation_ids):
            with _if_it_can_be():
                if is_populated(cgroup):
                    return True
        return False

    def remove(self, invocation_ids: Iterable[str]) -> None:
        """For invocations that are over. One in which something lives is left alone, and tried again the next time."""
        self._lingering.update(self._made.intersection(invocation_ids))
        for invocation_id in tuple(self._lingering):
            if self._own is None or remove(self._path(self._own, invocation_id)):
                self._lingering.discard(invocation_id)
                self._made.discard(invocation_id)

    def _of(self, invocation_ids: Iterable[str]) -> Iterator[Path]:
        if self._own is not None:
            yield from (self._path(self._own, one) for one in invocation_ids if one in self._made)

    @staticmethod
    def _path(own: Path, invocation_id: str) -> Path:
        return own / f"{PREFIX}{os.getpid()}.{invocation_id}"


@contextmanager
def _if_it_can_be() -> Iterator[None]:
    """It may be gone, or have been made read-only under us: then the other evidence has to do."""
    try:
        yield
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise


def write(path: Path, text: str) -> None:
    """In one write, never making a file. Raise OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def pids_in(cgroup: Path) -> tuple[int, ...]:
    """0 for each that our pid namespace does not show. Raise OSError."""
    return tuple(int(pid) for pid in (cgroup / "cgroup.procs").read_text().split())


def is_populated(cgroup: Path) -> bool:
    """In it or below. Raise OSError."""
    return "populated 1" in (cgroup / "cgroup.events").read_text().splitlines()


def remove(cgroup: Path) -> bool:
    """With what the unit made below it (a podvisor as a unit does); True if it is gone. Kills nobody."""
    try:
        for inner, _, _ in os.walk(cgroup, topdown=False):
            os.rmdir(inner)
    except OSError:
        pass  # something lives there still, or it is gone
    return not cgroup.exists()
