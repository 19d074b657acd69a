"""Something slow that takes bytes: the container's stdout, a file.

Whoever writes into a sink never waits for it. One task hands what is buffered to a worker thread; the buffer is
bounded, and what does not fit is the writer's loss, to be counted and marked.
"""

from __future__ import annotations

import logging
import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

import trio

from supervisor.process.line_format import LineFormat, bare
from supervisor.process.threads import NoThread, in_thread

log = logging.getLogger(__name__)

BUFFER_BYTES = 8 * 1024 * 1024
_BATCH_BYTES = 256 * 1024
STALLED_SEC = 0.5
"""So long without progress, and writers are no longer held back: what comes is dropped until somebody reads."""
RETRY_SEC = 1.0


def _nobody(lost_bytes: int) -> None:
    """For output whose losses are marked in it and nowhere else."""


class Sink:
    """A bounded buffer in front of a blocking `write_all`, in which every item is written by itself."""

    def __init__(
        self,
        write_all: Callable[[Sequence[bytes]], None],
        name: str,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        lose: Callable[[int], None] = _nobody,
    ) -> None:
        """`name` is for people, when it cannot be written; `lose` is told how many bytes were lost by that."""
        self.name = name
        self.error: OSError | None = None
        """Why it cannot be written now."""
        self._write_all = write_all
        self._buffer_bytes = buffer_bytes
        self._lose = lose
        self._items: deque[bytes] = deque()
        self._size = 0
        self._unmarked_loss = 0
        self._stalled = False
        self._when_room: list[Callable[[], None]] = []
        self._filled = trio.Event()
        self._progress = trio.Event()
        self._one_thread = trio.CapacityLimiter(1)  # also behind a thread that a cancelled run() had to leave

    def offer(self, items: Sequence[bytes], *, beyond: int = 0) -> bool:
        """Take all of them to be written, or say that there is no room. The buffer is exceeded by one offer at most.

        `beyond`: so many bytes more than the buffer has, for what must be said though others keep it full.
        """
        if self._size >= self._buffer_bytes + beyond:
            return False
        self._items += items
        self._size += sum(map(len, items))
        self._filled.set()
        return True

    def call_when_room(self, tell: Callable[[], None]) -> None:
        """Once, after the next progress; it may have to ask again."""
        self._when_room.append(tell)

    async def room(self) -> None:
        """Hold a writer back while the buffer is full and drains, as a pipe would; not once it has stalled."""
        while self._size >= self._buffer_bytes and not self._stalled:
            with trio.move_on_after(STALLED_SEC) as patience:
                await self._progress.wait()
            self._stalled |= patience.cancelled_caught

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled. Then up to one batch may be under way in a thread that is left behind."""
        task_status.started()
        while True:
            await self._filled.wait()
            await self._write_batch()

    def held(self) -> AbstractAsyncContextManager[None]:
        """For as long as somebody's output goes here. Of a sink that somebody runs there is nothing to be done."""
        return nullcontext()

    async def _write_batch(self) -> None:
        """What is buffered, or a part. Cancelled: it counts as lost, though a thread left behind may write it yet."""
        batch = self._take_batch()
        size = sum(map(len, batch))
        if not batch:
            return
        try:
            await self._write(batch)
        except OSError as error:
            self._say(error)
            self._lost(size)
            self._stalled = True  # nobody is held back for what cannot be written
            await trio.sleep(RETRY_SEC)
        except trio.Cancelled:
            self._lost(size)
            raise
        else:
            self._stalled, self._unmarked_loss = False, 0
            self._say(None)
        finally:
            self._size -= size
            self._tell_progress()

    def _lost(self, size: int) -> None:
        self._unmarked_loss += size
        self._lose(size)

    def _tell_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
        waiting, self._when_room = self._when_room, []
        for tell in waiting:
            tell()

    async def _write(self, batch: list[bytes]) -> None:
        write = partial(self._write_all, self._marked(batch))
        while True:
            try:
                return await in_thread(write, abandon_on_cancel=True, limiter=self._one_thread)
            except NoThread:  # and not on the loop, which would hang with a reader that does
                await trio.sleep(RETRY_SEC)

    def _say(self, error: OSError | None) -> None:
        """When it stops working and when it works again, and not for each line between."""
        before, self.error = self.error, error
        if error is not None and before is None:
            log.error("cannot write %s: %s; what units write there is lost meanwhile", self.name, error.strerror)
        elif error is None and before is not None:
            log.info("%s can be written again", self.name)

    async def flush(self, deadline: float) -> bool:
        """Wait until all that was taken is written, or until that moment. False: something is still unwritten."""
        with trio.move_on_at(deadline):
            while self._size:
                await self._progress.wait()
        return self._size == 0

    def _marked(self, batch: list[bytes]) -> list[bytes]:
        return [drop_mark(bare, self._unmarked_loss), *batch] if self._unmarked_loss else batch

    def _take_batch(self) -> list[bytes]:
        batch, size = [], 0
        while self._items and size < _BATCH_BYTES:
            batch.append(self._items.popleft())
            size += len(batch[-1])
        if not self._items and self._filled.is_set():  # else somebody waits for this one already
            self._filled = trio.Event()
        return batch


class MarkingWriter:
    """One writer's way into a sink: what finds no room is counted, and told in its place once there is some."""

    def __init__(
        self, sink: Sink, mark: Callable[[int], bytes], lose: Callable[[int], None] = _nobody, *, beyond: int = 0
    ) -> None:
        """`mark` makes what is written for so many lost bytes; `lose` is told at once. `beyond`: as in `offer`."""
        self._offer = partial(sink.offer, beyond=beyond)
        self._sink = sink
        self._mark = mark
        self._lose = lose
        self._untold = 0

    def write(self, items: Sequence[bytes]) -> None:
        """All of them or none; each will be one write(2)."""
        if self._untold or not self._offer(items):
            size = sum(map(len, items))
            if not self._untold:
                self._sink.call_when_room(self._tell)
            self._untold += size
            self._lose(size)

    def _tell(self) -> None:
        if self._offer((self._mark(self._untold),)):
            self._untold = 0
        else:
            self._sink.call_when_room(self._tell)


def drop_mark(line_format: LineFormat, count: int) -> bytes:
    return line_format(b"[podvisor: %d bytes of output are missing here: they could not be written in time]" % count)


def write_all_to(descriptor: int) -> Callable[[Sequence[bytes]], None]:
    """A blocking writer: each item in one write(2), so that short lines are never torn."""

    def write_all(items: Sequence[bytes]) -> None:
        for item in items:
            _write(descriptor, item)

    return write_all


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # somebody who shares the pipe has made it non-blocking
            waiter = select.poll()
            waiter.register(descriptor, select.POLLOUT)
            waiter.poll()
