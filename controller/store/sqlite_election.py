"""Who leads among the processes that share a state directory: who holds its lock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from controller.election import Leader, Leadership
from controller.store.sqlite import Runner, SqliteStore
from controller.store.state_lock import StateLock

CLOSE_SEC = 2.0
"""Until the file is whole without its write-ahead log; unfinished, the next life does it."""

log = logging.getLogger(__name__)


class SqliteElection:
    """What was won stays won: the kernel takes a lock from nobody who lives."""

    def __init__(self, url: str, state_dir: Path, run: Runner | None = None) -> None:
        """`url` is ours, as standbys tell it; `run` is where SQLite blocks, a thread if None."""
        self._url = url
        self._state_dir = state_dir
        self._run = run
        self._lock = StateLock(state_dir)
        self._stands_by = False

    @property
    def leader(self) -> Leader | None:
        url = self._lock.holder() if self._stands_by else ""
        return Leader(url, None) if url else None

    @asynccontextmanager
    async def campaign(self) -> AsyncIterator[Leadership]:
        """Raises CannotOpen."""
        await self._win()
        store = SqliteStore(self._state_dir, self._run)
        try:
            yield Leadership(store, self._url)
        finally:
            with trio.move_on_after(CLOSE_SEC, shield=True):
                await store.aclose()
            self._lock.release()

    async def _win(self) -> None:
        if self._lock.try_lock(self._url):
            return
        self._stands_by = True
        log.info("standing by: %s is held by %s", self._state_dir, self._lock.holder() or "another process")
        try:
            await self._lock.lock(self._url)
        finally:
            self._stands_by = False
