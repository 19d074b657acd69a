"""Which shared-memory segments a tree holds. Whose they are to sweep, and when, is not decided here."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from supervisor.process.holders import held_below
from supervisor.process.threads import in_thread_or_here
from supervisor.process.watch import descendants

SHARED_MEMORY = Path("/dev/shm")


async def segments_of(pid: int, directory: Path = SHARED_MEMORY) -> frozenset[Path]:
    """What the process and everything below it have open or mapped there, as far as we may look.

    In a worker thread: reading /proc of a process that hangs in a driver can hang too. Cancelled, it is left behind.
    Raise OSError when descriptors have run out.
    """
    tree = [pid, *(process.pid for process in await descendants(pid))]
    return await in_thread_or_here(partial(held_below, directory, tree), abandon_on_cancel=True)
