"""What to execute, and the words for people when it cannot be executed.

Everything short of the fork itself: who the process will be, which limits it gets, and why exec failed.
The fork stands in `children.py`.
"""

from __future__ import annotations

import errno
import grp
import math
import os
import pwd
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from supervisor.unit.accounts import id_number
from supervisor.unit.model import ResourceLimit

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""The exit statuses of sh(1), which tini and dumb-init use too."""

_IO_CLASSES = {"none": 0, "realtime": 1, "best-effort": 2, "idle": 3}
"""ioprio_set(2)."""


class Spawn(msgspec.Struct, frozen=True):
    """One process to start; everything is explicit, nothing is taken from the supervisor's surroundings."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str | None = None
    user: str | int | None = None
    group: str | int | None = None
    """None: the user's own group."""
    supplementary_groups: tuple[str | int, ...] = ()
    """Beside those the group database gives the user."""
    umask: int | None = None
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    """Descriptors; None: /dev/null. Never the supervisor's own: who reads those may stall, and this process with it."""
    blocked_signals: frozenset[int] = frozenset()
    """Held back from the start; the process may let them through."""
    stays_in_session: bool = False
    """Only a process group of its own: for a command that is lent our terminal, which belongs to our session."""
    limits: tuple[ResourceLimit, ...] = ()
    nice: int | None = None
    oom_score_adj: int | None = None
    cpu_affinity: frozenset[int] | None = None
    io_scheduling_class: str | None = None
    """`none`, `realtime`, `best-effort` or `idle`."""
    contained: bool = False
    """Into a cgroup of its invocation's own, before its program runs, where we can make one (`cgroup.py`)."""

    @property
    def has_settings(self) -> bool:
        """Something is to be set on the process from outside (`apply_settings`)."""
        each = (self.nice, self.oom_score_adj, self.cpu_affinity, self.io_scheduling_class)
        return bool(self.limits) or any(setting is not None for setting in each)


class SpawnError(Exception):
    """The process could not be started; nothing of it is left.

    `reason` is a sentence for people, `exit_status` what a shell would have answered: 127 for a program that
    does not exist, 126 for everything else.
    """

    def __init__(self, reason: str, exit_status: int = NOT_EXECUTABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = exit_status


class Credentials(msgspec.Struct, frozen=True):
    """The numbers to become; None: stay as we are."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] | None = None


def resolve_credentials(spawn: Spawn) -> Credentials:
    """Numbers for the names. A user always brings its own groups: never a plain uid with root's groups left.

    Raise SpawnError for a name the databases do not know, for a bare number without a group, and for one that is none.
    """
    if spawn.user is None and spawn.group is None and not spawn.supplementary_groups:
        return Credentials()
    extra = tuple(_group_number(group) for group in spawn.supplementary_groups)
    if spawn.user is None:
        group = None if spawn.group is None else _group_number(spawn.group)
        return Credentials(group=group, groups=extra if extra or group is not None else None)
    entry = _user_entry(spawn.user)
    if entry is None:
        if spawn.group is None:
            raise SpawnError(
                f"cannot become user {spawn.user}: the user database does not know this number; set Group as well"
            )
        return Credentials(int(spawn.user), _group_number(spawn.group), extra)
    group = entry.pw_gid if spawn.group is None else _group_number(spawn.group)
    if (entry.pw_uid, group, extra) == (os.geteuid(), os.getegid(), ()):
        return Credentials()  # what we are already: an unprivileged supervisor may not even ask for it
    return Credentials(entry.pw_uid, group, tuple(dict.fromkeys((*os.getgrouplist(entry.pw_name, group), *extra))))


def _user_entry(user: str | int) -> pwd.struct_passwd | None:
    """None: a number without an entry."""
    number = _number("become user", user)
    try:
        return pwd.getpwnam(str(user)) if number is None else pwd.getpwuid(number)
    except KeyError:
        if number is not None:
            return None
        raise SpawnError(f"cannot become user {user!r}: there is no such user") from None


def uid_of(user: str | int | None) -> int:
    """Ours for None, and for a name that the database does not know: its spawn fails with the better message."""
    if user is None:
        return os.geteuid()
    try:
        entry = _user_entry(user)
    except SpawnError:
        return os.geteuid()
    return int(user) if entry is None else entry.pw_uid


def _group_number(group: str | int) -> int:
    number = _number("use group", group)
    if number is not None:
        return number
    try:
        return grp.getgrnam(str(group)).gr_gid
    except KeyError:
        raise SpawnError(f"cannot use group {group!r}: there is no such group") from None


def _number(verb: str, written: str | int) -> int | None:
    try:
        return id_number(written)
    except ValueError as error:
        raise SpawnError(f"cannot {verb} {written!r}: {error}") from None


def apply_settings(pid: int, spawn: Spawn) -> None:
    """Set limits and priorities on a process that waits for it (`handover.py`).

    Raise SpawnError: the caller ends the process.
    """
    for limit in spawn.limits:
        _apply_limit(pid, limit)
    if spawn.nice is not None:
        with _setting(f"Nice = {spawn.nice}"):
            os.setpriority(os.PRIO_PROCESS, pid, spawn.nice)
    if spawn.cpu_affinity is not None:
        with _setting(f"CPUAffinity = {sorted(spawn.cpu_affinity)}"):
            os.sched_setaffinity(pid, spawn.cpu_affinity)
    if spawn.oom_score_adj is not None:
        with _setting(f"OOMScoreAdjust = {spawn.oom_score_adj}"), open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write(str(spawn.oom_score_adj))
    if spawn.io_scheduling_class is not None:
        with _setting(f"IOSchedulingClass = {spawn.io_scheduling_class!r}"):
            _set_io_class(pid, _IO_CLASSES[spawn.io_scheduling_class])


def _set_io_class(pid: int, io_class: int) -> None:
    import psutil  # the only one who needs it on the way to a first exec, and few units set this

    try:
        psutil.Process(pid).ionice(io_class)
    except psutil.NoSuchProcess:
        pass  # it has already ended and been seen to: there is nothing left to set
    except psutil.AccessDenied as error:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from error


@contextmanager
def _setting(assignment: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise SpawnError(f"cannot set {assignment}: {_words(error)}") from error


def _apply_limit(pid: int, limit: ResourceLimit) -> None:
    number = getattr(resource, f"RLIMIT_{limit.name}", None)
    if number is None:
        raise SpawnError(f"cannot set Limit{limit.name}: this system knows no such limit")
    with _setting(f"Limit{limit.name}"):
        soft_now, hard_now = resource.prlimit(pid, number)
    wanted = (_limit_number(limit.soft, soft_now), _limit_number(limit.hard, hard_now))
    try:
        resource.prlimit(pid, number, wanted)
    except (OSError, ValueError, OverflowError) as error:
        asked, allowed = ":".join(map(_limit_words, wanted)), _limit_words(hard_now)
        raise SpawnError(
            f"cannot set Limit{limit.name} = {asked}: {_words(error)} (the hard limit here is {allowed};"
            " going above it needs CAP_SYS_RESOURCE)"
        ) from error


def _limit_number(wanted: float | None, present: int) -> int:
    if wanted is None:
        return present
    return resource.RLIM_INFINITY if math.isinf(wanted) else int(wanted)


def _limit_words(value: int) -> str:
    return "infinity" if value == resource.RLIM_INFINITY else str(value)


def explain(error: Exception, spawn: Spawn, credentials: Credentials) -> SpawnError:
    """Turn what `Popen` raised into a sentence. Looks at the file system: call it from a worker thread."""
    program = spawn.argv[0]
    if not isinstance(error, OSError):
        return SpawnError(f"cannot execute {program!r}: {_words(error)}")
    directory = spawn.working_directory
    if directory is not None and not os.path.isdir(directory):
        return SpawnError(f"cannot enter working directory {directory!r}: no such directory")
    if directory is not None and error.errno == errno.EACCES and error.filename == directory:
        return SpawnError(f"cannot enter working directory {directory!r}: permission denied")
    if error.errno == errno.EPERM and credentials != Credentials():
        return SpawnError(f"cannot become user {spawn.user}, group {spawn.group}: not permitted (needs CAP_SETUID"
                          " and CAP_SETGID)")  # fmt: skip
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _not_found(spawn)
    return SpawnError(f"cannot execute {program!r}: {_exec_words(error, _path_of(spawn))}")


def _not_found(spawn: Spawn) -> SpawnError:
    program = spawn.argv[0]
    if "/" not in program:
        searched = spawn.environment.get("PATH", os.defpath)
        return SpawnError(f"cannot execute {program!r}: not found in PATH ({searched})", NOT_FOUND)
    if os.path.exists(_path_of(spawn)):
        return SpawnError(f"cannot execute {program!r}: the interpreter or loader it names does not exist", NOT_FOUND)
    return SpawnError(f"cannot execute {program!r}: no such file", NOT_FOUND)


def _exec_words(error: OSError, path: str) -> str:
    if error.errno == errno.EACCES and os.path.isdir(path):
        return "it is a directory"
    if error.errno == errno.EACCES and os.path.isfile(path):
        return f"permission denied (its mode is {os.stat(path).st_mode & 0o7777:04o})"
    if error.errno == errno.ENOEXEC:
        return "not a program this machine can run (no #! line, or built for another processor)"
    if error.errno == errno.EAGAIN:
        return "no process can be forked: the limit on processes is reached (pids cgroup or LimitNPROC)"
    return _words(error)


def _path_of(spawn: Spawn) -> str:
    return os.path.join(spawn.working_directory or "", spawn.argv[0])


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    if isinstance(error, ValueError):
        return str(error)  # a NUL or a "=" where none may be
    return f"{type(error).__name__}: {error}"
