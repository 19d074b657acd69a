"""A disk in virtual time: it answers at once, and where it hangs it never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from supervisor.process.disk import ANSWER_SEC, Disk, NoAnswer

T = TypeVar("T")


class InstantDisk(Disk):
    """A thread's time does not count under a jumping clock."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs_for: set[str] = set()
        """Askers."""

    async def ask(self, asker: str, work: Callable[[], T], within_sec: float = ANSWER_SEC) -> T:
        if asker in self.hangs_for:
            await trio.sleep(within_sec)
            raise NoAnswer(within_sec)
        await trio.lowlevel.checkpoint()
        return work()
