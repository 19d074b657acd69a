"""The turns of the fleet: so many runs start engines at a time."""

from __future__ import annotations

import trio


class Turn:
    """One of the fleet's, while this run has it."""

    def __init__(self, turns: trio.Semaphore) -> None:
        self._turns = turns
        self.is_taken = False

    async def take(self) -> None:
        """Cancelled, it is not taken."""
        await self._turns.acquire()
        self.is_taken = True

    def give_back(self) -> None:
        if self.is_taken:
            self.is_taken = False
            self._turns.release()
