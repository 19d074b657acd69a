"""The file of the control socket: made at the start, found to be lost, removed at the end.

Who serves on it, and makes it anew when it is lost, is `socket_keeper.py`, which needs the HTTP stack.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from supervisor.service.changes import Changes
from supervisor.shared.listening import listen_unix

log = logging.getLogger(__name__)


class ControlSocket:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.suspected = Changes()
        """That it may be lost."""
        self._id: tuple[int, int] | None = None

    def listen(self) -> socket.socket:
        """Raise CannotListen, also where another supervisor answers: that one is never displaced."""
        listener = listen_unix(self.path)
        self._id = _id_of(self.path)
        return listener

    @property
    def is_lost(self) -> bool:
        """There is none, or another one."""
        return _id_of(self.path) != self._id

    def remove(self) -> None:
        """At the end; but not one that another supervisor has put in its place. A failure costs no exit code."""
        if self.is_lost:
            return
        try:
            self.path.unlink()
        except OSError as error:
            log.warning("cannot remove %s: %s; the next start replaces it", self.path, error.strerror)


def _id_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
