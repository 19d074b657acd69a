"""A cgroup of the memory controller, v1, in which a process finds little."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/memory")
LEAVES = 1000


@contextmanager
def cgroup_of(pid: int, limit_bytes: int) -> Iterator[None]:
    """The process has been put into it for the block; afterwards, what lives is put back where it was."""
    before = CONTROLLER / _cgroup(pid)
    cgroup = CONTROLLER / f"podvisor-chaos-{uuid.uuid4().hex}"
    cgroup.mkdir()
    try:
        (cgroup / "memory.limit_in_bytes").write_text(str(limit_bytes))
        _put(pid, cgroup)
        yield
    finally:
        for left in (cgroup / "cgroup.procs").read_text().split():
            _put(int(left), before)
        for _ in range(LEAVES):  # the killed take a moment to leave
            with suppress(OSError):
                cgroup.rmdir()
                break
            os.sched_yield()


def _cgroup(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    paths = [line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory"]
    return paths[0].lstrip("/") if paths else ""


def _put(pid: int, cgroup: Path) -> None:
    with suppress(ProcessLookupError):
        (cgroup / "cgroup.procs").write_text(str(pid))
