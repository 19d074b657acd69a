"""Questions to file systems that may never answer: a volume whose server is gone, a FUSE program that is stuck.

Who asks one sleeps in the kernel, where no signal reaches it. So it is never the loop that asks: on it depend all
units, the signals, /livez and the reaper.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import TypeVar

import trio

from supervisor.process.threads import NoThread, in_thread

T = TypeVar("T")

ANSWER_SEC = 10.0
"""Longer than a network volume takes that is merely slow; a start that fails for it is tried again by the policy."""


class NoAnswer(OSError):
    """ETIMEDOUT: whoever asked sleeps there still."""

    def __init__(self, within_sec: float) -> None:
        super().__init__(
            errno.ETIMEDOUT,
            f"its file system does not answer within {within_sec:g} s: see to the mount (a network or FUSE volume)",
        )


class Disk:
    """One per supervisor."""

    def __init__(self) -> None:
        self._askers: dict[str, trio.CapacityLimiter] = {}

    async def ask(self, asker: str, work: Callable[[], T], within_sec: float = ANSWER_SEC) -> T:
        """What `work` returns, which is done in a worker thread; of one asker's works never two at a time.

        So a disk that hangs costs each asker one thread, however often it asks. Raise NoAnswer, NoThread (then
        nothing was done) and what `work` raises. After NoAnswer, or cancelled, the thread is left behind and may
        still do its work: whatever it returns is lost.
        """
        limiter = self._askers.setdefault(asker, trio.CapacityLimiter(1))
        with trio.move_on_after(within_sec):
            return await in_thread(work, limiter=limiter, abandon_on_cancel=True)
        raise NoAnswer(within_sec)

    async def ask_or_here(self, asker: str, work: Callable[[], T]) -> T:
        """As `ask`, as long as it takes; for work that blocks for milliseconds as a rule: without a thread, here."""
        try:
            return await self.ask(asker, work, within_sec=math.inf)
        except NoThread:
            return work()
