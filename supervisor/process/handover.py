"""A process that becomes the unit's program, and its user, only when its limits and priorities have been set.

From the first instruction of the program they must hold, and code between fork and exec can deadlock in a threaded
parent. Setting them on a process of another user needs CAP_SYS_RESOURCE besides, which containers do not have by
default. So a small program of ours is started as who we are, waits until they are set, becomes the user and executes
the unit's program in its place: the pid stays. Only for units that set any; it costs some ten milliseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from supervisor.process.spawn import Credentials

_PROGRAM = """
import os, signal, sys
go, told, user, group, groups, *argv = sys.argv[1:]
os.set_inheritable(int(go), False)
os.set_inheritable(int(told), False)
if not os.read(int(go), 1):
    os._exit(127)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.get_exec_path()
try:
    if groups != "-":
        os.setgroups([int(each) for each in groups.split(",") if each])
    if group != "-":
        os.setgid(int(group))
    if user != "-":
        os.setuid(int(user))
    os.execvp(argv[0], argv)
except OSError as error:
    os.write(int(told), str(error.errno).encode())
    os._exit(127)
"""
"""Python itself ignores two signals, which the program must not inherit. What execvp imports is imported before this
becomes a user who may not read it."""


class Handover:
    """Use it as a context: at its end no descriptor of it is left here."""

    def __init__(self) -> None:
        """Raise OSError when descriptors have run out."""
        self._go_read, self._go_write = os.pipe2(os.O_CLOEXEC)
        try:
            self._told_read, self._told_write = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(self._go_read)
            os.close(self._go_write)
            raise
        self._open = {self._go_read, self._go_write, self._told_read, self._told_write}

    @property
    def inherited(self) -> tuple[int, int]:
        """What the process must have open."""
        return self._go_read, self._told_write

    def argv(self, argv: Sequence[str], credentials: Credentials) -> list[str]:
        who = credentials
        groups = "-" if who.groups is None else ",".join(map(str, who.groups))
        numbers = ("-" if number is None else str(number) for number in (who.user, who.group))
        ends = map(str, self.inherited)
        return [sys.executable, "-I", "-S", "-c", _PROGRAM, *ends, *numbers, groups, *argv]

    def go(self) -> OSError | None:
        """The limits are set. Blocks until the program is executed; why it cannot be, if so."""
        self._close(*self.inherited)
        with suppress(BrokenPipeError):  # it was killed meanwhile: its exit will be seen
            os.write(self._go_write, b"\n")
        number = os.read(self._told_read, 16)
        return OSError(int(number), os.strerror(int(number))) if number else None

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *_: object) -> None:
        self._close(*self._open)

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)
