"""What becomes of the bytes of one stream. Nothing here blocks or waits: `output.py` reads, `sink.py` writes."""

from __future__ import annotations

import math
import select
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from supervisor.process.line_format import LineFormat
from supervisor.process.lines import MAX_LINE_BYTES, LineSplitter
from supervisor.process.rate_limit import LineLimiter, RateLimit
from supervisor.process.sink import MarkingWriter
from supervisor.process.tail import Tail

Redact = Callable[[bytes], bytes]
"""Takes out of whole lines what nobody may read; gives back the same object where that is nothing."""


class Stream(Protocol):
    """Takes what was read, chunk by chunk."""

    @property
    def due(self) -> float:
        """When `overdue` wants to be called though nothing was read."""

    def feed(self, data: bytes, now: float) -> None: ...

    def overdue(self, now: float) -> None: ...

    def finish(self) -> None: ...


class ByteStream:
    """Passes chunks on as they are (`pass`, `file:`) or not at all (`null`); only the tail sees lines."""

    due = math.inf

    def __init__(self, name: str, tail: Tail, writer: MarkingWriter | None, redact: Redact | None = None) -> None:
        self._name = name
        self._tail = tail
        self._writer = writer
        self._redact = redact
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        if self._writer is not None:
            self._writer.write((data,))
        end = data.rfind(b"\n") + 1
        if end:
            self._keep(self._rest + data[:end])
            self._rest = data[end:]
        else:
            self._rest += data
        if len(self._rest) > MAX_LINE_BYTES:
            self._keep(self._rest + b"\n")
            self._rest = b""

    def overdue(self, now: float) -> None:
        """Nothing is held back here."""

    def finish(self) -> None:
        last, self._rest = self._rest, b""
        if last:
            self._keep(last + b"\n")

    def _keep(self, lines: bytes) -> None:
        self._tail.append(lines if self._redact is None else self._redact(lines), self._name)


class LineStream:
    """Cuts, limits and dresses lines (`prefix`, `json`, and whatever has a rate limit).

    A line that fits into a pipe's atomic write is never torn.
    """

    def __init__(
        self,
        name: str,
        tail: Tail,
        writer: MarkingWriter,
        line_format: LineFormat,
        rate_limit: RateLimit | None,
        suppress: Callable[[int], None],
        redact: Redact | None = None,
    ) -> None:
        """`suppress` is told how many lines the limit has not let pass, each time."""
        self._name = name
        self._tail = tail
        self._writer = writer
        self._format = line_format
        self._splitter = LineSplitter()
        self._limiter = LineLimiter(rate_limit)
        self._suppress = suppress
        self._redact = redact

    @property
    def due(self) -> float:
        return min(self._splitter.due, self._limiter.due)

    def feed(self, data: bytes, now: float) -> None:
        self._pass_on(self._splitter.feed(data, now), now)

    def overdue(self, now: float) -> None:
        self._pass_on(self._splitter.overdue(now), now)
        if now >= self._limiter.due:
            self._write([], self._limiter.take_suppressed())

    def finish(self) -> None:
        self._pass_on(self._splitter.finish(), -math.inf)
        self._write([], self._limiter.take_suppressed())

    def _pass_on(self, lines: list[bytes], now: float) -> None:
        if not lines:
            return
        text = b"\n".join(lines)
        if self._redact is not None and (clean := self._redact(text)) is not text:
            text, lines = clean, clean.split(b"\n")
        self._tail.append(text + b"\n", self._name)  # the limit is for the log; the tail is bounded anyway
        admitted, suppressed = self._limiter.admit(lines, now)
        if len(admitted) < len(lines):
            self._suppress(len(lines) - len(admitted))
        self._write(admitted, suppressed)

    def _write(self, admitted: list[bytes], suppressed: int) -> None:
        if suppressed:
            note = f"[podvisor: {suppressed} lines were suppressed: more than LogRateLimitBurst in an interval]"
            admitted = [note.encode(), *admitted]
        if admitted:
            self._writer.write(tuple(packed(map(self._format, admitted))))


def packed(lines: Iterable[bytes], limit: int = select.PIPE_BUF) -> Iterator[bytes]:
    """As many whole lines together as one write(2) is sure not to tear apart, should others share the pipe.

    One write for each line would wake the reader for each line: a tenth of the speed.
    """
    together: list[bytes] = []
    size = 0
    for line in lines:
        if size + len(line) > limit and together:
            yield b"".join(together)
            together, size = [], 0
        together.append(line)
        size += len(line)
    if together:
        yield b"".join(together)
