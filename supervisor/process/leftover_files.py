"""Files that dead engines left behind: shared-memory segments, lock files, ipc sockets.

A file is removed only if it is surely nobody's: of our uid, matching a pattern or recorded as this engine's, and
no process in sight holds it. A segment that was there before the engine's first start is never its own; that is
known by its inode, not by its age, since clocks are set. A process below us that we cannot look into (another
unit's, as another user) might hold anything, so then nothing is removed. Of strangers beyond our sight nothing can
be known: where /dev/shm is shared with such, only recorded segments are given to us. Everything here blocks; call it
in a worker thread.
"""

from __future__ import annotations

import fcntl
import glob
import os
import socket
import stat
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import msgspec

from supervisor.process import procfs
from supervisor.process.attribution import all_below
from supervisor.process.holders import FileId, who_holds

SHARED_MEMORY = Path("/dev/shm")
"""shm_overview(7)."""


class SharedMemory(msgspec.Struct, frozen=True):
    """Which segments may be this engine's."""

    patterns: tuple[str, ...] = ()
    """fnmatch(3), over the names in /dev/shm."""
    recorded: Mapping[Path, FileId] = msgspec.field(default_factory=dict)
    """Seen open or mapped in this engine's tree (`segments.py`): these need no pattern."""
    before: frozenset[FileId] = frozenset()
    """What was there before the engine's first start."""


class Findings(msgspec.Struct, frozen=True):
    """What may be removed, and what has to stay. Looking changes nothing, so a look may be given up at any time."""

    removable: Mapping[Path, FileId] = msgspec.field(default_factory=dict)
    kept: tuple[str, ...] = ()
    """Each with the reason."""


class Swept(msgspec.Struct, frozen=True):
    removed: tuple[Path, ...]
    failed: tuple[str, ...]


def present_segments() -> frozenset[FileId]:
    """Raise OSError when descriptors have run out."""
    try:
        with os.scandir(SHARED_MEMORY) as entries:
            found = (_status(Path(entry.path)) for entry in entries)
            return frozenset(_file_id(status) for status in found if status is not None)
    except FileNotFoundError:
        return frozenset()


def find_shared_memory(which: SharedMemory, uids: frozenset[int]) -> Findings:
    try:
        names = os.listdir(SHARED_MEMORY)
    except FileNotFoundError:
        return Findings()
    matching = {SHARED_MEMORY / name for name in names if any(fnmatchcase(name, text) for text in which.patterns)}
    paths = {path for path in matching | which.recorded.keys() if _may_be_its_own(path, which)}
    return _unheld(paths, uids)


def find_locks(patterns: Iterable[str], uids: frozenset[int]) -> Findings:
    """Lock files and ipc sockets, by absolute glob(7) patterns. One that is locked or answers is in use."""
    found = _unheld({Path(path) for pattern in patterns for path in glob.glob(pattern)}, uids)
    # Tried on those alone that nobody in sight has open: a lock that we try is held by us for a moment.
    bound = _bound_names()
    in_use = {path for path in found.removable if path.name in bound or _is_locked_or_answers(path)}
    removable = {path: file for path, file in found.removable.items() if path not in in_use}
    return Findings(removable, (*found.kept, *(f"{path}: it is in use" for path in sorted(in_use))))


def find_sockets(patterns: Iterable[str], uids: frozenset[int]) -> Findings:
    """Sockets alone, by absolute glob(7) patterns. Of strangers in such a directory nothing is said."""
    paths = {Path(path) for pattern in patterns for path in glob.glob(pattern)}
    sockets = {path for path in paths if (status := _status(path)) is not None and stat.S_ISSOCK(status.st_mode)}
    return _unheld({path for path in sockets if not _answers(path)}, uids)


def remove(findings: Findings) -> Swept:
    """Remove what was found, if it is still the same file. Not to be left behind in a thread."""
    removed, failed = [], []
    for path, file in findings.removable.items():
        if (status := _status(path)) is None or _file_id(status) != file:
            continue
        try:
            path.unlink()
            removed.append(path)
        except OSError as error:
            failed.append(f"cannot remove {path}: {os.strerror(error.errno or 0).lower()}")
    return Swept(tuple(removed), tuple(failed))


def _unheld(paths: Iterable[Path], uids: frozenset[int]) -> Findings:
    candidates: dict[Path, os.stat_result] = {}
    for path in sorted(paths):
        status = _status(path)
        if status is not None and status.st_uid in uids and _is_plain(status.st_mode):
            candidates[path] = status
    if not candidates:
        return Findings()
    ours = {process.pid for process in all_below(os.getpid(), procfs.scan())}
    held = who_holds({path: _file_id(status) for path, status in candidates.items()})
    closed = [pid for pid in held.unreadable if pid in ours]
    removable, kept = {}, []
    for path, status in candidates.items():
        if (holder := held.by.get(_file_id(status))) is not None:
            kept.append(f"{path}: {_named(holder)} has it")
        elif (suspect := next((pid for pid in closed if _might_open(pid, status)), None)) is not None:
            kept.append(f"{path}: {_named(suspect)} may have it and cannot be looked into")
        else:
            removable[path] = _file_id(status)
    return Findings(removable, tuple(kept))


def _might_open(pid: int, file: os.stat_result) -> bool:
    """Whether the permissions let this process have the file at all."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return False
    return uid in (0, file.st_uid) or bool(file.st_mode & 0o066)


def _file_id(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


def _is_locked_or_answers(path: Path) -> bool:
    """Whether somebody uses it who may be out of sight: locks and sockets reach across namespaces."""
    status = _status(path)
    if status is None:
        return False
    if stat.S_ISSOCK(status.st_mode):
        return _answers(path)
    return stat.S_ISREG(status.st_mode) and _is_locked(path)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # busy, of another type, not permitted: alive for all we know
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _may_be_its_own(path: Path, which: SharedMemory) -> bool:
    status = _status(path)
    if status is None or _file_id(status) in which.before:
        return False
    return which.recorded.get(path, _file_id(status)) == _file_id(status)


def _bound_names() -> frozenset[str]:
    """Of all sockets in files that somebody has bound, in this network namespace: not all of them listen already."""
    try:
        rows = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return frozenset()
    paths = (row.split(maxsplit=7) for row in rows)
    return frozenset(PurePath(row[7]).name for row in paths if len(row) == 8)


def _named(pid: int) -> str:
    found = procfs.read_stat(pid)
    return f"process {pid}" + (f" ({found.name})" if found else "")
