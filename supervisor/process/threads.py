"""Blocking calls in worker threads, also when no thread can be started.

Threads count as processes (pids cgroup, RLIMIT_NPROC). A unit that forks without end must not take the supervisor
with it: just then its stop ladder, which looks through /proc, is needed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

T = TypeVar("T")

_NO_THREAD = "can't start new thread"
"""All that CPython's RuntimeError says."""


class NoThread(OSError):
    """EAGAIN: there are as many processes and threads as may be."""

    def __init__(self) -> None:
        super().__init__(
            errno.EAGAIN,
            "no thread can be started: the limit on processes is reached (pids cgroup or LimitNPROC)",
        )


@contextmanager
def thread_shortage() -> Iterator[None]:
    """Raise NoThread for what inside fails for want of a thread: name resolution, say."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        raise NoThread from error


async def in_thread(
    work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
) -> T:
    """As `trio.to_thread.run_sync`. Raise NoThread; then nothing was done."""
    with thread_shortage():
        return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=abandon_on_cancel)


async def in_thread_or_here(
    work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
) -> T:
    """For work that blocks for milliseconds as a rule: without a thread it is done on the loop."""
    try:
        return await in_thread(work, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
    except NoThread:
        return work()
