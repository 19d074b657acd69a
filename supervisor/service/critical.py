"""The descendants without which a unit is dead: finding them, and hearing of the first death.

Processes are known by their names, and nothing tells when one has given itself its own: it has to be looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from supervisor.process.children import Child
from supervisor.process.procfs import ProcessInfo
from supervisor.process.tree import matching
from supervisor.service.processes import Processes

LOOK_AGAIN_SEC = 5.0


async def first_death(
    processes: Processes, child: Child, patterns: Sequence[str], search_sec: float
) -> ProcessInfo | None:
    """The first to die of those that match; None if there are none.

    Found at the first look, or, of a unit of which nothing tells that it has started, within `search_sec`: then by
    looking again until two looks find the same. Cancelled: nobody is watched. Raise OSError.
    """
    until = trio.current_time() + search_sec
    before: frozenset[int] = frozenset()
    while True:
        found = matching(await processes.note_descendants(child), patterns)
        pids = frozenset(process.pid for process in found)
        if trio.current_time() >= until or not patterns or (found and pids == before):
            return await processes.any_death(found) if found else None
        before = pids
        with trio.move_on_after(LOOK_AGAIN_SEC):
            return await processes.any_death(found)
