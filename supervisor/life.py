"""The mark that a life of this supervisor leaves in its state directory, and takes away when it ends in order.

Who is killed cannot say so: the kernel kills a container as a whole for memory, and a kubelet when its patience is
over. So the next life finds the mark (design 8, Memory and devices). The directory has to survive the container.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from supervisor import wire
from supervisor.process import procfs

log = logging.getLogger(__name__)

FILE = "life.json"
LOCK = "life.lock"
KILLED = "killed"


class DirectoryTaken(Exception):
    """Another supervisor lives with this state directory: the terms, epochs and marks of both would be mixed up."""


class Mark(msgspec.Struct, frozen=True):
    boot_id: str
    pid: int
    started_ticks: int
    """Since the machine's start, so that a pid that is in use again tells nothing."""
    since: str


@contextmanager
def alone_in(state_dir: Path) -> Iterator[None]:
    """Nobody else can be meanwhile. Raise DirectoryTaken naming the holder.

    The kernel gives it up with the process, however that ends. A disk that fails, or that knows no locks, is logged; it
    keeps nobody from starting.
    """
    descriptor = _locked(state_dir)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(state_dir: Path) -> int | None:
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("cannot lock %s: %s; another supervisor with it would not be noticed", state_dir, error)
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise DirectoryTaken(_taken(state_dir)) from error
        log.warning("cannot lock %s: %s; another supervisor with it would not be noticed", state_dir, error)
        return None
    return descriptor


def _taken(state_dir: Path) -> str:
    holder = _read(state_dir / FILE)
    who = f" (pid {holder.pid}, since {holder.since})" if holder is not None else ""
    return f"{state_dir}: another supervisor lives with this directory{who}; give each its own: supervisor.state_dir"


def begin(state_dir: Path, boot_id: str) -> str | None:
    """Leave the mark. KILLED if that of a life is there which did not end in order; None otherwise.

    A disk that fails is logged; it keeps nobody from starting.
    """
    path, ours = state_dir / FILE, procfs.read_stat(os.getpid())
    before = _read(path)
    mark = Mark(boot_id, os.getpid(), ours.started_ticks if ours else 0, wire.timestamp(datetime.now(UTC)))
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(mark))
        os.replace(fresh, path)
    except OSError as error:
        log.warning("cannot write %s: %s; a container that is killed will not be told from one that ended", path, error)
    if before is None or _lives(before):
        return None
    log.warning(
        "the previous container was killed: it began at %s and did not end in order; out of memory, a grace period "
        "that was too short, or a node that went down",
        before.since,
        extra={"event": "previous-container-killed", "previous_boot_id": before.boot_id},
    )
    return KILLED


def end(state_dir: Path, boot_id: str) -> None:
    """Take the mark away, unless it is another's."""
    path = state_dir / FILE
    mark = _read(path)
    if mark is None or mark.boot_id != boot_id:
        return
    try:
        path.unlink()
    except OSError as error:
        log.warning("cannot remove %s: %s; the next start will take this one for killed", path, error)


def _lives(mark: Mark) -> bool:
    """It is another supervisor with this state directory, on this machine and in this PID namespace."""
    found = procfs.read_stat(mark.pid)
    return mark.pid != os.getpid() and found is not None and found.started_ticks == mark.started_ticks


def _read(path: Path) -> Mark | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None
