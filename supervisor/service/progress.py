"""Signs that a start is getting somewhere, measured once a second while a unit loads (design 2, StartStallSec).

/proc has no events, so this looks; it ends with the loading. What a sign is worth is decided in
`supervisor.unit.start_clock`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec
import trio

from supervisor.process import procfs
from supervisor.process.attribution import all_below
from supervisor.process.child import Child
from supervisor.process.threads import in_thread_or_here
from supervisor.unit.start_clock import ProgressKind

PERIOD_SEC = 1.0
READ_BYTES = 16 * 1024 * 1024
CPU_SHARE = 0.05
"""Of one core: less is the idling of a program that waits."""
PATTERNS_KEPT = 16

_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_WORD = re.compile(r"[^\W\d_]+")


class NewLines:
    """Tells whether a log line says something new: not the words of one of the last lines with other numbers in it.

    A progress bar therefore says something once; whether it moves is seen from what the tree reads.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_new(self, line: str) -> bool:
        shape = " ".join(_WORD.findall(_HEX.sub("", line)))
        known = shape in self._seen
        self._seen[shape] = None
        self._seen.move_to_end(shape)
        if len(self._seen) > PATTERNS_KEPT:
            self._seen.popitem(last=False)
        return bool(shape) and not known


class Usage(msgspec.Struct, frozen=True):
    """What one process has used since it began."""

    read_bytes: int
    cpu_ticks: int


def grown(before: Mapping[procfs.Identity, Usage], after: Mapping[procfs.Identity, Usage]) -> Usage:
    """What a tree used between two looks; what the ended had used is not subtracted."""
    read_bytes = cpu_ticks = 0
    for identity, now in after.items():
        earlier = before.get(identity, Usage(0, 0))
        read_bytes += max(0, now.read_bytes - earlier.read_bytes)
        cpu_ticks += max(0, now.cpu_ticks - earlier.cpu_ticks)
    return Usage(read_bytes, cpu_ticks)


async def watch_usage(child: Child, tell: Callable[[ProgressKind], None]) -> None:
    """Report reading and computing of the main process and all below it, until cancelled."""
    before = await _look(child.main.pid)
    unreported = 0
    while True:
        await trio.sleep(PERIOD_SEC)
        after = await _look(child.main.pid)
        used = grown(before, after)
        before = after
        unreported += used.read_bytes
        if unreported >= READ_BYTES:
            unreported = 0
            tell(ProgressKind.WORK)
        elif used.cpu_ticks >= CPU_SHARE * PERIOD_SEC * procfs.CLOCK_TICKS:
            tell(ProgressKind.CPU)


async def _look(pid: int) -> dict[procfs.Identity, Usage]:
    # In a thread, because a process that hangs in a driver can make the reading hang too.
    return await in_thread_or_here(partial(_usage_below, pid), abandon_on_cancel=True)


def _usage_below(pid: int) -> dict[procfs.Identity, Usage]:
    try:
        stats = procfs.scan()
    except OSError:
        return {}  # descriptors have run out: no sign of progress is better than no supervisor
    tree: Iterable[procfs.ProcessStat] = all_below(pid, stats)
    if pid in stats:
        tree = (stats[pid], *tree)
    return {stat.identity: Usage(_read_bytes(stat.pid), stat.cpu_ticks) for stat in tree}


def _read_bytes(pid: int) -> int:
    """From storage or by read(2), whichever is more: weights are mapped by some engines and read by others.

    0 where we may not look (another user's process needs CAP_SYS_PTRACE).
    """
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            fields = dict(line.split(": ", 1) for line in file)
    except OSError:
        return 0  # gone, or not ours to read
    return max(int(fields.get("rchar", 0)), int(fields.get("read_bytes", 0)))
