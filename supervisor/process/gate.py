"""The hygiene gate: nothing of an earlier engine is in the way of the next one.

Each item has its own time-out and its own line in the report; they run at the same time, except that files and device
memory are looked at once the leftover processes are gone that may hold them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import trio
from msgspec.structs import replace

from supervisor.process.children import Children, SpawnError
from supervisor.process.device_memory import (
    AGAIN_SEC,
    TIMEOUT_SEC,
    DeviceMemoryProbe,
    InUse,
    ProbeFailed,
    Unavailable,
    in_mib,
    read_nvml,
    run_command,
    still_in_use,
)
from supervisor.process.disk import Disk
from supervisor.process.holders import FileId, port_holders
from supervisor.process.leftover_files import (
    Findings,
    SharedMemory,
    find_locks,
    find_shared_memory,
    find_sockets,
    present_segments,
    remove,
)
from supervisor.process.members import KILL_AGAIN_SEC, Members
from supervisor.process.ports import Port, PortUnusable, holder_words, is_free
from supervisor.process.procfs import ProcessStat
from supervisor.process.threads import in_thread_or_here
from supervisor.process.watch import wait_any_death

__all__ = ["Baseline", "DeviceMemoryProbe", "GateItem", "GateReport", "GateSpec", "Port", "run_gate"]

T = TypeVar("T")

PORT_POLL_SEC = 0.2
"""How often a port is tried while nobody is known whose death would free it."""


class Baseline(msgspec.Struct, frozen=True):
    """What was there before the engine's first start, and so is not its own. None: not known yet, the gate takes it."""

    segments: frozenset[FileId] | None = None
    device_memory: InUse | None = None


class GateSpec(msgspec.Struct, frozen=True):
    invocation_ids: frozenset[str] = frozenset()
    """Of earlier starts: none of their processes may be left."""
    ports: tuple[Port, ...] = ()
    shared_memory_patterns: tuple[str, ...] = ()
    """fnmatch(3), over the names in /dev/shm. Leave it empty where /dev/shm is shared with other pods."""
    shared_memory_recorded: Mapping[Path, FileId] = msgspec.field(default_factory=dict)
    """Segments once seen open or mapped in this engine's tree alone (`segments.segments_of`)."""
    lock_patterns: tuple[str, ...] = ()
    """Absolute glob(7) patterns of lock files and ipc sockets."""
    socket_patterns: tuple[str, ...] = ()
    """The same where other files may have such names: only sockets are meant."""
    device_memory: DeviceMemoryProbe | None = None
    baseline: Baseline = Baseline()
    uids: frozenset[int] = msgspec.field(default_factory=lambda: frozenset({os.geteuid()}))
    """Whose files may be removed: ours, and the unit's User if it has one."""
    timeout_sec: float = 10.0
    """For each item; device memory has its own."""
    device_memory_timeout_sec: float = TIMEOUT_SEC


class GateItem(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    detail: str
    duration_sec: float

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} ({self.duration_sec:.1f} s)"


class GateReport(msgspec.Struct, frozen=True):
    items: tuple[GateItem, ...]
    baseline: Baseline = Baseline()
    """What was given, and what was taken."""

    @property
    def passed(self) -> bool:
        return all(item.passed for item in self.items)

    @property
    def reason(self) -> str:
        """Why it did not pass, for the controller and for people; empty if it did."""
        return "; ".join(f"{item.name}: {item.detail}" for item in self.items if not item.passed)

    def __str__(self) -> str:
        return "; ".join(map(str, self.items))


class _Note:
    """What a check would say if its time were over now."""

    def __init__(self, text: str) -> None:
        self.text = text


_Check = Callable[[_Note], Awaitable[bool]]


async def run_gate(children: Children, spec: GateSpec, disk: Disk | None = None) -> GateReport:
    """Clean up and check. Only the units' own leftovers are touched, and never what anybody still uses.

    Cancelled, what was killed or removed so far stays so; running it again is safe.
    """
    return await _Gate(children, spec, disk or Disk()).run()


class _Gate:
    """One passage."""

    def __init__(self, children: Children, spec: GateSpec, disk: Disk) -> None:
        self._children = children
        self._spec = spec
        self._disk = disk
        self._items: dict[str, GateItem] = {}
        self._baseline = spec.baseline

    async def run(self) -> GateReport:
        ports = {f"port {port}": partial(self._port, port) for port in self._spec.ports}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._in_order)
            for name, check in ports.items():
                nursery.start_soon(self._item, name, check)
        names = ("leftover processes", *ports, "shared memory", "locks", "device memory")
        items = tuple(self._items[name] for name in names if name in self._items)
        return GateReport(items, self._baseline)

    async def _in_order(self) -> None:
        await self._item("leftover processes", self._leftovers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._item, "shared memory", self._shared_memory)
            nursery.start_soon(self._item, "locks", self._locks)
            if (probe := self._spec.device_memory) is not None:
                limit = self._spec.device_memory_timeout_sec
                nursery.start_soon(self._item, "device memory", partial(self._device_memory, probe), limit)

    async def _item(self, name: str, check: _Check, timeout_sec: float | None = None) -> None:
        began = trio.current_time()
        limit = self._spec.timeout_sec if timeout_sec is None else timeout_sec
        note, passed = _Note(f"not finished within {limit:g} s"), False
        with trio.move_on_after(limit):
            try:
                passed = await check(note)
            except OSError as error:  # descriptors have run out, most likely
                note.text = f"cannot be looked at: {error}"
        self._items[name] = GateItem(name, passed, note.text, trio.current_time() - began)

    async def _leftovers(self, note: _Note) -> bool:
        members = Members(self._children, None, self._spec.invocation_ids)
        killed: dict[int, str] = {}

        def kill(found: tuple[ProcessStat, ...]) -> bool:
            new = any(stat.pid not in killed for stat in found)
            killed.update((stat.pid, stat.name) for stat in found)
            members.kill(found)
            left = ", ".join(f"{stat.pid} ({stat.name}, {_why_left(stat, members)})" for stat in found)
            note.text = f"killed, and still there: {left or 'what forks faster than it can be seen'}"
            return new

        await members.until_gone(kill, again_sec=KILL_AGAIN_SEC)
        await members.discard()
        note.text = ", ".join(f"killed {pid} ({name})" for pid, name in sorted(killed.items())) or "none"
        return True

    async def _port(self, port: Port, note: _Note) -> bool:
        began = trio.current_time()
        try:
            while not is_free(port):
                holders = await self._look("ports", partial(port_holders, port.number))
                note.text = holder_words(holders)
                with trio.move_on_after(PORT_POLL_SEC):
                    await wait_any_death(holders)
        except PortUnusable as error:
            note.text = f"cannot be bound: {error}"
            return False
        waited = trio.current_time() - began
        note.text = "free" if waited < PORT_POLL_SEC else f"free after {waited:.1f} s"
        return True

    async def _shared_memory(self, note: _Note) -> bool:
        spec = self._spec
        if (before := self._baseline.segments) is None:
            before = await self._look("shared memory", present_segments)
            self._baseline = replace(self._baseline, segments=before)
        which = SharedMemory(spec.shared_memory_patterns, spec.shared_memory_recorded, before)
        return await self._sweep("shared memory", partial(find_shared_memory, which, spec.uids), note)

    async def _locks(self, note: _Note) -> bool:
        return await self._sweep("locks", partial(_locks_and_sockets, self._spec), note)

    async def _sweep(self, what: str, find: Callable[[], Findings], note: _Note) -> bool:
        findings = await self._look(what, find)
        # Not to be left behind: a thread that removes files later would meet those of the next engine.
        swept = await in_thread_or_here(partial(remove, findings))
        removed = [f"removed {path}" for path in swept.removed]
        kept = [f"kept {reason}" for reason in findings.kept]
        note.text = "; ".join((*swept.failed, *removed, *kept)) or "nothing was left"
        return not swept.failed

    async def _device_memory(self, probe: DeviceMemoryProbe, note: _Note) -> bool:
        while True:
            try:
                if await self._memory_is_back(probe, note):
                    return True
            except Unavailable as reason:
                note.text = str(reason)
                return not probe.required
            except SpawnError as error:
                note.text = error.reason
                return False
            except ProbeFailed as failure:
                note.text = str(failure)
            await trio.sleep(AGAIN_SEC)

    async def _memory_is_back(self, probe: DeviceMemoryProbe, note: _Note) -> bool:
        if probe.command is not None:
            complaint = await run_command(self._children, probe)
            note.text = complaint or "back"
            return complaint is None
        now = await read_nvml(self._children, probe.environment)
        if (before := self._baseline.device_memory) is None:
            self._baseline = replace(self._baseline, device_memory=now)
            said = (f"{device}: {in_mib(used)}" for device, used in sorted(now.items()))
            note.text = "in use before the first start: " + (", ".join(said) or "no device is visible")
            return True
        busy = still_in_use(before, now)
        note.text = "; ".join(busy) or "back"
        return not busy

    async def _look(self, what: str, look: Callable[[], T]) -> T:
        """Only for looking: on a time-out the thread is left behind, and never more than one for each of `what`."""
        return await self._disk.ask_or_here(f"gate: {what}", look)


def _locks_and_sockets(spec: GateSpec) -> Findings:
    locks, sockets = find_locks(spec.lock_patterns, spec.uids), find_sockets(spec.socket_patterns, spec.uids)
    return Findings({**locks.removable, **sockets.removable}, (*locks.kept, *sockets.kept))


def _why_left(stat: ProcessStat, members: Members) -> str:
    return "we may not signal it" if stat.identity in members.refused else f"state {stat.state}"
