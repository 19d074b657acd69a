"""What is warned of at the start: the judgement by table, and what is read where."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.container import GIB, Container, SharedMemory, look, warnings
from supervisor.unit.model import Engine, Execution, Service, Unit

ENGINE = Unit("engine", Path("e"), engine=Engine())
STORE = Unit("store", Path("s"))
OTHERS = Unit("other", Path("o"), service=Service(execution=Execution(user="nobody")))
SMALL, FULL, WIDE = SharedMemory(GIB // 16, 0), SharedMemory(8 * GIB, 8 * GIB - 1), SharedMemory(8 * GIB, 0)


@pytest.mark.parametrize(
    "container, units, ranks, words",
    [
        (Container(), (ENGINE, OTHERS), 1, []),
        (Container(oom_group=True), (STORE,), 1, ["memory.oom.group is 1"]),
        (
            Container(shared_memory=SMALL),
            (ENGINE,),
            1,
            ["/dev/shm has 0.06 GiB, less than 1 GiB for each rank of the engine (1)"],
        ),
        (Container(shared_memory=SMALL), (STORE,), 1, []),
        (Container(shared_memory=WIDE), (ENGINE,), 8, []),
        (Container(shared_memory=WIDE), (ENGINE,), 9, ["/dev/shm has 8.00 GiB, less than"]),
        (Container(shared_memory=FULL), (ENGINE,), 1, ["/dev/shm is nearly full, 8.00 of 8.00 GiB"]),
        (Container(sees_other_users=False), (ENGINE, STORE), 1, []),
        (
            Container(sees_other_users=False),
            (ENGINE, OTHERS),
            1,
            ["CAP_SYS_PTRACE is missing: of units that"],
        ),
    ],
)
def test_what_is_warned_of(container: Container, units: tuple[Unit, ...], ranks: int, words: list[str]) -> None:
    found = warnings(container, units, ranks)
    assert len(found) == len(words)
    assert all(expected in warning for expected, warning in zip(words, found, strict=True))


def root_of(directory: Path, cgroup: str, oom_group: str, *, below: str = "", capabilities: str = "0") -> Path:
    (directory / "proc/self").mkdir(parents=True)
    (directory / "proc/self/cgroup").write_text(f"1:cpu:/x\n{cgroup}\n")
    (directory / "proc/self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    group = directory / "sys/fs/cgroup" / below
    group.mkdir(parents=True)
    (group / "memory.oom.group").write_text(f"{oom_group}\n")
    (directory / "dev/shm").mkdir(parents=True)
    return directory


@pytest.mark.parametrize(
    "cgroup, oom_group, below, expected",
    [
        ("0::/", "1", "", True),
        ("0::/", "0", "", False),
        ("0::/kubepods/pod1/c1", "1", "kubepods/pod1/c1", True),
        ("0::/kubepods/pod1/c1", "1", "", True),
        ("", "0", "", False),
    ],
)
def test_where_the_oom_group_is_read(tmp_path: Path, cgroup: str, oom_group: str, below: str, expected: bool) -> None:
    assert look(root_of(tmp_path, cgroup, oom_group, below=below)).oom_group is expected


@pytest.mark.parametrize(
    "capabilities, expected", [("0000000000080000", True), ("00000000a80425fb", False), ("000001ffffffffff", True)]
)
def test_who_may_look_into_other_users_processes(tmp_path: Path, capabilities: str, expected: bool) -> None:
    """The second is what a container has by default."""
    assert look(root_of(tmp_path, "0::/", "0", capabilities=capabilities)).sees_other_users is expected


def test_what_cannot_be_read_is_held_against_nobody(tmp_path: Path) -> None:
    assert look(tmp_path) == Container()
