"""Read a small file that somebody else has made, whatever it turns out to be: never without end, and never waiting."""

from __future__ import annotations

import os
from pathlib import Path

LIMIT_BYTES = 1024 * 1024


class TooLarge(OSError):
    """It goes on after `LIMIT_BYTES`."""


def read_small(path: Path) -> bytes:
    """What is there now: of a pipe that nobody writes into, nothing. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        read = bytearray()
        while part := file.read(LIMIT_BYTES + 1 - len(read)):
            read += part
    if len(read) > LIMIT_BYTES:
        raise TooLarge(f"it is larger than {LIMIT_BYTES} bytes")
    return bytes(read)
