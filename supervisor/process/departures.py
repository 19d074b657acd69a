"""When something leaves a directory or is replaced there: inotify(7), as far as we need it.

What it was, the caller looks up himself.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import trio

_DELETED, _MOVED_FROM, _MOVED_TO, _DELETED_SELF, _MOVED_SELF = 0x200, 0x40, 0x80, 0x400, 0x800
_MASK = _DELETED | _MOVED_FROM | _MOVED_TO | _DELETED_SELF | _MOVED_SELF
_READ_BYTES = 64 * 1024


class Departures:
    """`watch` a directory, `wait` for the next departure, `close` at the end."""

    def __init__(self) -> None:
        """Raise OSError when the kernel has no more watches for this user, or no inotify."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def watch(self, directory: Path) -> None:
        """Once more for the same directory does nothing; one that was made anew is another. Raise OSError."""
        self._checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _MASK))

    async def wait(self) -> None:
        """Until something has left since the last call. Cancelled, it is told by the next call."""
        await trio.lowlevel.wait_readable(self._descriptor)
        os.read(self._descriptor, _READ_BYTES)

    def close(self) -> None:
        os.close(self._descriptor)

    def _checked(self, result: int) -> int:
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result
