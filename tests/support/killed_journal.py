"""A SQLite journal in virtual time, and a controller that dies at the k-th of its writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from controller.election import Election
from controller.store.base import CannotWrite
from controller.store.sqlite_election import SqliteElection
from tests.support.controller_world import URL

T = TypeVar("T")


class Writer:
    """Where SQLite blocks: here and now, for a jumping clock knows no threads."""

    def __init__(self) -> None:
        self.writes = 0
        self.dies_at = 0
        """The write at which `kill` is called; 0: none."""
        self.after_commit = False
        self.kill: Callable[[], None] = lambda: None
        self.full = False
        """The disk is."""
        self.lasts_sec = 0.0
        """Each write."""
        self._is_dead = False

    async def __call__(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        if getattr(work, "__name__", "") == "close":
            return work()
        if self._is_dead:
            await trio.sleep_forever()
        if self.full:
            raise CannotWrite("the disk is full; make room")
        await trio.sleep(self.lasts_sec)
        self.writes += 1
        if self.writes != self.dies_at:
            return work()
        self._is_dead = True
        if self.after_commit:
            work()
        self.kill()
        await trio.sleep_forever()
        raise AssertionError("the dead do not wake")


def journal_in(state_dir: Path, writers: list[Writer] | None = None) -> Callable[[], Election]:
    """Every life of the controller gets the next of `writers`, then fresh ones."""
    waiting = list(writers or [])

    def elect() -> Election:
        return SqliteElection(URL, state_dir, waiting.pop(0) if waiting else Writer())

    return elect
