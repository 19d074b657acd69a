"""Where our cgroup2 is looked for: by what the kernel says of mounts, never by a fixed path."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.process.own_cgroup import OwnCgroup, find_own_cgroup

V1 = "34 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def found(tmp_path: Path, ours: str, *mounts: str) -> OwnCgroup:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(f"4:memory:/elsewhere\n{ours}\n")
    (tmp_path / "self/mountinfo").write_text("\n".join((V1, *mounts)) + "\n")
    return find_own_cgroup(tmp_path)


@pytest.mark.parametrize(
    "ours, root, mount, looked_for",
    [
        ("0::/", "/", "/none/cgroup", "/none/cgroup"),  # a cgroup namespace of our own
        ("0::/", "/", "/none/cgroup/unified", "/none/cgroup/unified"),  # beside v1's controllers
        ("0::/kubepods/pod1/c1", "/", "/none/cgroup", "/none/cgroup/kubepods/pod1/c1"),
        ("0::/kubepods/pod1/c1", "/kubepods/pod1/c1", "/none/cgroup", "/none/cgroup"),  # only ours is mounted
        ("0::/kubepods/pod1/c1", "/kubepods", r"/none/a\040b", "/none/a b/pod1/c1"),
    ],
)
def test_where_it_is_looked_for(tmp_path: Path, ours: str, root: str, mount: str, looked_for: str) -> None:
    answer = found(tmp_path, ours, f"41 31 0:38 {root} {mount} rw,relatime shared:9 - cgroup2 cgroup2 rw")
    assert answer == OwnCgroup(None, f"{looked_for} cannot be used: No such file or directory")


@pytest.mark.parametrize(
    "ours, mounts",
    [
        ("0::/", ()),
        ("", ("41 31 0:38 / /none rw - cgroup2 cgroup2 rw",)),  # only v1 is in use
        ("0::/a", ("41 31 0:38 /b /none rw - cgroup2 cgroup2 rw",)),  # what is mounted is not ours
        ("0::/", ("41 31 0:38 /../../b /none rw - cgroup2 cgroup2 rw",)),
    ],
)
def test_where_there_is_none(tmp_path: Path, ours: str, mounts: tuple[str, ...]) -> None:
    assert found(tmp_path, ours, *mounts) == OwnCgroup(None, "no cgroup2 is mounted here")


def test_nothing_is_known_without_proc(tmp_path: Path) -> None:
    assert find_own_cgroup(tmp_path).path is None
