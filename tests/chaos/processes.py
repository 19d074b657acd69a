"""Who lives in a container, by the kernel's word. Everything here blocks for a millisecond or two.

The first process of a pid namespace is the ancestor of all others in it, orphans included, so its tree is everybody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.chaos.seen import ENGINE, STORE, SUPERVISOR, Process

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
LISTENING = "0A"
"""As /proc/net/tcp tells that state."""
BOOT = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
"""Taken once: a process has one start."""


def living(first: int) -> tuple[tuple[Process, ...], int]:
    """(those that live, how many zombies) of the container whose first process that is; a zombie is nobody."""
    found, zombies = [], 0
    for pid in _tree(first):
        try:
            fields = (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
            environment = _environment(pid)
            words = (PROC / f"{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] in "ZX":
            zombies += 1
            continue
        epoch = environment.get("PODVISOR_EPOCH")
        unit = SUPERVISOR if pid == first else _unit(environment, words)
        found.append(Process(pid, _wall_clock(int(fields[19])), unit, int(epoch) if epoch else None))
    return tuple(found), zombies


def is_still(process: Process) -> bool:
    """Whether that very process lives, zombies excepted."""
    try:
        fields = (PROC / f"{process.pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX" and _wall_clock(int(fields[19])) == process.started


def listeners(processes: Iterable[Process]) -> Mapping[int, frozenset[int]]:
    """Pids by the TCP port on which they listen, in whatever network they are."""
    found: dict[int, set[int]] = {}
    for process in processes:
        ports = _listening(process.pid)
        for descriptor in _descriptors(process.pid):
            if descriptor in ports:
                found.setdefault(ports[descriptor], set()).add(process.pid)
    return {port: frozenset(pids) for port, pids in found.items()}


def _descriptors(pid: int) -> Iterator[str]:
    """What each leads to; a request that ends takes its own along while we look."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for entry in (PROC / f"{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield os.readlink(entry)


def _listening(pid: int) -> Mapping[str, int]:
    """Ports by the name that a descriptor of the listening socket has, in that process's network."""
    try:
        rows = [row.split() for row in (PROC / f"{pid}/net/tcp").read_text().splitlines()[1:]]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING}


def _tree(first: int) -> Iterator[int]:
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        yield pid
        try:
            for task in (PROC / f"{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue


def _environment(pid: int) -> Mapping[str, str]:
    pairs = (PROC / f"{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs)


def _unit(environment: Mapping[str, str], words: list[str]) -> str:
    """Redis writes over its environment."""
    if environment.get("PODVISOR_UNIT") == ENGINE:
        return ENGINE
    return STORE if words[0].startswith("redis-server") else " ".join(words).strip() or "a process without a name"


def _wall_clock(ticks: int) -> float:
    return BOOT + ticks / TICKS
