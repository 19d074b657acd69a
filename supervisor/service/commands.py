"""Run a command beside a unit to its end: Exec…Pre, …Post, Stop, and probes of kind Exec.

Each gets an invocation id of its own, so that clearing away what it left never touches the unit's processes.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping

import trio

from supervisor.process.children import Child, SpawnError
from supervisor.service.launch import Launch, spawn_of
from supervisor.service.processes import Ladder, Processes
from supervisor.unit.model import Command

KILL_DEADLINE_SEC = 5.0
"""For the processes of a command that was cut short, or that it left behind."""


async def run_command(
    processes: Processes,
    launch: Launch,
    command: Command,
    *,
    stdout: int | None,
    stderr: int | None,
    timeout_sec: float = math.inf,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """None if it succeeded, else what went wrong, in words. `environment` is added to the unit's.

    Whether it ends, is out of time or is cancelled: its whole process tree is gone when this returns, unless
    something survives SIGKILL for `KILL_DEADLINE_SEC`.
    """
    invocation_id = uuid.uuid4().hex
    name = command.argv[0]
    try:
        own = {**(environment or {}), "INVOCATION_ID": invocation_id}
        child = await processes.spawn(spawn_of(launch, command.argv, own, stdout, stderr))
    except SpawnError as error:
        return error.reason
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


async def _clear_away(processes: Processes, child: Child, invocation_id: str) -> None:
    with trio.CancelScope(deadline=trio.current_time() + 2 * KILL_DEADLINE_SEC, shield=True):
        await processes.stop(child, Ladder(invocation_id, grace_sec=0.0, kill_deadline_sec=KILL_DEADLINE_SEC))
