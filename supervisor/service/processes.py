"""What a service needs of the operating system, in one place: so that hours of a unit's life fit into a test.

`LinuxProcesses` is the real thing; it decides nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from supervisor.process import tree
from supervisor.process.children import Child, Children, Spawn
from supervisor.process.procfs import Identity, ProcessInfo
from supervisor.process.tree import TreeReport
from supervisor.service.progress import watch_usage
from supervisor.unit.model import KillMode
from supervisor.unit.start_clock import ProgressKind
from supervisor.wire import Whom


class Ladder(msgspec.Struct, frozen=True):
    """How a tree is to be stopped."""

    invocation_id: str
    grace_sec: float
    kill_deadline_sec: float
    mode: KillMode = KillMode.CONTROL_GROUP
    signal: str = "SIGTERM"
    final_signal: str = "SIGKILL"
    send_sigkill: bool = True
    claim_unowned: bool = False
    """No other unit can have left an orphan with a cleared environment."""


class Processes(Protocol):
    async def spawn(self, spawn: Spawn) -> Child:
        """Raise SpawnError. Cancelled before the fork or not at all."""

    async def stop(self, child: Child, ladder: Ladder) -> TreeReport:
        """Until the whole tree is gone, or the ladder's time is up. Cancelled: calling it again carries on."""

    async def signal(self, child: Child, invocation_id: str, signum: int, whom: Whom) -> tuple[int, ...]:
        """Send a signal to the main process or to all of the tree; to whom it was sent. Raise PermissionError."""

    async def find_member(self, child: Child, invocation_id: str, pid: int) -> Identity | None:
        """Who in the tree has this number; None: nobody that lives. Cancelled: nothing happened."""

    def hand_over(self, child: Child, identity: Identity) -> None:
        """Another process of its tree is the main one from now on."""

    async def wait_exit(self, child: Child) -> None:
        """Until a main process has ended; its status is set then. Cancelled: waiting again carries on."""

    async def tree_gone(self, child: Child, invocation_id: str) -> None:
        """Until no process of the tree is left by itself."""

    async def note_descendants(self, child: Child) -> tuple[ProcessInfo, ...]:
        """Remember for later stops who is below it."""

    async def any_death(self, processes: Iterable[ProcessInfo]) -> ProcessInfo:
        """The first of them to die."""

    async def watch_usage(self, child: Child, tell: Callable[[ProgressKind], None]) -> None:
        """Report what its tree reads and computes, until cancelled."""


class LinuxProcesses:
    """Processes of this container, through the one module that forks and reaps."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def spawn(self, spawn: Spawn) -> Child:
        return await self._children.spawn(spawn)

    async def stop(self, child: Child, ladder: Ladder) -> TreeReport:
        return await tree.stop_tree(
            self._children,
            child,
            invocation_id=ladder.invocation_id,
            mode=ladder.mode,
            signal=signal.Signals[ladder.signal],
            grace_sec=ladder.grace_sec,
            final_signal=signal.Signals[ladder.final_signal],
            send_sigkill=ladder.send_sigkill,
            kill_deadline_sec=ladder.kill_deadline_sec,
            claim_unowned=ladder.claim_unowned,
        )

    async def signal(self, child: Child, invocation_id: str, signum: int, whom: Whom) -> tuple[int, ...]:
        if whom is Whom.MAIN:
            return (child.main.pid,) if self._children.signal(child.main, signum) else ()
        return await tree.signal_tree(self._children, child, signum, invocation_id=invocation_id)

    async def find_member(self, child: Child, invocation_id: str, pid: int) -> Identity | None:
        return await tree.find_member(self._children, child, pid, invocation_id=invocation_id)

    def hand_over(self, child: Child, identity: Identity) -> None:
        self._children.hand_over(child, identity)

    async def wait_exit(self, child: Child) -> None:
        await self._children.wait_exit(child)

    async def tree_gone(self, child: Child, invocation_id: str) -> None:
        await tree.wait_tree_gone(self._children, child, invocation_id=invocation_id)

    async def note_descendants(self, child: Child) -> tuple[ProcessInfo, ...]:
        return await tree.note_descendants(child)

    async def any_death(self, processes: Iterable[ProcessInfo]) -> ProcessInfo:
        return await tree.wait_any_death(processes)

    async def watch_usage(self, child: Child, tell: Callable[[ProgressKind], None]) -> None:
        await watch_usage(child, tell)
