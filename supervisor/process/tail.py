"""The last output of a unit, kept in bounded memory, and readers that follow it.

Followers never hold anything up: one that reads too slowly loses the oldest lines and is told how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from weakref import WeakSet

import msgspec
import trio

FOLLOWER_BYTES = 256 * 1024


class Gap(msgspec.Struct, frozen=True):
    """Stands in a follower's stream where lines were lost."""

    lost_lines: int

    def __str__(self) -> str:
        return f"[podvisor: {self.lost_lines} lines are missing here: they were read too slowly]"


class Tail:
    """The newest lines of any number of streams, at most `max_bytes` of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._size_of_life = 0
        """Of what is kept, what came since `begin_life`."""
        self._followers: WeakSet[Follower] = WeakSet()

    def resize(self, max_bytes: int) -> None:
        """What no longer fits goes with the next line."""
        self._max_bytes = max_bytes

    def append(self, block: bytes) -> None:
        """Whole lines, each with its newline."""
        if not block:
            return
        for follower in self._followers:
            follower.feed(_texts(block))
        self._blocks.append(_newest(block, self._max_bytes))
        self._size += len(self._blocks[-1])
        self._size_of_life += len(self._blocks[-1])
        while self._size > self._max_bytes and len(self._blocks) > 1:
            self._size -= len(self._blocks.popleft())
        self._size_of_life = min(self._size_of_life, self._size)

    def begin_life(self) -> None:
        """What comes from here on is of another invocation."""
        self._size_of_life = 0

    def lines_of_life(self, count: int) -> list[str]:
        """The last so many of this invocation alone, oldest first."""
        if count <= 0 or not self._size_of_life:
            return []
        return _texts(b"".join(self._blocks)[-self._size_of_life :])[-count:]

    def lines(self, count: int) -> list[str]:
        """The last so many, oldest first."""
        if count <= 0 or not self._blocks:
            return []
        wanted: list[bytes] = []
        newlines = 0
        for block in reversed(self._blocks):
            wanted.append(block)
            newlines += block.count(b"\n")
            if newlines >= count:
                break
        return _texts(b"".join(reversed(wanted)))[-count:]

    def follow(self, backlog: int = 0) -> Follower:
        """The lines from here on, after the last `backlog` ones; nothing is missed or told twice in between."""
        follower = Follower(self.lines(backlog))
        self._followers.add(follower)
        return follower


class Follower(AsyncIterator[str | Gap]):
    """Yields lines as they come. It never ends by itself: cancel it. Dropping it is enough to end it."""

    def __init__(self, backlog: Iterable[str] = ()) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._lost = 0
        self._news = trio.Event()
        self.feed(backlog)

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines.append(line)
            self._size += len(line) + 1
        while self._size > FOLLOWER_BYTES and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1
            self._lost += 1
        self._news.set()

    async def __anext__(self) -> str | Gap:
        """Cancelled, it has lost nothing."""
        while not self._lines:
            self._news = trio.Event()
            await self._news.wait()
        if self._lost:
            gap, self._lost = Gap(self._lost), 0
            return gap
        line = self._lines.popleft()
        self._size -= len(line) + 1
        return line


def _newest(block: bytes, max_bytes: int) -> bytes:
    """The end of a block that fits, from the beginning of a line on where there is one."""
    if len(block) <= max_bytes:
        return block
    end = block[-max_bytes:]
    return end[end.find(b"\n") + 1 :] or end


def _texts(block: bytes) -> list[str]:
    return [_shown(line) for line in block.removesuffix(b"\n").split(b"\n")]


def _shown(line: bytes) -> str:
    """What a terminal would leave standing: behind a bare `\\r` a line is written over."""
    if b"\r" in line:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line.decode("utf-8", "backslashreplace")
