"""`StandardOutput = "file:PATH"`: a file that is rotated by size.

Everything here blocks and is called from a worker thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path


class RotatingFile:
    """PATH, PATH.1 (newer) … PATH.keep (oldest). A line is cut only if it is longer than a whole file."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        """`max_bytes` 0: never rotated."""
        self._path = path
        self.resize(max_bytes, keep)
        self._descriptor: int | None = None
        self._reopen = False

    def resize(self, max_bytes: int, keep: int) -> None:
        """From the next write on. Safe from any thread."""
        self._max_bytes = max_bytes or sys.maxsize
        self._keep = keep

    def reopen(self) -> None:
        """Open the path anew before the next write: somebody has moved the file away. Safe from any thread."""
        self._reopen = True

    def write_all(self, items: Sequence[bytes]) -> None:
        """Append. Raise OSError; what was not written is lost, and the next call tries afresh."""
        try:
            for item in items:
                self._append(item)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, data: bytes) -> None:
        while data:
            descriptor = self._open()
            room = self._max_bytes - os.fstat(descriptor).st_size
            fitting = len(data) if len(data) <= room else data.rfind(b"\n", 0, max(0, room)) + 1
            if not fitting and room < self._max_bytes:
                self._rotate()
                continue
            data = data[os.write(descriptor, data[: fitting or self._max_bytes]) :]

    def _open(self) -> int:
        if self._reopen:
            self._reopen = False
            self.close()
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o640)
        return self._descriptor

    def _rotate(self) -> None:
        self.close()
        for number in range(self._keep, 0, -1):
            source = self._numbered(number - 1)
            if source.exists():
                source.replace(self._numbered(number))
        if self._keep == 0:
            self._path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
