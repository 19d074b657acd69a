"""A file system whose questions are never answered: who asks, sleeps uninterruptibly until it is taken away.

Once the request has been read by its server, no signal ends the wait, SIGKILL included: as with a driver that hangs.
The protocol is fuse(4)'s, `include/uapi/linux/fuse.h`: the first request is answered, the others are read and kept.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FUSE = Path("/dev/fuse")
_INIT = 26
_IN_HEADER = struct.Struct("<IIQQIIIHH")
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def can_mount() -> bool:
    return os.geteuid() == 0 and os.access(FUSE, os.R_OK | os.W_OK)


needs_fuse = pytest.mark.skipif(not can_mount(), reason="/dev/fuse cannot be mounted here")


@contextmanager
def hanging_directory(directory: Path) -> Iterator[threading.Event]:
    """Mounted inside; the event is set when somebody hangs. Leaving the block lets all of them go, with an error."""
    server = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _libc.mount(b"hanging", os.fsencode(directory), b"fuse", 0, options.encode()) != 0:
        error = ctypes.get_errno()
        os.close(server)
        raise OSError(error, os.strerror(error))
    somebody_hangs = threading.Event()
    taken_away, take_away = os.pipe()
    thread = threading.Thread(target=_serve, args=(server, taken_away, somebody_hangs), daemon=True)
    thread.start()
    try:
        yield somebody_hangs
    finally:
        os.close(take_away)
        thread.join()
        os.close(server)  # the last descriptor: whatever waits for an answer fails (fuse(4))
        os.close(taken_away)
        _libc.umount2(os.fsencode(directory), _MNT_DETACH)


def _serve(server: int, taken_away: int, somebody_hangs: threading.Event) -> None:
    while True:
        readable, _, _ = select.select([server, taken_away], [], [])
        if taken_away in readable:
            return
        request = os.read(server, 1 << 17)
        _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
        if opcode == _INIT:
            body = struct.pack("<IIIIHHIIHHII6I", 7, 31, 0, 0, 12, 10, 65536, 1, *[0] * 10)
            os.write(server, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
        else:
            somebody_hangs.set()
