"""The terminal that `podvisor run -- COMMAND` was started from, lent to the command.

The command is a job of ours, as ours is a shell's: a process group in our session that stands in the foreground
while it runs. So it has job control, reads the keyboard, and Ctrl-C, Ctrl-Z and a change of the window's size come to
it from the kernel. For a moment after its start it is in the background still: what touches the terminal then is
stopped, and goes on when the terminal has been lent. All of it wants SIGTTOU blocked in us: without that a job in the
background that touches the terminal is stopped.
"""

from __future__ import annotations

import os
from contextlib import suppress

from supervisor.process.subreaper import is_pid_one

STDIN = 0


class Terminal:
    """Our controlling terminal, which is our standard input."""

    @property
    def ours(self) -> bool:
        """Whether our process group is in the foreground."""
        try:
            return os.tcgetpgrp(STDIN) == os.getpgrp()
        except OSError:
            return False  # hung up

    @property
    def shell_waits(self) -> bool:
        """Somebody outside sees us stopped and can bring us back; not the leader of a session, nor PID 1."""
        return not is_pid_one() and os.getsid(0) != os.getpid()

    def lend(self, group: int) -> None:
        """Put the command in the foreground. Nothing if the terminal is gone, or the command is."""
        with suppress(OSError):
            os.tcsetpgrp(STDIN, group)

    def take_back(self) -> None:
        self.lend(os.getpgrp())


def controlling_terminal() -> Terminal | None:
    """None where there is none, or where it is another job's: then the command gets a session of its own."""
    found = Terminal()
    return found if found.ours else None
