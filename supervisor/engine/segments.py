"""Which shared-memory segments are this engine's: those that its processes alone were seen to have open or mapped.

A segment in /dev/shm has no owner that outlives the process that made it, and KV stores and weight daemons keep
theirs in the same directory; so what may be swept after a death is recorded while the engine lives (design 8).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import trio

from supervisor.process.holders import FileId
from supervisor.service.service import Service
from supervisor.unit.states import RunState

SegmentsOf = Callable[[int], Awaitable[Mapping[Path, FileId]]]
"""`supervisor.process.segments.segments_of` in this container."""

LOOK_SEC = 0.5
"""The engine may hang in a driver, and its /proc with it."""

log = logging.getLogger(__name__)


class Segments:
    """One per engine. What earlier incarnations held stays recorded while it is there."""

    def __init__(self, service: Service, segments_of: SegmentsOf) -> None:
        self.recorded: Mapping[Path, FileId] = {}
        self._service = service
        self._segments_of = segments_of

    async def watch(self) -> None:
        """Until cancelled: look once whenever an invocation has become ready, and by then mapped what it needs."""
        looked_at = 0
        while True:
            changed = self._service.changed.next()
            state = self._service.state
            if state.state is RunState.ACTIVE and state.invocation != looked_at and state.pid is not None:
                looked_at = state.invocation
                await self._record(state.pid)
            await changed.wait()

    async def look(self) -> None:
        """Once more before it is stopped, for what it made since it became ready. Takes `LOOK_SEC` at most."""
        if (pid := self._service.state.pid) is not None:
            with trio.move_on_after(LOOK_SEC):
                await self._record(pid)

    async def _record(self, pid: int) -> None:
        try:
            held = await self._segments_of(pid)
        except OSError as error:
            log.warning("cannot see which shared memory the engine holds: %s; after its death it stays", error)
            return
        self.recorded = {path: file for path, file in self.recorded.items() if path.exists()} | dict(held)
