"""The live processes of one unit: look for them, signal them, wait until there are none.

Whose a process is, decides `attribution.py`; in which order and with which signals a unit is stopped, `tree.py`.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import trio
from msgspec.structs import replace

from supervisor.process import procfs
from supervisor.process.attribution import Found, Marks, Surroundings, find_members
from supervisor.process.brand import brands, read_brand
from supervisor.process.cgroup import Cgroups
from supervisor.process.children import Child, Children
from supervisor.process.pidfd import OUT_OF_DESCRIPTORS, OUT_OF_DESCRIPTORS_SEC, signal_process, wait_all_dead
from supervisor.process.procfs import Identity, ProcessStat
from supervisor.process.threads import in_thread_or_here

_DOUBT_SEC = 0.02
"""Two ticks of the clock of start times: after that a process is certainly older than the next look."""
_MOST_DOUBTS = 5
_UNSEEN_SEC = 0.02
"""Between two looks for what lives in a cgroup and is gone before it is seen."""
_ANOTHER = "another invocation"
KILL_AGAIN_SEC = 0.25
"""How long a round of killing waits for its dead before it looks again for what they forked meanwhile."""


class Members:
    """Finds what belongs to a child, or, without one, what carries one of the invocation ids."""

    def __init__(
        self,
        children: Children,
        child: Child | None,
        invocation_ids: Iterable[str],
        *,
        claim_unowned: bool = False,
    ) -> None:
        self._children = children
        self._child = child
        self._invocation_ids = frozenset(invocation_ids)
        self._seen: set[Identity] = set() if child is None else child.seen
        self._claim_unowned = claim_unowned
        self.last_seen: tuple[ProcessStat, ...] = ()
        self.refused: set[Identity] = set()
        """Those we were not permitted to signal."""
        self._killing = False
        self._brands = brands(self._invocation_ids)
        self._missed = False
        """One of them died that no look has seen: there may be more."""

    async def look(self) -> Found:
        """Scan once, in a worker thread: reading /proc of a process that hangs in a driver can hang too.

        When descriptors have run out it waits until there are some. Cancelled, the thread is left behind; it changes
        nothing, but that after `kill` the cgroup is killed first: nothing will ever be put into that one any more.
        """
        around = Surroundings(
            supervisor=os.getpid(),
            supervisor_session=os.getsid(0),
            managed=self._children.managed,
            newborn_ticks=self._children.newborn_ticks(),
        )
        invocation_of = partial(_invocation_of, self._brands, self._children.branding.own)
        scan = partial(_scan, self._children.cgroups, self._killing, self._marks(), around, invocation_of)
        while True:
            try:
                found = await in_thread_or_here(scan, limiter=self._children.scan_threads, abandon_on_cancel=True)
                break
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
            await trio.sleep(OUT_OF_DESCRIPTORS_SEC)
        self._seen.update(stat.identity for stat in found.members)
        self.last_seen = found.members
        return found

    def signal(self, members: Iterable[ProcessStat], signum: int) -> None:
        """Signal each of them; the dead are passed over."""
        for stat in members:
            try:
                signal_process(stat.identity, signum)
            except PermissionError:
                self.refused.add(stat.identity)

    def kill(self, members: Sequence[ProcessStat]) -> None:
        """SIGKILL: the child's group in one stroke, which no fork escapes, and one by one those outside of it.

        Each look from now on begins with the kill of the unit's cgroup, if it has one; nor does setsid escape that.
        """
        self._killing = True
        self.signal((stat for stat in members if not self._in_group(stat)), signal.SIGKILL)
        if self._child is None:
            return
        try:
            self._children.signal_group(self._child, signal.SIGKILL)
        except PermissionError:
            self.refused.update(stat.identity for stat in members if self._in_group(stat))

    async def kill_cgroup(self) -> None:
        """Cancelled, the thread is left behind, and kills all the same."""
        cgroups = self._children.cgroups
        if cgroups.has(self._invocation_ids):
            await in_thread_or_here(partial(cgroups.kill, self._invocation_ids), abandon_on_cancel=True)

    def _in_group(self, stat: ProcessStat) -> bool:
        return self._child is not None and not self._child.released and stat.group == self._child.pid

    async def until_gone(self, act: Callable[[tuple[ProcessStat, ...]], bool], *, again_sec: float = math.inf) -> None:
        """Act on what there is, wait for its death, look again, until two looks agree that nothing is left.

        One look is no proof: a process can fork and die behind the back of a scan. When `act` says that it met new
        ones the next look follows at once, because they may have forked meanwhile; otherwise it waits, at most
        `again_sec`. All that died is reaped when this returns.

        A look that sees nothing proves nothing while something lives in the unit's cgroup, or when an orphan of the
        unit died meanwhile that was never seen.
        """
        with self._children.telling(self._mourn):
            await self._until_two_quiet_looks(act, again_sec)
        self._children.collect()

    async def _until_two_quiet_looks(self, act: Callable[[tuple[ProcessStat, ...]], bool], again_sec: float) -> None:
        quiet_looks, doubts = 0, 0
        while quiet_looks < 2:
            found = await self.look()
            self._children.collect()
            missed, self._missed = self._missed, False  # since the last look: a pause counts, too
            if found.members or found.unseen or missed:
                quiet_looks = 0
                if not act(found.members):
                    with trio.move_on_after(again_sec):
                        await _changed(found)
            elif found.in_doubt and doubts < _MOST_DOUBTS:
                doubts += 1
                await trio.sleep(_DOUBT_SEC)
            else:
                quiet_looks += 1

    def _mourn(self, pid: int) -> None:
        if read_brand(pid) not in self._brands:
            return
        stat = procfs.read_stat(pid)
        self._missed |= stat is not None and stat.identity not in self._seen

    async def discard(self) -> None:
        """Remove the cgroups, in which nothing lives any more. Cancelled: what was not removed is, the next time."""
        cgroups = self._children.cgroups
        if cgroups.has(self._invocation_ids):
            remove = partial(cgroups.remove, self._invocation_ids)
            await in_thread_or_here(remove, limiter=self._children.scan_threads, abandon_on_cancel=True)

    def _marks(self) -> Marks:
        child = self._child
        if child is None:
            return Marks(None, self._invocation_ids)
        return Marks(
            leader=None if child.released else child.pid,
            invocation_ids=self._invocation_ids,
            seen=frozenset(child.seen),
            claims_unowned_since=child.started_ticks if self._claim_unowned else None,
        )


async def _changed(found: Found) -> None:
    """Who was found is dead, or, of those that were not seen, another may be."""
    if found.members:
        await wait_all_dead(stat.identity for stat in found.members)
    else:
        await trio.sleep(_UNSEEN_SEC)


def _scan(
    cgroups: Cgroups,
    killing: bool,
    marks: Marks,
    around: Surroundings,
    invocation_of: Callable[[int], str | None],
) -> Found:
    if killing:
        cgroups.kill(marks.invocation_ids)
    stats = procfs.scan()
    found = find_members(stats, marks, around, invocation_of, cgroups.pids(marks.invocation_ids))
    return replace(found, unseen=not found.members and cgroups.populated(marks.invocation_ids))


def _invocation_of(known: Mapping[int, str], own: int, pid: int) -> str | None:
    """By its brand if it bears one that we gave, else by its environment; None if nothing can be known."""
    brand = read_brand(pid)
    if brand is not None and brand != own:
        return known.get(brand, _ANOTHER)
    return procfs.environment_value(pid, "INVOCATION_ID")
