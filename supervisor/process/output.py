"""The output of one unit, over all its invocations: drained, forwarded, and kept in a bounded tail.

Here are the pipes and the reading. `stream.py` says what becomes of what was read, `lines.py` cuts it into lines,
`line_format.py` dresses them, `sink.py` and `file_sink.py` write them, `tail.py` keeps the last ones.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial

import msgspec
import trio

from supervisor.process.drops import Drop, DropObserver, nobody
from supervisor.process.file_sink import FileSink
from supervisor.process.line_format import Field, LineFormat, bare, json_object, prefixed, whole
from supervisor.process.rate_limit import RateLimit
from supervisor.process.sink import BUFFER_BYTES, MarkingWriter, Sink, drop_mark, write_all_to
from supervisor.process.stream import ByteStream, LineStream, Redact, Stream
from supervisor.process.tail import Follower, Gap, Tail
from supervisor.unit.model import Logging

__all__ = ["ContainerStdout", "Follower", "Gap", "Output", "Pipes", "RateLimit", "rate_limit_of"]

TAIL_BYTES = 256 * 1024
OWN_BYTES = 64 * 1024
"""For the supervisor's own lines, beside those of units: busy ones keep the buffer full."""
ROTATE_SIZE = 50_000_000
ROTATE_KEEP = 5
_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 256 * 1024


class ContainerStdout(Sink):
    """The supervisor's own stdout or stderr, which all units and the supervisor itself share."""

    def __init__(self, descriptor: int = 1, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        super().__init__(write_all_to(descriptor), f"file descriptor {descriptor}", buffer_bytes=buffer_bytes)
        self._own = MarkingWriter(self, partial(drop_mark, bare), beyond=OWN_BYTES)

    def write(self, data: bytes) -> None:
        """Buffer it for `run()`; never blocks. What finds no room is counted and marked."""
        self._own.write((data,))


def rate_limit_of(logging: Logging) -> RateLimit | None:
    limit = RateLimit(logging.rate_limit_interval_sec, logging.rate_limit_burst)
    return limit if logging.rate_limit_burst else None


class Pipes:
    """The two pipes of one invocation: write ends for the process, read ends for the pump."""

    def __init__(self) -> None:
        """Raise OSError when descriptors have run out; then none is left open."""
        self._open: set[int] = set()
        try:
            self._read_stdout, self.stdout = self._pipe()
            self._read_stderr, self.stderr = self._pipe()
        except OSError:
            self.close()
            raise

    def close_write_ends(self) -> None:
        """Once the process has them: only when all copies are closed does the pump see the end."""
        self._close({self.stdout, self.stderr})

    def close(self) -> None:
        """Whatever nobody has taken or closed yet."""
        self._close(set(self._open))

    def take_read_ends(self) -> tuple[int, int]:
        """Those of stdout and stderr, which are the caller's to close from now on."""
        self._open -= {self._read_stdout, self._read_stderr}
        return self._read_stdout, self._read_stderr

    def _pipe(self) -> tuple[int, int]:
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        self._open |= {read_end, write_end}
        os.set_blocking(read_end, False)  # the write end stays as programs expect it
        with suppress(OSError):  # a user's total is limited, and a small pipe works too
            fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return read_end, write_end

    def _close(self, descriptors: set[int]) -> None:
        for descriptor in descriptors & self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


class _Route(msgspec.Struct, frozen=True):
    """Where one of the two streams goes, over all invocations."""

    stream: str
    mode: str
    sink: Sink | None
    writer: MarkingWriter | None


class Output:
    """What one unit writes. Modes are those of StandardOutput: `pass`, `prefix`, `json`, `null`, `file:PATH`."""

    def __init__(
        self,
        unit: str,
        mode: str,
        stdout: ContainerStdout,
        *,
        stderr_mode: str | None = None,
        stderr: ContainerStdout | None = None,
        tail_bytes: int = TAIL_BYTES,
        rate_limit: RateLimit | None = None,
        rotate_size: int = ROTATE_SIZE,
        rotate_keep: int = ROTATE_KEEP,
        default_mode: str = "prefix",
        drops: DropObserver = nobody,
        redact: Redact | None = None,
    ) -> None:
        """Without `stderr_mode` and `stderr` both streams go the same way. Raise ValueError for an unknown mode."""
        self.unit = unit
        self.tail = Tail(tail_bytes, unit)
        self._drops = drops
        self._rate_limit = rate_limit
        self._redact = redact
        self._rotation = rotate_size, rotate_keep
        self._default_mode = default_mode
        """Of a unit whose file names none."""
        self._containers = stdout, stderr or stdout
        self._modes = mode, mode if stderr_mode is None else stderr_mode
        self._files: dict[str, FileSink] = {}
        """Where something is written or will be."""
        self._stdout, self._stderr = self._routes()

    def configure(self, logging: Logging) -> None:
        """Limits hold at once; where the lines go, from the next invocation on. Raise ValueError as the constructor."""
        self.tail.resize(logging.tail_bytes)
        self._rate_limit = rate_limit_of(logging)
        self._rotation = logging.rotate_size, logging.rotate_keep
        for file in self._files.values():
            file.resize(*self._rotation)
        mode = logging.stdout or self._default_mode
        modes = mode, logging.stderr or mode
        if modes != self._modes:
            self._modes = modes
            self._stdout, self._stderr = self._routes()
            routed = self._stdout.sink, self._stderr.sink
            self._files = {path: file for path, file in self._files.items() if file.is_held or file in routed}

    def lines(self, count: int) -> list[str]:
        """The last lines, oldest first, as far as the tail reaches."""
        return self.tail.lines(count)

    def begin_life(self) -> None:
        """Another invocation begins: what was written before it is not its evidence."""
        self.tail.begin_life()

    def lines_of_life(self, count: int) -> list[str]:
        """The last lines of the present invocation, oldest first."""
        return self.tail.lines_of_life(count)

    def follow(self, backlog: int = 0) -> Follower:
        """An endless async iterator over the lines to come, with a `Gap` wherever a slow reader lost some."""
        return self.tail.follow(backlog)

    def reopen(self) -> None:
        """Open log files anew, after something has moved them away."""
        for file in self._files.values():
            file.reopen()

    def open(self) -> Pipes:
        """New pipes for a new invocation. Give them to `pump`, or close them if there is nothing to pump."""
        return Pipes()

    async def pump(self, pipes: Pipes, fields: Mapping[str, Field] | None = None) -> None:
        """Drain both pipes until all their writers are gone, or until cancelled.

        `fields` (epoch, rank) stand in every line of `prefix` and `json`. A grandchild can hold a pipe open for ever:
        bound this with a scope once the main process has ended. Cancelled, it still reads what the pipes hold at
        that moment. The read ends are closed when it returns.
        """
        read_stdout, read_stderr = pipes.take_read_ends()
        async with trio.open_nursery() as nursery:
            for descriptor, route in ((read_stdout, self._stdout), (read_stderr, self._stderr)):
                nursery.start_soon(self._drain, descriptor, route, fields or {})

    async def _drain(self, descriptor: int, route: _Route, fields: Mapping[str, Field]) -> None:
        async with nullcontext() if route.sink is None else route.sink.held():
            try:
                await self._read_all(descriptor, route, fields)
            finally:
                os.close(descriptor)

    async def _read_all(self, descriptor: int, route: _Route, fields: Mapping[str, Field]) -> None:
        limit, stream = self._rate_limit, self._stream(route, fields)
        try:
            while True:
                with trio.move_on_at(stream.due) as patience:
                    await trio.lowlevel.wait_readable(descriptor)
                if route.sink is not None:
                    await route.sink.room()  # the last await before we write: in any other our room may be taken
                if limit != self._rate_limit:
                    stream.finish()
                    limit, stream = self._rate_limit, self._stream(route, fields)
                elif patience.cancelled_caught:
                    stream.overdue(trio.current_time())
                elif self._read(descriptor, stream) == 0:
                    return
        finally:
            left = _PIPE_BYTES
            while left > 0 and (read := self._read(descriptor, stream)):
                left -= read
            stream.finish()

    def _read(self, descriptor: int, stream: Stream) -> int | None:
        """How many bytes there were; 0 at the end, None when there is nothing now."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return None
        if data:
            stream.feed(data, trio.current_time())
        return len(data)

    def _routes(self) -> tuple[_Route, _Route]:
        (out_mode, err_mode), (stdout, stderr) = self._modes, self._containers
        return self._route("stdout", out_mode, stdout), self._route("stderr", err_mode, stderr)

    def _route(self, stream: str, mode: str, container: ContainerStdout) -> _Route:
        kind, _, path = mode.partition(":")
        if mode == "null":
            return _Route(stream, kind, None, None)
        if kind == "file" and path:
            sink: Sink = self._file_sink(path, stream)
        elif mode in ("pass", "prefix", "json"):
            sink = container
        else:
            raise ValueError(
                f"unit {self.unit}: unknown output mode {mode!r}; known are pass, prefix, json, null and file:PATH"
            )
        mark = partial(drop_mark, self._line_format(stream, kind, {}))
        return _Route(stream, kind, sink, MarkingWriter(sink, mark, partial(self._lost, stream)))

    def _file_sink(self, path: str, stream: str) -> FileSink:
        if path not in self._files:
            self._files[path] = FileSink(path, *self._rotation, lose=partial(self._lost, stream))
        return self._files[path]

    def _lost(self, stream: str, lost_bytes: int) -> None:
        self._drops(Drop(self.unit, stream, lost_bytes=lost_bytes))

    def _suppressed(self, stream: str, lines: int) -> None:
        self._drops(Drop(self.unit, stream, suppressed_lines=lines))

    def _stream(self, route: _Route, fields: Mapping[str, Field]) -> Stream:
        dressed = route.mode in ("prefix", "json")
        if route.writer is None or not (dressed or self._rate_limit):
            return ByteStream(route.stream, self.tail, route.writer, self._redact)
        line_format = self._line_format(route.stream, route.mode, fields) if dressed else whole
        suppress = partial(self._suppressed, route.stream)
        return LineStream(route.stream, self.tail, route.writer, line_format, self._rate_limit, suppress, self._redact)

    def _line_format(self, stream: str, mode: str, fields: Mapping[str, Field]) -> LineFormat:
        if mode == "json":
            return json_object(self.unit, stream, fields)
        return prefixed(self.unit, fields) if mode == "prefix" else bare
