"""Stop a unit's whole tree, verified.

The ladder is systemd's (systemd.kill(5)), with one difference in `mixed`: when the main process went, the others
are asked as well before they are killed. "Gone" means that two scans found nothing and all is reaped.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from errno import EPERM

import msgspec
import trio

from supervisor.process.children import Child, Children
from supervisor.process.members import KILL_AGAIN_SEC, Members
from supervisor.process.procfs import Identity, ProcessStat
from supervisor.process.watch import descendants, matching, note_descendants, wait_any_death
from supervisor.unit.model import KillMode

__all__ = [
    "Survivor",
    "TreeReport",
    "descendants",
    "matching",
    "note_descendants",
    "signal_tree",
    "stop_tree",
    "wait_any_death",
    "wait_tree_gone",
]

BLIND_SEC = 0.5
"""How long the first signal waits for the first look."""
LOOKS_FOR_ONE = 2
"""One look may miss who changes its parent meanwhile."""
LAST_LOOK_SEC = 1.0
"""Beyond all deadlines: one look for an honest report."""


class Survivor(msgspec.Struct, frozen=True):
    pid: int
    name: str
    why: str


class TreeReport(msgspec.Struct, frozen=True):
    gone: bool
    """Verified: nothing is left and everything is reaped."""
    escalated: bool
    """Asking was not enough; the final signal had to be sent."""
    killed: tuple[int, ...]
    """To which processes the final signal was sent."""
    survivors: tuple[Survivor, ...]
    """What was left when time was up; of a tree that kept forking, what the last look saw."""
    duration_sec: float
    left_behind: tuple[int, ...] = ()
    """What the main process, which had ended by itself, had left running."""

    @property
    def reason(self) -> str:
        """Why it is not gone, for people; empty if it is."""
        if self.gone:
            return ""
        if not self.survivors:
            return f"after {self.duration_sec:.1f} s it could not be verified that no process is left"
        left = ", ".join(f"{one.pid} ({one.name}: {one.why})" for one in self.survivors)
        return f"after {self.duration_sec:.1f} s still there: {left}"


async def stop_tree(
    children: Children,
    child: Child,
    *,
    invocation_id: str,
    mode: KillMode | str,
    signal: int,
    grace_sec: float,
    final_signal: int = signal.SIGKILL,
    send_sigkill: bool = True,
    kill_deadline_sec: float = 10.0,
    claim_unowned: bool = False,
) -> TreeReport:
    """Ask, wait, kill, verify; then release the child, if it is dead.

    Works from every state: running, crashed, stopped by SIGSTOP, gone. With no grace nothing is asked first. Never
    takes longer than the grace, the kill deadline and a second for the report. The caller sees to it that no spawn
    with this invocation id is in flight, and says with `claim_unowned` that no other unit can have left an orphan
    with a cleared environment.

    Cancelled: signals that were sent stay sent, the child is not released, and calling it again carries on.
    """
    ladder = _Ladder(children, child, invocation_id, KillMode(mode), claim_unowned)
    ended_by_itself = child.main.exited.is_set()
    began = trio.current_time()
    grace_end = began + max(0.0, grace_sec)
    if grace_sec > 0:
        with trio.move_on_at(grace_end):
            await ladder.ask(signal)
    if send_sigkill and not ladder.gone:
        with trio.move_on_at(grace_end + kill_deadline_sec):
            await ladder.kill(final_signal)
    survivors = () if ladder.gone else await ladder.survivors()
    await ladder.discard()
    if child.main.exited.is_set():
        _leave(children, child, gone=ladder.gone)
    return TreeReport(
        gone=ladder.gone,
        escalated=bool(ladder.killed),
        killed=tuple(sorted(ladder.killed)),
        left_behind=tuple(sorted(ladder.met)) if ended_by_itself else (),
        survivors=survivors,
        duration_sec=trio.current_time() - began,
    )


def _leave(children: Children, child: Child, *, gone: bool) -> None:
    """The main process is dead. KillMode=process spares others, and so the one that it has taken over from."""
    if child.exited.is_set():
        children.release(child)
    elif gone:
        children.abandon(child)


async def wait_tree_gone(children: Children, child: Child, *, invocation_id: str) -> None:
    """Wait until no process of a unit is left, without touching any (ExitType=cgroup). Does not release the child."""
    await Members(children, child, (invocation_id,)).until_gone(lambda _: False)


async def signal_tree(children: Children, child: Child, signum: int, *, invocation_id: str) -> tuple[int, ...]:
    """Signal all that belong to a unit at this moment, once; to whom it was sent. Does not release the child.

    Raise PermissionError if there are some and not one of them may be signalled. Cancelled: nothing was sent.
    """
    members = Members(children, child, (invocation_id,))
    found = (await members.look()).members
    members.signal(found, signum)
    if found and len(members.refused) == len(found):
        raise PermissionError(EPERM, "not permitted to signal any of its processes")
    return tuple(stat.pid for stat in found if stat.identity not in members.refused)


async def find_member(children: Children, child: Child, pid: int, *, invocation_id: str) -> Identity | None:
    """Who in a unit's tree has this number; None: nobody that lives. Whoever is found is remembered for the stop."""
    members = Members(children, child, (invocation_id,))
    for _ in range(LOOKS_FOR_ONE):
        found = await members.look()
        for stat in found.members:
            if stat.pid == pid:
                return stat.identity
    return None


class _Ladder:
    """The steps of one stop. `gone` becomes true only when a step has run to its end."""

    def __init__(
        self, children: Children, child: Child, invocation_id: str, mode: KillMode, claim_unowned: bool
    ) -> None:
        self._children = children
        self._main = child.main
        self._mode = mode
        self._members = Members(children, child, (invocation_id,), claim_unowned=claim_unowned)
        self._asked: set[Identity] = set()
        self._sentenced: set[Identity] = set()
        self.killed: set[int] = set()
        self.met: set[int] = set()
        """Beside the main process."""
        self.gone = False

    async def ask(self, signum: int) -> None:
        if self._mode is not KillMode.CONTROL_GROUP:
            await self._ask_main(signum)
        if self._mode is not KillMode.PROCESS:
            await self._members.until_gone(lambda members: self._ask_each(members, signum))
        self.gone = True

    async def kill(self, signum: int) -> None:
        if self._mode is KillMode.PROCESS:
            await self._kill_main(signum)
        else:
            await self._look_or_kill_blindly()
            if signum == signal.SIGKILL:
                await self._strike()
            await self._members.until_gone(lambda members: self._kill_each(members, signum), again_sec=KILL_AGAIN_SEC)
        self.gone = True

    async def survivors(self) -> tuple[Survivor, ...]:
        with trio.move_on_after(LAST_LOOK_SEC):
            await self._members.look()
        return tuple(
            Survivor(stat.pid, stat.name, self._why(stat))
            for stat in self._members.last_seen
            if self._mode is not KillMode.PROCESS or stat.pid == self._main.pid
        )

    async def discard(self) -> None:
        """The unit's cgroup; where somebody lives in it, it stays."""
        if self.gone:
            with trio.move_on_after(LAST_LOOK_SEC):
                await self._members.discard()

    async def _ask_main(self, signum: int) -> None:
        if self._main.exited.is_set():
            return  # after a crash there is nobody to ask first, and each look costs milliseconds of a restart
        with trio.move_on_after(BLIND_SEC):
            await self._members.look()  # remembers who is below it while the parents live
        self._asked.add(self._main.identity)
        self._signal_main(signum)
        if self._mode is KillMode.MIXED:
            self._members.signal(self._members.last_seen, signal.SIGCONT)  # it may wait for others that are stopped
        await self._children.wait_exit(self._main)

    def _signal_main(self, signum: int) -> None:
        """By its number, which is pinned until it is released: that works without a descriptor left, too."""
        try:
            self._children.signal(self._main, signum)
            self._children.signal(self._main, signal.SIGCONT)
        except PermissionError:
            self._members.refused.add(self._main.identity)

    async def _look_or_kill_blindly(self) -> None:
        """The group must be killed even when a scan hangs on the /proc of some process in a driver."""
        with trio.move_on_after(BLIND_SEC) as patience:
            await self._members.look()
        if patience.cancelled_caught:
            self._members.kill(())

    async def _strike(self) -> None:
        """Whom the first look has met, and the cgroup, at once: while a tree forks, the next look may take long."""
        self._kill_each(self._members.last_seen, signal.SIGKILL)
        with trio.move_on_after(BLIND_SEC):
            await self._members.kill_cgroup()

    def _ask_each(self, members: Iterable[ProcessStat], signum: int) -> bool:
        fresh = [stat for stat in members if stat.identity not in self._asked]
        self._asked.update(stat.identity for stat in fresh)
        self._meet(fresh)
        self._members.signal(fresh, signum)
        self._members.signal(fresh, signal.SIGCONT)  # a stopped process hears nothing else (systemd.kill(5))
        return bool(fresh)

    async def _kill_main(self, signum: int) -> None:
        if not self._main.exited.is_set():
            self._sentenced.add(self._main.identity)
            self.killed.add(self._main.pid)
            self._signal_main(signum)
        await self._children.wait_exit(self._main)

    def _kill_each(self, members: Sequence[ProcessStat], signum: int) -> bool:
        fresh = [stat for stat in members if stat.identity not in self._sentenced]
        self._sentenced.update(stat.identity for stat in fresh)
        self.killed.update(stat.pid for stat in fresh)
        self._meet(fresh)
        if signum == signal.SIGKILL and self._mode is not KillMode.PROCESS:
            self._members.kill(members)
        else:
            self._members.signal(fresh, signum)
            self._members.signal(fresh, signal.SIGCONT)
        return bool(fresh)

    def _meet(self, members: Iterable[ProcessStat]) -> None:
        self.met.update(stat.pid for stat in members if stat.pid != self._main.pid)

    def _why(self, stat: ProcessStat) -> str:
        if stat.identity in self._members.refused:
            return "we are not permitted to signal it (it runs as another user and CAP_KILL is missing)"
        if stat.state == "D":
            return "in uninterruptible sleep in the kernel (state D)"
        if stat.identity in self._sentenced:
            return "has not ended although the final signal was sent"
        if stat.identity in self._asked:
            return "has not ended when asked, and SendSIGKILL is off"
        return "was not asked in time"
