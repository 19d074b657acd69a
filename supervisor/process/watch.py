"""Know what runs below a process, and learn at once when one of them dies.

For CriticalProcesses: an engine is dead when one of its ranks is, whatever its main process says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial

import trio

from supervisor.process import procfs
from supervisor.process.attribution import all_below
from supervisor.process.children import Child
from supervisor.process.pidfd import open_pidfd
from supervisor.process.procfs import ProcessInfo
from supervisor.process.threads import in_thread_or_here


async def descendants(pid: int) -> tuple[ProcessInfo, ...]:
    """All live processes below this one, as far as their parents still live.

    Raise OSError when descriptors have run out.
    """
    return await in_thread_or_here(partial(_descendants, pid), abandon_on_cancel=True)


async def note_descendants(child: Child) -> tuple[ProcessInfo, ...]:
    """Remember who is below a unit's main process, so that a later stop finds them even when their parents died.

    Worth doing once the unit is ready: what daemonised with a cleared environment bears no other mark.
    """
    found = await descendants(child.main.pid)
    child.seen.update((process.pid, process.started_ticks) for process in found)
    return found


def matching(processes: Iterable[ProcessInfo], patterns: Iterable[str]) -> tuple[ProcessInfo, ...]:
    """Those of which the name or the command line matches one of the fnmatch(3) patterns.

    The kernel cuts names at 15 bytes, so what setproctitle(3) wrote is found in the command line.
    """
    wanted = tuple(patterns)
    return tuple(
        process
        for process in processes
        if any(fnmatchcase(text, pattern) for pattern in wanted for text in (process.name, process.command))
    )


async def wait_any_death(processes: Iterable[ProcessInfo]) -> ProcessInfo:
    """The first of them to die; one that is dead already comes back at once. Of none, wait for ever.

    Holds one pidfd each, opened before the first wait, so that no death is missed. Raise OSError (EMFILE) when
    descriptors run out.
    """
    dead: list[ProcessInfo] = []
    with ExitStack() as held:
        watched = []
        for process in processes:
            pidfd = open_pidfd((process.pid, process.started_ticks))
            if pidfd is None:
                return process
            held.callback(os.close, pidfd)
            watched.append((process, pidfd))
        async with trio.open_nursery() as nursery:

            async def watch(process: ProcessInfo, pidfd: int) -> None:
                await trio.lowlevel.wait_readable(pidfd)
                dead.append(process)
                nursery.cancel_scope.cancel(reason=f"process {process.pid} has died")

            for process, pidfd in watched:
                nursery.start_soon(watch, process, pidfd)
            if not watched:
                await trio.sleep_forever()
    return dead[0]


def _descendants(pid: int) -> tuple[ProcessInfo, ...]:
    return tuple(
        ProcessInfo(stat.pid, stat.started_ticks, stat.name, procfs.command_of(stat.pid))
        for stat in all_below(pid, procfs.scan())
    )
