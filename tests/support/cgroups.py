"""A cgroup2 for tests: ours to make cgroups in, and gone after the test with everything in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.process.cgroup import remove, write


def _mount() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and os.access(path := Path(fields.split()[4]), os.W_OK):
            return path
    return None


@contextmanager
def cgroup_for_a_test() -> Iterator[Path]:
    """Skips where none can be made. Nothing of the test itself is moved into it."""
    mount = _mount()
    if mount is None:
        pytest.skip("no cgroup2 that may be written to is mounted here")
    cgroup = mount / f"podvisor-test-{uuid.uuid4().hex}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        if not (cgroup / "cgroup.kill").exists():
            pytest.skip("the kernel knows no cgroup.kill (5.14)")
        yield cgroup
    finally:
        write(cgroup / "cgroup.kill", "1")
        while not remove(cgroup):
            os.sched_yield()  # killed processes take a moment to leave


def cgroups_below(cgroup: Path) -> list[str]:
    return sorted(entry.name for entry in cgroup.iterdir() if entry.is_dir())
