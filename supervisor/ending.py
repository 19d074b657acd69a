"""How the supervisor's life ends: who asked, with which exit code (design 3), and how patient the end is.

The first reason is kept, except that a reason to restart the container outweighs a plain stop.
"""

from __future__ import annotations

import logging

import trio

log = logging.getLogger(__name__)


EXIT_OK = 0
"""It was asked to stop, by a signal or by a unit with `StartLimitAction = "exit-success"`."""
EXIT_CANNOT_LISTEN = 1
"""A port, the socket or the state directory is taken, or an address cannot be bound."""
EXIT_INTERNAL_ERROR = 70
"""A bug: the trace is on stderr, all units were stopped. EX_SOFTWARE of sysexits.h."""
EXIT_CONFIGURATION = 78
"""Bad configuration: every problem is on stderr, nothing was started. EX_CONFIG of sysexits.h."""
EXIT_BY_SIGNAL = 128
"""Plus the signal's number, with `exit_on_term = "signal"`: 143 after SIGTERM, 130 after SIGINT. For platforms where
0 completes the task (Job, Volcano)."""
EXIT_RESTART_CONTAINER = 255
"""This container must be restarted: -1 as a process tells it."""


class Ending:
    """One per supervisor process; anybody may ask for the end, one task carries it out."""

    def __init__(self) -> None:
        self.requested = trio.Event()
        self.hurried = trio.Event()
        """Stop grace is over: kill."""
        self.exit_code = EXIT_OK
        self.reason = ""

    def request(self, exit_code: int, reason: str) -> None:
        if self.requested.is_set() and not self._outweighs(exit_code):
            return
        self.exit_code, self.reason = exit_code, reason
        level = logging.INFO if self.is_orderly else logging.WARNING
        log.log(level, "ending with exit code %d: %s", exit_code, reason)
        self.requested.set()

    def restart_container(self, reason: str) -> None:
        """The arbiter's word, or the controller's stop command."""
        self.request(EXIT_RESTART_CONTAINER, reason)

    @property
    def is_orderly(self) -> bool:
        """Somebody wants this pod to end, and nothing is wrong with it: what it is doing is worth finishing."""
        return self.exit_code != EXIT_RESTART_CONTAINER

    def hurry(self) -> None:
        self.hurried.set()

    def _outweighs(self, exit_code: int) -> bool:
        return exit_code == EXIT_RESTART_CONTAINER and self.exit_code != EXIT_RESTART_CONTAINER
