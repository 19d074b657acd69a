"""From a stream of bytes to lines fit for a log. Pure: time comes in as an argument.

A line ends at `\\n`, `\\r\\n` or a bare `\\r`. The last is what progress bars write: of those lines at most one an
interval is passed on, always the newest. A line that is too long is cut into pieces that say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

MAX_LINE_BYTES = 16 * 1024
PROGRESS_INTERVAL_SEC = 1.0
CONTINUES = b" [podvisor: the line goes on]"


class LineSplitter:
    """Cuts one stream. Holds at most one unfinished line, of bounded length, and one line of progress."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, progress_interval_sec: float = PROGRESS_INTERVAL_SEC):
        self._max_line_bytes = max_line_bytes
        self._progress_interval_sec = progress_interval_sec
        self._rest = b""
        self._progress: bytes | None = None
        self._progress_at = -math.inf

    @property
    def due(self) -> float:
        """When `overdue` wants to be called though nothing new was read; infinite if there is nothing to tell."""
        if self._progress is None and not self._rest.endswith(b"\r"):
            return math.inf
        return self._progress_at + self._progress_interval_sec

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        data = self._rest + data
        if b"\r" in data:
            lines = list(self._with_returns(data, now))
        else:
            *lines, self._rest = data.split(b"\n")
            if lines:
                self._progress = None
        if len(data) <= self._max_line_bytes:
            return lines
        pieces = [piece for line in lines for piece in self._cut(line)]
        unfinished = self._rest.removesuffix(b"\r")
        *more, last = self._cut(unfinished)
        self._rest = last + self._rest[len(unfinished) :]
        return pieces + more

    def overdue(self, now: float) -> list[bytes]:
        """The newest progress, if it has been held back long enough."""
        if now < self.due:
            return []
        if self._rest.endswith(b"\r"):
            self._progress, self._rest = self._rest.strip(b"\r") or self._progress, b""
        return list(self._take_progress(now))

    def finish(self) -> list[bytes]:
        """What is left when the stream ends."""
        lines = [self._progress] if self._progress else []
        lines += [self._rest.strip(b"\r")] if self._rest.strip(b"\r") else []
        self._rest, self._progress = b"", None
        return lines

    def _with_returns(self, data: bytes, now: float) -> Iterator[bytes]:
        self._rest = b""
        pieces = data.splitlines(keepends=True)
        if not pieces[-1].endswith(b"\n"):
            self._rest = pieces.pop()  # unfinished, or its "\r" may be half of a "\r\n"
        for piece in pieces:
            if piece.endswith(b"\n"):
                self._progress = None  # overtaken
                yield piece[:-2] if piece.endswith(b"\r\n") else piece[:-1]
            elif len(piece) > 1:
                self._progress = piece[:-1]
                if now >= self._progress_at + self._progress_interval_sec:
                    yield from self._take_progress(now)

    def _take_progress(self, now: float) -> Iterator[bytes]:
        if self._progress is not None:
            yield self._progress
            self._progress_at, self._progress = now, None

    def _cut(self, line: bytes) -> Iterator[bytes]:
        while len(line) > self._max_line_bytes:
            end = _character_start(line, self._max_line_bytes)
            yield line[:end] + CONTINUES
            line = line[end:]
        yield line


def _character_start(line: bytes, position: int) -> int:
    """The last place up to `position` that is not inside a UTF-8 character; `position` itself in binary data."""
    for back in range(min(4, position)):
        if line[position - back] & 0xC0 != 0x80:
            return position - back
    return position
