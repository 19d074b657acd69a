"""DiagnoseExec: evidence of a unit that is up and sick, collected before it is stopped (design 3, Evidence first).

It runs beside the operations of its unit, not as one of them: the stop's ladder does not wait for it. The end of the
stop does, for `KILL_DEADLINE_SEC` at most: a command may be there that cannot be killed (a driver holds it). When the
unit is stopped is decided in `supervisor.unit.descent`.
"""

from __future__ import annotations

import logging

import trio

from supervisor.process.capture import Capture, captured
from supervisor.service.commands import KILL_DEADLINE_SEC, run_command
from supervisor.service.fault_boundary import fault_of
from supervisor.service.launch import Launch
from supervisor.service.processes import Processes
from supervisor.unit.descent import DIAGNOSE_SEC
from supervisor.unit.model import Command

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""So much of the output is kept with the exit."""


class Diagnosis:
    """Of one invocation."""

    def __init__(self, processes: Processes, launch: Launch, command: Command, main_pid: int | None) -> None:
        self._processes = processes
        self._launch = launch
        self._command = command
        self._main_pid = main_pid
        self._capture: Capture | None = None
        self._failure: str | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    @property
    def lines(self) -> tuple[str, ...]:
        """What it has said so far, and at the end what was wrong with it."""
        said = () if self._capture is None else self._capture.lines
        return said if self._failure is None else (*said, f"DiagnoseExec: {self._failure}")

    def end(self) -> None:
        """The unit is being stopped: what was said until now is kept."""
        self._scope.cancel(reason="the unit is being stopped")

    async def run(self) -> bool:
        """Whether the unit still waits for it. Cancelled or out of time: its processes are gone when this returns."""
        try:
            with self._scope:
                self._failure = await self._run()
                log.info(
                    "%s: evidence collected: %d lines, kept with the exit",
                    self._launch.unit,
                    len(self.lines),
                    extra={"unit": self._launch.unit, "pid": self._main_pid},
                )
        except* Exception as errors:  # noqa: BLE001  # of this unit's
            self._failure = fault_of(self._launch.unit, "DiagnoseExec", errors)
        finally:
            self._ended.set()
        return not self._scope.cancel_called

    async def gone(self) -> None:
        """Until nothing of it runs, or `KILL_DEADLINE_SEC` are over. Cancelled: it goes on being ended."""
        with trio.move_on_after(KILL_DEADLINE_SEC):
            await self._ended.wait()

    async def _run(self) -> str | None:
        try:
            async with captured(MAX_BYTES) as self._capture:
                return await run_command(
                    self._processes,
                    self._launch,
                    self._command,
                    stdout=self._capture.fd,
                    stderr=self._capture.fd,
                    timeout_sec=DIAGNOSE_SEC,
                    environment={"MAINPID": str(self._main_pid or "")},
                )
        except OSError as error:  # descriptors have run out
            return f"cannot be run: {error}"
