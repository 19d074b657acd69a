"""Being the process to which orphans fall.

As PID 1 the kernel hands us every orphan of the namespace; anywhere else PR_SET_CHILD_SUBREAPER does the same
for our own descendants. Reaping them is `children.py`'s work.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36


def is_pid_one() -> bool:
    return os.getpid() == 1


def become_subreaper() -> None:
    """Adopt the orphans of our descendants from now on. Raise OSError if the kernel refuses (before Linux 3.4)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({_PR_SET_CHILD_SUBREAPER}) failed: {os.strerror(error)}")
