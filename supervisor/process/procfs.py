"""What /proc says about processes, read without deciding anything.

`stat` is safe to read at any time. `environ`, `cmdline` and `maps` take the target's memory lock, so that
reading them from a process that hangs in a driver can hang as well: call those from a worker thread only.
A process that ends while it is read is no error: it is simply not in the answer.
"""

from __future__ import annotations

import errno
import os
import time

import msgspec

Identity = tuple[int, int]
"""(pid, start time in ticks): never the same for two processes, even when the number is used again."""

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessStat(msgspec.Struct, frozen=True):
    """The part of /proc/PID/stat by which trees are told apart; see proc_pid_stat(5)."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started_ticks: int
    cpu_ticks: int = 0
    """Used by all its threads since it began."""

    @property
    def identity(self) -> Identity:
        return self.pid, self.started_ticks

    @property
    def alive(self) -> bool:
        """False for a zombie. A process whose *first thread* alone has ended also shows Z, and lives."""
        return self.state not in "ZXx" or self.threads > 1


class ProcessInfo(msgspec.Struct, frozen=True):
    """One live process, named for people and for patterns."""

    pid: int
    started_ticks: int
    name: str
    command: str
    """The command line with its arguments joined by blanks, as `ps` shows it; empty if it cannot be read."""


def boot_ticks() -> int:
    """Now, on the clock of `ProcessStat.started_ticks` (rounded down as the kernel does)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * CLOCK_TICKS // 1_000_000_000


def parse_stat(text: bytes) -> ProcessStat:
    # The name may hold blanks and parentheses of its own, so only the outermost ones count.
    head, _, tail = text.rpartition(b")")
    pid, _, name = head.partition(b" (")
    field = tail.split()
    return ProcessStat(
        pid=int(pid),
        name=name.decode("utf-8", "replace"),
        state=field[0].decode(),
        parent=int(field[1]),
        group=int(field[2]),
        session=int(field[3]),
        threads=int(field[17]),
        started_ticks=int(field[19]),
        cpu_ticks=int(field[11]) + int(field[12]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """None: there is no such process (any more)."""
    text = _read(f"/proc/{pid}/stat")
    return parse_stat(text) if text else None


def scan() -> dict[int, ProcessStat]:
    """Every process in sight, one after the other: not a snapshot, so ask again until two answers agree.

    Raise OSError (EMFILE, ENFILE) when descriptors have run out: then nothing can be said of those left out.
    """
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (text := _read_if_there(f"/proc/{entry}/stat")):
            stat = parse_stat(text)
            found[stat.pid] = stat
    return found


def children_of_ours() -> tuple[int, ...]:
    """Direct children of this process, zombies included.

    The kernel lists them by the *thread* that forked (proc_tid_children(5)), and not at all when it was built
    without CONFIG_PROC_CHILDREN: then every process is asked for its parent.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return tuple(stat.pid for stat in scan().values() if stat.parent == os.getpid())
    listed: list[bytes] = []
    for thread in os.listdir("/proc/self/task"):
        listed += (_read(f"/proc/self/task/{thread}/children") or b"").split()
    return tuple(int(pid) for pid in listed)


def environment_value(pid: int, name: str) -> str | None:
    """What `name` was when the process last called exec; None if it is not set or cannot be known.

    setproctitle(3) writes its title over this memory: an engine's renamed workers may carry nothing at all.
    """
    for assignment in (_read(f"/proc/{pid}/environ") or b"").split(b"\0"):
        key, separator, value = assignment.partition(b"=")
        if separator and key == name.encode():
            return os.fsdecode(value)
    return None


def soft_realtime_limit(pid: int) -> int | None:
    """RLIMIT_RTTIME in microseconds; None if it is unlimited or the process is gone. Shown to every user."""
    for line in (_read(f"/proc/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max realtime timeout"):
            soft = line.split()[3]
            return None if soft == b"unlimited" else int(soft)
    return None


def command_of(pid: int) -> str:
    """For people and patterns: bytes that are no text are escaped, because what is told goes out as JSON."""
    line = (_read(f"/proc/{pid}/cmdline") or b"").rstrip(b"\0").replace(b"\0", b" ")
    return line.decode("utf-8", "backslashreplace")


def _read(path: str) -> bytes | None:
    """The whole file, or None: gone, not ours to read, or no descriptor left to read it."""
    try:
        return _read_all(path)
    except OSError:
        return None


def _read_if_there(path: str) -> bytes | None:
    """The whole file, or None: gone, or not ours to read. Raise OSError when descriptors have run out."""
    try:
        return _read_all(path)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None


def _read_all(path: str) -> bytes:
    """With a bare descriptor, because a scan reads hundreds. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
