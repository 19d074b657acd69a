"""What is kept in the state directory, written beside everything else: it may be on a volume that hangs.

One file after the other, in the order in which they were first kept; of a file that is kept anew before it was
written, the newest content. Who keeps something never waits, and is told when it could not be written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import trio

from supervisor.process.disk import Disk, NoAnswer
from supervisor.process.threads import NoThread
from supervisor.shared.whole_file import write_whole

FLUSH_SEC = 1.0
"""At the end, for what is not written yet."""

Keep = Callable[[Path, bytes, Callable[[OSError], None]], None]
"""`StateFiles.keep`."""


class _Content(msgspec.Struct, frozen=True):
    data: bytes
    failed: Callable[[OSError], None]


class StateFiles:
    """One per supervisor."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._kept: dict[Path, _Content] = {}
        self._news = trio.Event()
        self._written = trio.Event()
        """All of it; replaced when something is kept."""
        self._written.set()

    def keep(self, path: Path, data: bytes, failed: Callable[[OSError], None]) -> None:
        if self._written.is_set():
            self._written = trio.Event()
        self._kept[path] = _Content(data, failed)
        self._news.set()

    @asynccontextmanager
    async def being_written(self) -> AsyncIterator[None]:
        """Write until the end of the block, and then for `FLUSH_SEC` at most. A cancel waits as long."""
        writing = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_all, writing)
            try:
                yield
            finally:
                with trio.CancelScope(deadline=trio.current_time() + FLUSH_SEC, shield=True):
                    await self._written.wait()
                writing.cancel(reason="the end is not held up by a disk")

    async def _write_all(self, writing: trio.CancelScope) -> None:
        with writing:
            while True:
                await self._news.wait()
                path = next(iter(self._kept))
                await self._write(path, self._kept.pop(path))
                if not self._kept:
                    self._news = trio.Event()
                    self._written.set()

    async def _write(self, path: Path, content: _Content) -> None:
        work = partial(write_whole, path, content.data)
        try:
            try:
                await self.disk.ask("state files", work)
            except NoThread:
                work()  # rather than to lose it: a disk that hangs as well is rare
        except NoAnswer as error:
            content.failed(error)
            self._kept.setdefault(path, content)  # until the disk answers: what is there then is not to be older
        except OSError as error:
            content.failed(error)
