"""How a process ended, in the words of the kernel's answer."""

from __future__ import annotations

import os
import signal

import msgspec


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: exactly one of `code` and `signal` is set."""

    code: int | None
    signal: str | None
    """By name: "SIGKILL"."""
    core_dumped: bool = False

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit status {self.code}"
        return f"killed by {self.signal}" + (", core dumped" if self.core_dumped else "")


def exit_status_of(result: os.waitid_result) -> ExitStatus:
    if result.si_code == os.CLD_EXITED:
        return ExitStatus(code=result.si_status, signal=None)
    return ExitStatus(None, _signal_name(result.si_status), core_dumped=result.si_code == os.CLD_DUMPED)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
