"""A log file of a unit: written and open while somebody's output goes there.

Several may write it at once: a command runs beside the unit, and a reload leaves a running process the file it began
with. Whoever stops last closes it. `rotation.py` says what is done with the file itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from supervisor.process.rotation import RotatingFile
from supervisor.process.sink import Sink
from supervisor.process.threads import in_thread_or_here

FLUSH_FILE_SEC = 2.0
"""For the rest, once nobody writes any more: a disk may hang."""


class FileSink(Sink):
    def __init__(self, path: str, rotate_size: int, rotate_keep: int, lose: Callable[[int], None]) -> None:
        self._file = RotatingFile(Path(path), rotate_size, rotate_keep)
        super().__init__(self._file.write_all, path, lose=lose)
        self._holders = 0

    @property
    def is_held(self) -> bool:
        return self._holders > 0

    def resize(self, rotate_size: int, rotate_keep: int) -> None:
        self._file.resize(rotate_size, rotate_keep)

    def reopen(self) -> None:
        self._file.reopen()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Inside, what is offered is written. The last to leave writes the rest and closes the file.

        Leaving takes `FLUSH_FILE_SEC` at most, and so does a cancel.
        """
        self._holders += 1
        holds, writing = True, trio.CancelScope(shield=True)

        async def write() -> None:
            with writing:
                while holds:
                    await self._filled.wait()
                    await self._write_batch()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                try:
                    yield
                finally:
                    holds = False
                    self._filled.set()
                    writing.deadline = trio.current_time() + FLUSH_FILE_SEC
        finally:
            self._holders -= 1
            if not self.is_held:
                with trio.CancelScope(deadline=writing.deadline, shield=True):
                    await self._finish()

    async def _finish(self) -> None:
        """Whoever holds it anew meanwhile opens it anew. Cancelled: what is left is theirs to write and to close."""
        while self._items:
            await self._write_batch()
        # Where it is written: closed here, its number could be another file's while the thread still writes to it.
        await in_thread_or_here(self._file.close, limiter=self._one_thread, abandon_on_cancel=True)
