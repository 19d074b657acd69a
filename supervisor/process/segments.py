"""Which shared-memory segments are a tree's own. Whose they are to sweep, and when, is not decided here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from supervisor.process import procfs
from supervisor.process.attribution import all_below
from supervisor.process.disk import Disk
from supervisor.process.holders import FileId, all_pids, held_by

SHARED_MEMORY = Path("/dev/shm")


async def segments_of(pid: int, directory: Path = SHARED_MEMORY, disk: Disk | None = None) -> Mapping[Path, FileId]:
    """What the process and everything below it, and nobody else in sight, have open or mapped there.

    In a worker thread: reading /proc of a process that hangs in a driver can hang too. Cancelled, it is left behind.
    Raise OSError when descriptors have run out.
    """
    return await (disk or Disk()).ask_or_here("segments", partial(_segments_of, pid, directory))


def _segments_of(pid: int, directory: Path) -> Mapping[Path, FileId]:
    held = held_by(directory, tuple(all_pids()))
    # Asked last: who is below it now was so when it was looked into, or has only just been forked there.
    tree = {pid, *(stat.pid for stat in all_below(pid, procfs.scan()))}
    own = {path: file for owner in held.keys() & tree for path, file in held[owner].items()}
    shared = {path for owner in held.keys() - tree for path in held[owner]}
    return {path: file for path, file in own.items() if path not in shared}
