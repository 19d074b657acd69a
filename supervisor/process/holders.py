"""Who has a file, a mapping or a port: found by walking /proc. Everything here blocks; call it in a worker thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath

import msgspec

from supervisor.process import procfs
from supervisor.process.procfs import ProcessInfo

FileId = tuple[int, int]
"""(device, inode)."""


class Held(msgspec.Struct, frozen=True):
    """What a walk over all processes in sight has found."""

    by: dict[FileId, int]
    """Of each file asked for that somebody has open or mapped, one process that has."""
    unreadable: tuple[int, ...]
    """Processes that may hold anything: we are not permitted to look (it takes CAP_SYS_PTRACE)."""


def who_holds(files: Mapping[Path, FileId]) -> Held:
    """Raise OSError when descriptors have run out."""
    wanted, names = frozenset(files.values()), frozenset(path.name for path in files)
    by: dict[FileId, int] = {}
    unreadable = []
    for pid in all_pids():
        try:
            by.update((file, pid) for file in _files_of(pid, names) if file in wanted)
        except PermissionError:
            unreadable.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return Held(by, tuple(unreadable))


def held_by(directory: Path, pids: Iterable[int]) -> dict[int, dict[Path, FileId]]:
    """Which files in a directory each of these processes has open or mapped, as far as we may look.

    Raise OSError when descriptors have run out.
    """
    try:
        with os.scandir(directory) as entries:
            present = {(entry.stat().st_dev, entry.inode()): Path(entry.path) for entry in entries}
    except FileNotFoundError:
        return {}
    names = frozenset(path.name for path in present.values())
    found: dict[int, dict[Path, FileId]] = {}
    for pid in pids if present else ():
        try:
            found[pid] = {present[file]: file for file in _files_of(pid, names) if file in present}
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return found


def port_holders(number: int) -> tuple[ProcessInfo, ...]:
    """The processes with a TCP socket on this local port, as far as we may look; nobody has one in TIME_WAIT."""
    sockets = {f"socket:[{inode}]" for inode in _socket_inodes(number)}
    found = []
    for pid in all_pids() if sockets else ():
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        if any(_target(pid, descriptor) in sockets for descriptor in descriptors):
            stat = procfs.read_stat(pid)
            if stat is not None:
                found.append(ProcessInfo(pid, stat.started_ticks, stat.name, procfs.command_of(pid)))
    return tuple(found)


def all_pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())


def _files_of(pid: int, names: AbstractSet[str]) -> Iterator[FileId]:
    """What it has mapped, and what it has open under one of these names.

    By its name first, which only /proc is asked for: whoever asks for the inode asks the file's own file system, and
    one process in sight with a descriptor on a dead mount would take every look with it.
    Raise PermissionError if we may not look, FileNotFoundError or ProcessLookupError if the process is gone.
    """
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        link = f"/proc/{pid}/fd/{descriptor}"
        try:
            name = PurePath(os.readlink(link)).name
            if name not in names and name.removesuffix(" (deleted)") not in names:
                continue
            status = os.stat(link)
        except PermissionError:
            raise
        except OSError:
            continue  # closed meanwhile; or of that name on a mount that is dead, and so none of those looked for
        yield status.st_dev, status.st_ino
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            _, _, _, device, inode, *_ = line.split(maxsplit=5)
            if inode != b"0":
                major, _, minor = device.partition(b":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _socket_inodes(port: int) -> Iterator[int]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue  # no IPv6 here
        for row in rows:
            columns = row.split()
            if int(columns[1].rpartition(":")[2], 16) == port and columns[9] != "0":
                yield int(columns[9])


def _target(pid: int, descriptor: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None
