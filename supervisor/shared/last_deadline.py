"""The last act of a shutdown has its own deadline, and ends in os._exit: a shielded task or a driver may hang for ever.

A thread keeps it, because what hangs may be the loop itself.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
from contextlib import suppress

log = logging.getLogger(__name__)

STDERR = 2


def exit_after(seconds: float, exit_code: int) -> None:
    """The last deadline: whatever hangs then (a driver, a shielded task), the process is gone.

    As PID 1 this makes the kernel end every process of the container. Infinite seconds are no deadline.
    """
    if math.isinf(seconds):
        return
    timer = threading.Timer(seconds, _leave, (seconds, exit_code))
    timer.name = "last deadline"
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError as error:
        log.error("cannot set the last deadline: %s; the end may take longer than %g s", error, seconds)


def _leave(seconds: float, exit_code: int) -> None:
    words = f"podvisor: not everything has ended within {seconds:g} s: leaving with exit code {exit_code}\n"
    stderr = select.poll()
    stderr.register(STDERR, select.POLLOUT)
    if stderr.poll(0):  # a reader that has stopped reading must not hold up the last act
        with suppress(OSError):
            os.write(STDERR, words.encode())
    os._exit(exit_code)
