"""A mark that every process of an invocation bears, whatever it makes of itself.

INVOCATION_ID goes with the environment (env -i), the session with setsid(2), the ancestry when a parent ends first.
Resource limits go on over fork, exec, setsid and a change of user, and /proc/PID/limits is open to everybody. So the
invocation is written into one that nobody needs: the soft RLIMIT_RTTIME, which bounds how long a real-time thread
computes without a pause, set to some 150,000 years and a number made from the invocation id.

It is put on by us before the fork and inherited, so that it takes no permission and misses nobody. It is one piece
of evidence among others: a unit with a LimitRTTIME of its own has no brand.
"""

from __future__ import annotations

import hashlib
import resource
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from supervisor.process.procfs import soft_realtime_limit

PATIENCE_SEC = 0.5
"""After that long, a thread that wears a brand has forked, and hangs in exec (on a dead network mount)."""
_LEAST = 1 << 62
_BITS = 61


def brand_of(invocation_id: str) -> int:
    digest = hashlib.blake2b(invocation_id.encode(), digest_size=8).digest()
    return _LEAST | int.from_bytes(digest) >> 64 - _BITS


def brands(invocation_ids: Iterable[str]) -> Mapping[int, str]:
    return {brand_of(invocation_id): invocation_id for invocation_id in invocation_ids}


def read_brand(pid: int) -> int | None:
    """None: it bears none, or is gone."""
    limit = soft_realtime_limit(pid)
    return limit if limit is not None and limit >= _LEAST else None


class Branding:
    """Wears a brand while a thread forks. One per `Children`: a process has one such limit for all its threads."""

    def __init__(self) -> None:
        self._own, self._hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        self._free = threading.Condition()
        self._wearer: object | None = None

    @property
    def own(self) -> int:
        """Our own from birth, a brand when podvisor is another podvisor's unit: it says nothing of our children."""
        return self._own

    @contextmanager
    def worn(self, invocation_id: str | None) -> Iterator[None]:
        """Fork inside, once and at once. Blocks for `PATIENCE_SEC` at most for each spawn that hangs."""
        wearer = object()
        with self._free:
            while (other := self._wearer) is not None:
                if not self._free.wait_for(lambda other=other: self._wearer is not other, PATIENCE_SEC):  # type: ignore[misc]
                    break
            self._wearer = wearer
            self._wear(None if invocation_id is None else brand_of(invocation_id))
        try:
            yield
        finally:
            with self._free:
                if self._wearer is wearer:
                    self._wear(None)
                    self._wearer = None
                    self._free.notify_all()

    def _wear(self, brand: int | None) -> None:
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (self._own if brand is None else brand, self._hard))
        except (OSError, ValueError):
            return  # the hard limit is lower, or the kernel knows no such limit: other evidence has to do
