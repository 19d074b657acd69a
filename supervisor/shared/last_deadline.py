"""The last act of a shutdown has its own deadline, and ends in os._exit: a shielded task or a driver may hang for ever.

A thread keeps it, because what hangs may be the loop itself. It is started long before it is needed: when everything
hangs, as many processes and threads as may be are often just what is wrong.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

import msgspec

log = logging.getLogger(__name__)

STDERR = 2


class _Deadline(msgspec.Struct, frozen=True):
    at: float = math.inf
    """By time.monotonic()."""
    seconds: float = math.inf
    exit_code: int = 0

    @property
    def left_sec(self) -> float:
        return min(max(self.at - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


class LastDeadline:
    """One per process: the earliest that was set holds."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[_Deadline] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start()

    def exit_after(self, seconds: float, exit_code: int) -> None:
        """Whatever hangs then (a driver, a shielded task), the process is gone. Needs no thread, and never blocks.

        As PID 1 this makes the kernel end every process of the container. Infinite seconds are no deadline.
        """
        self._asked.put(_Deadline(time.monotonic() + seconds, seconds, exit_code))
        self._start()

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._keep, name="last deadline", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.error("there can be no last deadline now: %s; an end that hangs may take for ever", error)
        else:
            self._thread = thread

    def _keep(self) -> None:
        deadline = _Deadline()
        while True:
            try:
                asked = self._asked.get(timeout=deadline.left_sec)
            except Empty:
                if deadline.left_sec <= 0:
                    _leave(deadline)
                continue
            deadline = min(deadline, asked, key=lambda each: each.at)


def _leave(deadline: _Deadline) -> None:
    words = (
        f"podvisor: not everything has ended within {deadline.seconds:g} s: "
        f"leaving with exit code {deadline.exit_code}\n"
    )
    stderr = select.poll()
    stderr.register(STDERR, select.POLLOUT)
    if stderr.poll(0):  # a reader that has stopped reading must not hold up the last act
        with suppress(OSError):
            os.write(STDERR, words.encode())
    os._exit(deadline.exit_code)
