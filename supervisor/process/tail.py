"""The last output of a unit, kept in bounded memory, and readers that follow it.

Followers never hold anything up: one that reads too slowly loses the oldest lines and is told how many. They take
what was read at once as a whole, and cut it into lines when somebody asks for them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from weakref import WeakSet

import msgspec
import trio

FOLLOWER_BYTES = 256 * 1024
_MEAN_BYTES = 64
"""A tail keeps no more pieces than if each were so large: a unit that writes byte by byte costs no more memory."""
_LEAST_PIECES = 16


class Line(msgspec.Struct, frozen=True, gc=False):
    unit: str
    stream: str
    """`stdout` or `stderr`."""
    invocation: int
    """Which start of the unit in this life of the supervisor it is of."""
    at: float
    """When it was read, in Unix time."""
    text: str


class Gap(msgspec.Struct, frozen=True):
    """Stands in a follower's stream where lines were lost."""

    lost_lines: int

    def __str__(self) -> str:
        return f"[podvisor: {self.lost_lines} lines are missing here: they were read too slowly]"


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Whole lines that were read together."""

    unit: str
    stream: str
    invocation: int
    at: float
    block: bytes

    @property
    def count(self) -> int:
        return self.block.count(b"\n")

    def lines(self) -> Iterator[Line]:
        begin, length = 0, len(self.block)
        while begin < length:
            end = self.block.find(b"\n", begin)
            end = length if end < 0 else end
            yield self._line(self.block[begin:end])
            begin = end + 1

    def newest(self, count: int) -> list[Line]:
        cut = self.block.removesuffix(b"\n").rsplit(b"\n", count)
        return [self._line(line) for line in cut[-count:]]

    def _line(self, line: bytes) -> Line:
        return Line(self.unit, self.stream, self.invocation, self.at, _shown(line))


class Tail:
    """The newest lines of any number of streams, at most `max_bytes` of them."""

    def __init__(self, max_bytes: int, unit: str = "") -> None:
        self._unit = unit
        self._max_bytes = max_bytes
        self._max_pieces = max(_LEAST_PIECES, max_bytes // _MEAN_BYTES)
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self._invocation = 0
        self._followers: WeakSet[Follower] = WeakSet()

    def resize(self, max_bytes: int) -> None:
        """What no longer fits goes with the next line."""
        self._max_bytes = max_bytes
        self._max_pieces = max(_LEAST_PIECES, max_bytes // _MEAN_BYTES)

    def append(self, block: bytes, stream: str = "stdout") -> None:
        """Whole lines, each with its newline."""
        if not block:
            return
        piece = Piece(self._unit, stream, self._invocation, time.time(), block)
        for follower in self._followers:
            follower.feed(piece)
        if not self._max_bytes:
            self._pieces.clear()
            self._size = 0
            return
        if len(block) > self._max_bytes:
            piece = msgspec.structs.replace(piece, block=_newest(block, self._max_bytes))
        self._pieces.append(piece)
        self._size += len(piece.block)
        while (self._size > self._max_bytes and len(self._pieces) > 1) or len(self._pieces) > self._max_pieces:
            self._size -= len(self._pieces.popleft().block)

    def begin_life(self) -> None:
        """What comes from here on is of another invocation."""
        self._invocation += 1

    def lines(self, count: int) -> list[str]:
        """The last so many, oldest first."""
        return [line.text for line in self.newest(count)]

    def lines_of_life(self, count: int) -> list[str]:
        """The last so many of this invocation alone, oldest first."""
        return [line.text for line in self.newest_of_life(count)]

    def newest(self, count: int) -> list[Line]:
        """The last so many, oldest first, with all that is known of them."""
        return _last(self._pieces, count)

    def newest_of_life(self, count: int) -> list[Line]:
        return _last([piece for piece in self._pieces if piece.invocation == self._invocation], count)

    def follow(self, backlog: int = 0) -> Follower:
        """The lines from here on, after the last `backlog` ones; nothing is missed or told twice in between."""
        return follow([self], self.newest(backlog))

    def add_follower(self, follower: Follower) -> None:
        self._followers.add(follower)


class Follower(AsyncIterator[str | Gap]):
    """Yields lines as they come. It never ends by itself: cancel it. Dropping it is enough to end it."""

    def __init__(self, backlog: Iterable[Line] = ()) -> None:
        self._begun: Iterator[Line] = iter(backlog)
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self._lost = 0
        self._news = trio.Event()

    def feed(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size += len(piece.block)
        most = FOLLOWER_BYTES // _MEAN_BYTES
        while (self._size > FOLLOWER_BYTES and len(self._pieces) > 1) or len(self._pieces) > most:
            lost = self._pieces.popleft()
            self._size -= len(lost.block)
            self._lost += lost.count
        self._news.set()

    async def next(self) -> Line | Gap:
        """The next line, once there is one. Cancelled, it has lost nothing."""
        while True:
            line = next(self._begun, None)
            if line is not None:
                return line
            if self._lost:
                gap, self._lost = Gap(self._lost), 0
                return gap
            if self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece.block)
                self._begun = piece.lines()
                continue
            self._news = trio.Event()
            await self._news.wait()

    async def __anext__(self) -> str | Gap:
        """Cancelled, it has lost nothing."""
        line = await self.next()
        return line if isinstance(line, Gap) else line.text


def follow(tails: Sequence[Tail], backlog: Iterable[Line] = ()) -> Follower:
    """All that is written into any of the tails from here on, after the backlog."""
    follower = Follower(backlog)
    for tail in tails:
        tail.add_follower(follower)
    return follower


def merged(lines: Iterable[Sequence[Line]]) -> list[Line]:
    """Of several tails, in the order in which they were read."""
    return sorted((line for tail in lines for line in tail), key=lambda line: line.at)


def _last(pieces: Sequence[Piece], count: int) -> list[Line]:
    found: list[list[Line]] = []
    for piece in reversed(pieces):
        if count <= 0:
            break
        found.append(piece.newest(count))
        count -= len(found[-1])
    return [line for lines in reversed(found) for line in lines]


def _newest(block: bytes, max_bytes: int) -> bytes:
    """The end of a block that fits, from the beginning of a line on where there is one."""
    end = block[-max_bytes:]
    return end[end.find(b"\n") + 1 :] or end


def _shown(line: bytes) -> str:
    """What a terminal would leave standing: behind a bare `\\r` a line is written over."""
    if b"\r" in line:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line.decode("utf-8", "backslashreplace")
