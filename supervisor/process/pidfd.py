"""Signals to, and waits for, processes that are not our children.

A number alone may be somebody else's by the time it is used. So: open a pidfd, compare the start time again, and
only then act on the pidfd, which never changes its process (pidfd_open(2)).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable
from contextlib import ExitStack

import trio

from supervisor.process.procfs import Identity, read_stat

WATCHED_AT_ONCE = 64
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
OUT_OF_DESCRIPTORS_SEC = 0.05


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor that is readable once this very process is dead; None if it is dead and reaped already.

    Raise OSError (EMFILE, ENFILE) when descriptors have run out.
    """
    pid, started_ticks = identity
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stat = read_stat(pid)
    if stat is None or stat.started_ticks != started_ticks:
        os.close(pidfd)
        return None
    return pidfd


def signal_process(identity: Identity, signum: int) -> bool:
    """Signal this very process; False if it is gone. Raise PermissionError if it may not be signalled."""
    try:
        pidfd = open_pidfd(identity)
    except OSError as error:
        if error.errno not in OUT_OF_DESCRIPTORS:
            raise
        return _signal_by_number(identity, signum)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def _signal_by_number(identity: Identity, signum: int) -> bool:
    """Next best: between the look and the signal the number could change hands, but a stop must not fail."""
    stat = read_stat(identity[0])
    if stat is None or stat.identity != identity:
        return False
    os.kill(stat.pid, signum)
    return True


def is_reaped(identity: Identity) -> bool:
    """Whether nothing is left of it, not even a zombie. Needs no descriptor to say no."""
    stat = read_stat(identity[0])
    if stat is not None:
        return stat.identity != identity
    try:
        os.kill(identity[0], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


async def wait_all_dead(identities: Iterable[Identity]) -> None:
    """Wait until these are dead: the first `WATCHED_AT_ONCE` of them, so that a crowd cannot eat all descriptors.

    Call it again for the rest. When descriptors have run out it returns after a moment instead.
    """
    with ExitStack() as held:
        pidfds = []
        for identity in identities:
            try:
                pidfd = open_pidfd(identity)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                await trio.sleep(OUT_OF_DESCRIPTORS_SEC)
                break
            if pidfd is not None:
                held.callback(os.close, pidfd)
                pidfds.append(pidfd)
            if len(pidfds) == WATCHED_AT_ONCE:
                break
        async with trio.open_nursery() as nursery:
            for pidfd in pidfds:
                nursery.start_soon(trio.lowlevel.wait_readable, pidfd)
