"""The hygiene gate: nothing of an earlier engine is in the way of the next one.

Each item has its own time-out and its own line in the report; they run at the same time, except that files are
looked at once the leftover processes are gone that may hold them. Device memory is not looked at here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from supervisor.process.children import Children
from supervisor.process.holders import port_holders
from supervisor.process.leftover_files import (
    Findings,
    SharedMemory,
    find_locks,
    find_shared_memory,
    find_sockets,
    remove,
)
from supervisor.process.members import KILL_AGAIN_SEC, Members
from supervisor.process.ports import Port, PortUnusable, holder_words, is_free
from supervisor.process.procfs import ProcessStat
from supervisor.process.threads import in_thread_or_here
from supervisor.process.watch import wait_any_death

__all__ = ["GateItem", "GateReport", "GateSpec", "Port", "run_gate"]

T = TypeVar("T")

PORT_POLL_SEC = 0.2
"""How often a port is tried while nobody is known whose death would free it."""


class GateSpec(msgspec.Struct, frozen=True):
    invocation_ids: frozenset[str] = frozenset()
    """Of earlier starts: none of their processes may be left."""
    ports: tuple[Port, ...] = ()
    shared_memory_patterns: tuple[str, ...] = ()
    """fnmatch(3), over the names in /dev/shm. Leave it empty where /dev/shm is shared with other pods."""
    shared_memory_recorded: frozenset[Path] = frozenset()
    """Segments once seen open or mapped in this engine's tree (`holders.held_below`)."""
    shared_memory_not_before: float = 0.0
    """Unix time; what only matches a pattern and is older is not touched."""
    lock_patterns: tuple[str, ...] = ()
    """Absolute glob(7) patterns of lock files and ipc sockets."""
    socket_patterns: tuple[str, ...] = ()
    """The same where other files may have such names: only sockets are meant."""
    uids: frozenset[int] = msgspec.field(default_factory=lambda: frozenset({os.geteuid()}))
    """Whose files may be removed: ours, and the unit's User if it has one."""
    timeout_sec: float = 10.0
    """For each item."""


class GateItem(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    detail: str
    duration_sec: float


class GateReport(msgspec.Struct, frozen=True):
    items: tuple[GateItem, ...]

    @property
    def passed(self) -> bool:
        return all(item.passed for item in self.items)

    @property
    def reason(self) -> str:
        """Why it did not pass, for the controller and for people; empty if it did."""
        return "; ".join(f"{item.name}: {item.detail}" for item in self.items if not item.passed)


class _Note:
    """What a check would say if its time were over now."""

    def __init__(self, text: str) -> None:
        self.text = text


_Check = Callable[[_Note], Awaitable[bool]]


async def run_gate(children: Children, spec: GateSpec) -> GateReport:
    """Clean up and check. Only the units' own leftovers are touched, and never what anybody still uses.

    Cancelled, what was killed or removed so far stays so; running it again is safe.
    """
    items: dict[str, GateItem] = {}
    finders = _finders(spec)

    async def run(name: str, check: _Check) -> None:
        began = trio.current_time()
        note, passed = _Note(f"not finished within {spec.timeout_sec:g} s"), False
        with trio.move_on_after(spec.timeout_sec):
            try:
                passed = await check(note)
            except OSError as error:  # descriptors have run out, most likely
                note.text = f"cannot be looked at: {error}"
        items[name] = GateItem(name, passed, note.text, trio.current_time() - began)

    async def run_in_order() -> None:
        # A leftover process may still hold the files.
        await run("leftover processes", partial(_leftovers, children, spec.invocation_ids))
        async with trio.open_nursery() as files:
            for name, find in finders.items():
                files.start_soon(run, name, partial(_files, children, find))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_in_order)
        for port in spec.ports:
            nursery.start_soon(run, f"port {port}", partial(_port, children, port))
    names = ("leftover processes", *(f"port {port}" for port in spec.ports), *finders)
    return GateReport(tuple(items[name] for name in dict.fromkeys(names)))


async def _leftovers(children: Children, invocation_ids: frozenset[str], note: _Note) -> bool:
    members = Members(children, None, invocation_ids)
    killed: dict[int, str] = {}

    def kill(found: tuple[ProcessStat, ...]) -> bool:
        new = any(stat.pid not in killed for stat in found)
        killed.update((stat.pid, stat.name) for stat in found)
        members.kill(found)
        left = ", ".join(f"{stat.pid} ({stat.name}, state {stat.state})" for stat in found)
        note.text = f"killed, and still there: {left}"
        return new

    await members.until_gone(kill, again_sec=KILL_AGAIN_SEC)
    note.text = ", ".join(f"killed {pid} ({name})" for pid, name in sorted(killed.items())) or "none"
    return True


async def _port(children: Children, port: Port, note: _Note) -> bool:
    began = trio.current_time()
    try:
        while not is_free(port):
            holders = await _in_thread(children, partial(port_holders, port.number))
            note.text = holder_words(holders)
            with trio.move_on_after(PORT_POLL_SEC):
                await wait_any_death(holders)
    except PortUnusable as error:
        note.text = f"cannot be bound: {error}"
        return False
    waited = trio.current_time() - began
    note.text = "free" if waited < PORT_POLL_SEC else f"free after {waited:.1f} s"
    return True


async def _files(children: Children, find: Callable[[], Findings], note: _Note) -> bool:
    findings = await _in_thread(children, find)
    # Not to be left behind: a thread that removes files later would meet those of the next engine.
    swept = await in_thread_or_here(partial(remove, findings))
    removed = [f"removed {path}" for path in swept.removed]
    kept = [f"kept {reason}" for reason in findings.kept]
    note.text = "; ".join((*swept.failed, *removed, *kept)) or "nothing was left"
    return not swept.failed


def _finders(spec: GateSpec) -> dict[str, Callable[[], Findings]]:
    segments = SharedMemory(spec.shared_memory_patterns, spec.shared_memory_recorded, spec.shared_memory_not_before)
    return {
        "shared memory": partial(find_shared_memory, segments, spec.uids),
        "locks": partial(_locks_and_sockets, spec),
    }


def _locks_and_sockets(spec: GateSpec) -> Findings:
    locks, sockets = find_locks(spec.lock_patterns, spec.uids), find_sockets(spec.socket_patterns, spec.uids)
    return Findings({**locks.removable, **sockets.removable}, (*locks.kept, *sockets.kept))


async def _in_thread(children: Children, look: Callable[[], T]) -> T:
    """Only for looking: on a time-out the thread is left behind."""
    return await in_thread_or_here(look, abandon_on_cancel=True, limiter=children.scan_threads)
