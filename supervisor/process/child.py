"""A process that somebody looks after, and how it ended. Who forks, watches and reaps it: `children.py`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import trio

from supervisor.process.procfs import Identity


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: one of `code` and `signal` is set, or neither when its own parent alone has been told."""

    code: int | None
    signal: str | None
    """By name: "SIGKILL"."""
    core_dumped: bool = False

    def __str__(self) -> str:
        if self.signal is None:
            return "exit status unknown" if self.code is None else f"exit status {self.code}"
        return f"killed by {self.signal}" + (", core dumped" if self.core_dumped else "")


@dataclass(eq=False, slots=True)
class Child:
    """One managed process, leader of its own process group and, unless it stays in ours, session (pid = group).

    Made by `Children.spawn`; everything here is written by `Children` and `tree.py` alone.
    """

    pid: int
    started_at: float
    """trio time."""
    started_ticks: int
    exited: trio.Event = field(default_factory=trio.Event)
    status: ExitStatus | None = None
    """Set before `exited` is."""
    released: bool = False
    seen: set[Identity] = field(default_factory=set)
    """Processes once seen below it: they are still known when their parents are gone."""
    stopped: Callable[[int], None] | None = None
    """Told each signal that stops it; for whoever shares a terminal with it."""
    successor: Child | None = None
    """The process that it has handed over to: no leader of anything, and perhaps no child of ours."""

    @property
    def identity(self) -> Identity:
        return self.pid, self.started_ticks

    @property
    def main(self) -> Child:
        """The process whose end is the unit's."""
        return self if self.successor is None else self.successor


def exit_status(result: os.waitid_result) -> ExitStatus:
    if result.si_code == os.CLD_EXITED:
        return ExitStatus(code=result.si_status, signal=None)
    return ExitStatus(None, _signal_name(result.si_status), core_dumped=result.si_code == os.CLD_DUMPED)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
