"""A cgroup of the memory controller, v1, in which a process finds little."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/memory")
LEAVE_SEC = 5.0
"""The killed take a moment to leave; a swapping machine lets them take longer."""
AGAIN_SEC = 0.01


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
        _remove(cgroup)


def _remove(cgroup: Path) -> None:
    end = time.monotonic() + LEAVE_SEC
    while True:
        try:
            cgroup.rmdir()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(AGAIN_SEC)


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
