"""Run a small program to its end, beside the units, and read what it wrote.

For questions that may hang: to a device driver, say. Its output goes to a file in memory, bounded, so that nothing
has to be read while it runs.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Mapping

import msgspec
import trio

from supervisor.process.children import Children, ExitStatus, Spawn
from supervisor.process.tree import stop_tree
from supervisor.unit.model import ResourceLimit

OUTPUT_BYTES = 64 * 1024
FILE_BYTES = 1024 * 1024
"""What it may write at all, here or elsewhere."""
LINE_CHARACTERS = 200
KILL_SEC = 2.0
"""For a helper that hangs: what is still there afterwards is in the kernel, and reaped when it ends."""


class Answer(msgspec.Struct, frozen=True):
    status: ExitStatus | None
    """None: it did not end in time."""
    output: str

    @property
    def last_line(self) -> str:
        lines = self.output.strip().splitlines()
        return lines[-1].strip()[:LINE_CHARACTERS] if lines else ""


async def ask(children: Children, argv: tuple[str, ...], environment: Mapping[str, str], timeout_sec: float) -> Answer:
    """Raise SpawnError, and OSError when descriptors have run out.

    Takes the time-out and `KILL_SEC` at most, and so does a cancel: then its whole tree is gone, or unkillable.
    """
    invocation_id = uuid.uuid4().hex
    output = os.memfd_create("podvisor-helper")
    try:
        child = await children.spawn(
            Spawn(
                argv,
                {**environment, "INVOCATION_ID": invocation_id},
                stdout=output,
                stderr=output,
                limits=(ResourceLimit("FSIZE", FILE_BYTES, None),),
            )
        )
        try:
            with trio.move_on_after(timeout_sec):
                await child.exited.wait()
        finally:
            with trio.CancelScope(deadline=trio.current_time() + 2 * KILL_SEC, shield=True):
                await stop_tree(
                    children,
                    child,
                    invocation_id=invocation_id,
                    mode="control-group",
                    signal=signal.SIGTERM,
                    grace_sec=0.0,
                    kill_deadline_sec=KILL_SEC,
                )
        ended = child.status is not None and child.status.signal != "SIGKILL"
        return Answer(child.status if ended else None, os.pread(output, OUTPUT_BYTES, 0).decode("utf-8", "replace"))
    finally:
        os.close(output)
