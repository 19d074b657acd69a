"""Who of several processes may write to a state directory: an exclusive flock, and who holds it.

The kernel gives it back when the holder ends, however it ends. The file stays: who deletes it lets two hold it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import trio

from controller.store.base import CannotOpen

FILE = "lock"
LOOK_SEC = 0.5
"""The kernel tells nobody when a lock becomes free, but to a thread that cannot be cancelled."""


class StateLock:
    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._file: int | None = None

    def try_lock(self, holder: str) -> bool:
        """Whether it is ours now; `holder` is what others then read. Raises CannotOpen."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotOpen(f"{self._path} cannot be made: {error.strerror}; see controller.state_dir") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, holder.encode(), 0)
        self._file = file
        return True

    async def lock(self, holder: str) -> None:
        """Waits until it is ours. Cancelled, it is not. Raises CannotOpen."""
        while not self.try_lock(holder):  # noqa: ASYNC110 - nobody could set an event
            await trio.sleep(LOOK_SEC)

    def holder(self) -> str:
        """Whoever held it last; perhaps not any more, perhaps not for long enough to have written it down."""
        try:
            return self._path.read_text(errors="replace")
        except OSError:
            return ""

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
