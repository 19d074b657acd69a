"""Run a command beside a unit to its end: Exec…Pre, …Post, Stop, and probes of kind Exec.

Each gets an invocation id of its own, so that clearing away what it left never touches the unit's processes.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping

import msgspec
import trio

from supervisor.process.capture import captured
from supervisor.process.children import Child, SpawnError
from supervisor.service.launch import Launch, spawn_of
from supervisor.service.processes import Ladder, Processes
from supervisor.unit.model import Command

MAX_SAID = 16 * 1024
MAX_WORDS = 200
"""Characters of a line that stands among other words."""
KILL_DEADLINE_SEC = 5.0
"""For the processes of a command that was cut short, or that it left behind."""


async def run_command(
    processes: Processes,
    launch: Launch,
    command: Command,
    *,
    stdout: int,
    stderr: int,
    timeout_sec: float = math.inf,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """None if it succeeded, else what went wrong, in words. `environment` is added to the unit's.

    Whether it ends, is out of time or is cancelled: its whole process tree is gone when this returns, unless
    something survives SIGKILL for `KILL_DEADLINE_SEC`.
    """
    try:
        return await _run(processes, launch, command, stdout, stderr, timeout_sec, environment or {})
    except SpawnError as error:
        return error.reason


async def _run(
    processes: Processes,
    launch: Launch,
    command: Command,
    stdout: int,
    stderr: int,
    timeout_sec: float,
    environment: Mapping[str, str],
) -> str | None:
    """Raise SpawnError."""
    invocation_id, name = uuid.uuid4().hex, command.argv[0]
    own = {**environment, "INVOCATION_ID": invocation_id}
    child = await processes.spawn(spawn_of(launch, command.argv, own, stdout, stderr))
    try:
        with trio.move_on_after(timeout_sec):
            await child.exited.wait()
        in_time = child.exited.is_set()
    finally:
        await _clear_away(processes, child, invocation_id)
    if not in_time:
        return f"{name} did not end within {timeout_sec:g} s"
    if child.status is not None and child.status.code == 0:
        return None
    return f"{name}: {child.status}"


class CommandReport(msgspec.Struct, frozen=True):
    failure: str | None
    """None: it succeeded."""
    lines: tuple[str, ...]

    @property
    def words(self) -> str:
        """For people: what went wrong, and the last that it said."""
        last = (line[:MAX_WORDS] for line in self.lines[-1:])
        return ": ".join((self.failure or "done", *last))


async def run_captured(
    processes: Processes,
    launch: Launch,
    command: Command,
    *,
    timeout_sec: float = math.inf,
    environment: Mapping[str, str] | None = None,
) -> CommandReport:
    """As `run_command`, with the first `MAX_SAID` bytes of its output. Raise SpawnError, OSError: it was not run."""
    not_run: SpawnError | None = None
    failure: str | None = None
    async with captured(MAX_SAID) as capture:
        try:
            failure = await _run(processes, launch, command, capture.fd, capture.fd, timeout_sec, environment or {})
        except SpawnError as error:
            not_run = error  # raised in there it would come out as a group
    if not_run is not None:
        raise not_run
    return CommandReport(failure, capture.lines)


async def _clear_away(processes: Processes, child: Child, invocation_id: str) -> None:
    with trio.CancelScope(deadline=trio.current_time() + 2 * KILL_DEADLINE_SEC, shield=True):
        await processes.stop(child, Ladder(invocation_id, grace_sec=0.0, kill_deadline_sec=KILL_DEADLINE_SEC))
