"""What in this container can hurt its engines later, told once at the start (design 8, Memory and devices).

`look` reads it, `warnings` judges it. Nothing here is mended: it belongs to whoever wrote the pod's manifest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from supervisor.unit.model import Unit

GIB = 1 << 30
SHARED_MEMORY_PER_RANK = GIB
"""What collective libraries take of /dev/shm for each of a node's ranks, roughly."""
NEARLY_FULL = 0.9
CAP_SYS_PTRACE = 19
"""linux/capability.h"""


class SharedMemory(msgspec.Struct, frozen=True):
    """/dev/shm, in bytes."""

    size: int
    used: int


class Container(msgspec.Struct, frozen=True):
    """What was seen; what could not be read is not held against anybody."""

    oom_group: bool = False
    """The kernel kills the whole container when it kills one process of it for memory."""
    shared_memory: SharedMemory | None = None
    sees_other_users: bool = True
    """/proc of another user's process can be read: CAP_SYS_PTRACE, or root's without any restriction."""


def look(root: Path = Path("/")) -> Container:
    """This container, as far as it lets itself be read."""
    return Container(
        oom_group=any(_text(path) == "1" for path in _oom_group_files(root)),
        shared_memory=_shared_memory(root / "dev/shm"),
        sees_other_users=_has_capability(_text(root / "proc/self/status"), CAP_SYS_PTRACE),
    )


def warnings(container: Container, units: Sequence[Unit], local_ranks: int) -> tuple[str, ...]:
    """Each says what, what follows, and what to do. `local_ranks`: of the engine in this pod."""
    found: list[str] = []
    if container.oom_group:
        found.append(
            "memory.oom.group is 1: when one process runs out of memory the kernel kills this whole container, "
            "podvisor included, and nothing is relaunched in place; from Kubernetes 1.32 on the kubelet's "
            "singleProcessOOMKill: true prevents that"
        )
    has_engine = any(unit.engine is not None for unit in units)
    if has_engine and container.shared_memory is not None:
        found += _of_shared_memory(container.shared_memory, local_ranks)
    users = sorted({user for unit in units if (user := unit.service.execution.user) is not None})
    if users and not container.sees_other_users:
        found.append(
            f"CAP_SYS_PTRACE is missing: of units that run as {', '.join(users)} environments, open files and maps "
            "cannot be seen; what escapes from them is found by session and ancestry alone, and what they may hold "
            "is not removed: add the capability SYS_PTRACE, or run them as podvisor's user"
        )
    return tuple(found)


def _of_shared_memory(memory: SharedMemory, local_ranks: int) -> list[str]:
    needed = SHARED_MEMORY_PER_RANK * local_ranks
    if memory.size < needed:
        return [
            f"/dev/shm has {memory.size / GIB:.2f} GiB, less than 1 GiB for each rank of the engine ({local_ranks}): "
            'collectives may die with SIGBUS; mount an emptyDir with medium: "Memory" there'
        ]
    if memory.used > NEARLY_FULL * memory.size:
        return [
            f"/dev/shm is nearly full, {memory.used / GIB:.2f} of {memory.size / GIB:.2f} GiB: collectives may die "
            "with SIGBUS; see whose files are in it"
        ]
    return []


def _oom_group_files(root: Path) -> tuple[Path, ...]:
    """Of our cgroup, whether or not the container has a cgroup namespace of its own."""
    lines = (_text(root / "proc/self/cgroup") or "").splitlines()
    ours = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    mount = root / "sys/fs/cgroup"
    return mount / ours / "memory.oom.group", mount / "memory.oom.group"


def _shared_memory(path: Path) -> SharedMemory | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return SharedMemory(found.f_frsize * found.f_blocks, found.f_frsize * (found.f_blocks - found.f_bfree))


def _has_capability(status: str | None, capability: int) -> bool:
    for line in (status or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return True


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
