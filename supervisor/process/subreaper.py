"""Being the process to which orphans fall.

As PID 1 the kernel hands us every orphan of the namespace; anywhere else PR_SET_CHILD_SUBREAPER does the same
for our own descendants. Reaping them is `children.py`'s work.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def is_pid_one() -> bool:
    return os.getpid() == 1


def become_subreaper() -> None:
    """Adopt the orphans of our descendants from now on. Raise OSError if the kernel refuses (before Linux 3.4)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def is_subreaper() -> bool:
    answer = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return answer.value == 1


def _prctl(option: int, argument: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}) failed: {os.strerror(error)}")
