"""Find out, once at the start, whether we may make cgroups, and clear away those of an earlier life.

Ours is the cgroup2 that we are in when it is the container's, and so holds its process 1, or when nobody is in it but
we and those above us. On a machine that is no pod it usually belongs to others, and then is left alone. We must see
all who are in it: then a second supervisor that lives there (one that was started by `kubectl exec`, say) is known by
the pid in the names of its cgroups, and they are left alone.
"""

from __future__ import annotations

import os
import re
import select
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from supervisor.process import procfs
from supervisor.process.cgroup import PREFIX, is_populated, pids_in, remove, write

CLEARING_SEC = 2.0
"""For what an earlier supervisor left: killed, it ends in milliseconds or hangs in the kernel."""


INVISIBLE, FIRST = 0, 1
"""How cgroup.procs shows a process of another pid namespace; the process with which a container begins and ends."""


class OwnCgroup(msgspec.Struct, frozen=True):
    path: Path | None
    """None: none may be used."""
    words: str
    """For people: which one, or why none."""
    cleared: tuple[str, ...] = ()
    """The cgroups of earlier supervisors that were removed, by name."""
    stuck: tuple[str, ...] = ()
    """Those that cannot be: what lives in them does not end."""


def find_own_cgroup(proc: Path = Path("/proc")) -> OwnCgroup:
    """Blocks for milliseconds, and `CLEARING_SEC` at most where an earlier supervisor left something running."""
    candidates = tuple(_candidates(proc))
    if not candidates:
        return OwnCgroup(None, "no cgroup2 is mounted here")
    refusals = []
    for path in candidates:
        try:
            refusal = _refusal(path)
        except OSError as error:
            refusal = f"{path} cannot be used: {error.strerror}"
        if refusal is None:
            return _cleared(path)
        refusals.append(refusal)
    return OwnCgroup(None, "; ".join(refusals))


def _candidates(proc: Path) -> Iterator[Path]:
    """Where our cgroup is to be seen: at most one for each mount of a cgroup2."""
    try:
        ours = (proc / "self/cgroup").read_text("utf-8", "surrogateescape")
        mounts = (proc / "self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return
    path = next((line.removeprefix("0::") for line in ours.splitlines() if line.startswith("0::")), None)
    if path is None:
        return
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split(" ", 1)[0] != "cgroup2":
            continue
        root, mount = fields.split()[3:5]
        below = PurePosixPath(path)
        if below.is_relative_to(root):
            yield Path(_unescaped(mount)) / below.relative_to(root)


def _unescaped(path: str) -> str:
    """mountinfo writes blanks and such in octal (proc_pid_mountinfo(5))."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _refusal(own: Path) -> str | None:
    """Why it may not be used. Raise OSError: what is needed is not there, or may not be written."""
    present = frozenset(pids_in(own))
    if os.getpid() not in present:
        return f"{own} is not the cgroup that we are in"
    if not (own / "cgroup.kill").exists():
        return f"{own} is the root, which is everybody's, or the kernel is older than 5.14"
    if (kind := (own / "cgroup.type").read_text().strip()) != "domain":
        return f"{own} is of type {kind}"
    if INVISIBLE in present:
        return f"{own} holds processes of another pid namespace"
    if FIRST not in present and not present <= _ourselves_and_above():
        return f"{own} is not this container's, for process 1 is elsewhere, and not ours alone"
    if not (os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)):
        return f"{own} may not be written"
    trial = own / f"{PREFIX}{os.getpid()}.{uuid.uuid4().hex}"
    trial.mkdir()
    trial.rmdir()
    return None


def _ourselves_and_above() -> frozenset[int]:
    found, pid = set[int](), os.getpid()
    while pid and pid not in found and (stat := procfs.read_stat(pid)) is not None:
        found.add(pid)
        pid = stat.parent
    return frozenset(found)


def _cleared(own: Path) -> OwnCgroup:
    """What is there was made by an earlier supervisor, if not by one that lives beside us."""
    living = frozenset(pids_in(own)) - {os.getpid()}
    earlier = [cgroup for cgroup in own.glob(f"{PREFIX}*") if _maker(cgroup) not in living]
    for cgroup in earlier:
        with suppress(OSError):  # it shows in what follows
            write(cgroup / "cgroup.kill", "1")
    deadline = time.monotonic() + CLEARING_SEC
    cleared: list[str] = []
    stuck: list[str] = []
    for cgroup in earlier:
        with suppress(OSError):
            _wait_until_empty(cgroup, deadline)
        (cleared if remove(cgroup) else stuck).append(cgroup.name)
    return OwnCgroup(own, str(own), tuple(cleared), tuple(stuck))


def _maker(cgroup: Path) -> int | None:
    pid = cgroup.name.removeprefix(PREFIX).partition(".")[0]
    return int(pid) if pid.isdecimal() else None


def _wait_until_empty(cgroup: Path, deadline: float) -> None:
    """The kernel tells of every change in cgroup.events. Raise OSError."""
    with (cgroup / "cgroup.events").open() as events:
        changes = select.poll()
        changes.register(events, select.POLLPRI)
        while is_populated(cgroup) and (left := deadline - time.monotonic()) > 0:
            changes.poll(left * 1000)
            events.seek(0)
            events.read()  # what was read is told no more
