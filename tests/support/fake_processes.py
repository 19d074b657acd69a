"""Processes that cost no time: the contract of `supervisor.service.processes`, under a jumping clock.

A program is chosen by its argv[0]; what it does is plain data. The fake keeps the promises of the real thing: an exit
is told once, a stop ladder asks, waits, kills and reports survivors, a cancelled ladder can be called again.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from supervisor.process.children import Child, ExitStatus, Spawn, SpawnError
from supervisor.process.output import Pipes
from supervisor.process.procfs import Identity, ProcessInfo
from supervisor.process.tail import Follower, Tail
from supervisor.process.tree import Survivor, TreeReport
from supervisor.service.processes import Ladder
from supervisor.unit.model import Logging
from supervisor.unit.start_clock import ProgressKind
from supervisor.wire import Whom

OK = ExitStatus(0, None)
FAILED = ExitStatus(1, None)
KILLED = ExitStatus(None, "SIGKILL")


@dataclass(frozen=True)
class Program:
    runs_sec: float = float("inf")
    ends: ExitStatus = OK
    obeys_after_sec: float | None = 0.0
    """How long it takes to end when asked; None: it ignores being asked."""
    dies_after_sec: float = 0.0
    """How long it takes to end when killed."""
    unkillable: bool = False
    spawn_takes_sec: float = 0.0
    spawn_fails: SpawnError | None = None
    leaves_orphan: bool = False
    """Something of it lives on when it ends by itself."""
    progress: tuple[tuple[float, ProgressKind], ...] = ()
    """What is seen of it so many seconds after its start."""
    says: tuple[tuple[float, str], ...] = ()
    """What it sends to NOTIFY_SOCKET so many seconds after its start."""


@dataclass(eq=False)
class _Tree:
    child: Child
    program: Program
    argv: tuple[str, ...]
    left: bool = True
    """Something of it lives."""
    asked: trio.Event = field(default_factory=trio.Event)


class FakeProcesses:
    def __init__(self, nursery: trio.Nursery, programs: Mapping[str, Program]) -> None:
        self.programs = dict(programs)
        self.spawned: list[tuple[float, tuple[str, ...]]] = []
        """When what was started."""
        self.ladders: list[Ladder] = []
        self.ended: dict[str, ExitStatus] = {}
        """Of each program, how the latest of its processes ended."""
        self.most_alive: dict[str, int] = {}
        """Of each program, the most that ever lived at a time."""
        self._nursery = nursery
        self._pids = itertools.count(100)
        self._trees: dict[int, _Tree] = {}

    def alive(self, program: str) -> int:
        return sum(tree.left for tree in self._trees.values() if tree.argv[0] == program)

    def times(self, program: str) -> list[float]:
        return [when for when, argv in self.spawned if argv[0] == program]

    def crash(self, pid: int, status: ExitStatus = KILLED) -> None:
        tree = self._trees[pid]
        self._end(tree, status, by_itself=True)

    async def spawn(self, spawn: Spawn) -> Child:
        program = self.programs[spawn.argv[0]]
        await trio.sleep(0)  # cancelled before the fork …
        with trio.CancelScope(shield=True):  # … or not at all
            await trio.sleep(program.spawn_takes_sec)
        if program.spawn_fails is not None:
            raise program.spawn_fails
        child = Child(next(self._pids), trio.current_time(), 0)
        tree = _Tree(child, program, tuple(spawn.argv))
        self._trees[child.pid] = tree
        self.spawned.append((trio.current_time(), tree.argv))
        self.most_alive[spawn.argv[0]] = max(self.most_alive.get(spawn.argv[0], 0), self.alive(spawn.argv[0]))
        self._nursery.start_soon(self._live, tree)
        if program.says:
            self._nursery.start_soon(self._speak, tree, spawn.environment["NOTIFY_SOCKET"])
        return child

    async def stop(self, child: Child, ladder: Ladder) -> TreeReport:
        self.ladders.append(ladder)
        tree, began, killed = self._trees[child.pid], trio.current_time(), False
        await trio.sleep(0)
        if ladder.grace_sec > 0 and tree.left:
            tree.asked.set()
            with trio.move_on_after(ladder.grace_sec):
                if tree.program.obeys_after_sec is None:
                    await trio.sleep_forever()
                await trio.sleep(tree.program.obeys_after_sec)
                self._end(tree, ExitStatus(None, ladder.signal))
        if tree.left and ladder.send_sigkill:
            killed = True
            if tree.program.unkillable:
                await trio.sleep(ladder.kill_deadline_sec)
            else:
                await trio.sleep(tree.program.dies_after_sec)
                self._end(tree, KILLED)
        survivors = (Survivor(child.pid, tree.argv[0], "state D"),) if tree.left else ()
        return TreeReport(not tree.left, killed, (child.pid,) if killed else (), survivors, trio.current_time() - began)

    async def signal(self, child: Child, invocation_id: str, signum: int, whom: Whom) -> tuple[int, ...]:
        await trio.sleep(0)
        return (child.pid,) if self._trees[child.pid].left else ()

    async def find_member(self, child: Child, invocation_id: str, pid: int) -> Identity | None:
        await trio.sleep(0)
        return (pid, 0)

    def hand_over(self, child: Child, identity: Identity) -> None:
        pid, started_ticks = identity
        child.successor = None if identity == child.identity else Child(pid, trio.current_time(), started_ticks)

    async def wait_exit(self, child: Child) -> None:
        await child.exited.wait()

    async def tree_gone(self, child: Child, invocation_id: str) -> None:
        while self._trees[child.pid].left:
            await trio.sleep(1.0)

    async def note_descendants(self, child: Child) -> tuple[ProcessInfo, ...]:
        return ()

    async def any_death(self, processes: Iterable[ProcessInfo]) -> ProcessInfo:
        await trio.sleep_forever()
        raise AssertionError

    async def watch_usage(self, child: Child, tell: Callable[[ProgressKind], None]) -> None:
        for when, kind in self._trees[child.pid].program.progress:
            await trio.sleep_until(child.started_at + when)
            tell(kind)
        await trio.sleep_forever()

    async def _live(self, tree: _Tree) -> None:
        await trio.sleep(tree.program.runs_sec)
        self._end(tree, tree.program.ends, by_itself=True)

    async def _speak(self, tree: _Tree, address: str) -> None:
        for when, text in tree.program.says:
            await trio.sleep_until(tree.child.started_at + when)
            if not tree.left:
                return
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.connect("\0" + address.removeprefix("@"))
                speaker.send(text.encode())

    def _end(self, tree: _Tree, status: ExitStatus, by_itself: bool = False) -> None:
        if not (by_itself and tree.program.leaves_orphan):
            tree.left = False
        if not tree.child.exited.is_set():
            tree.child.status = self.ended[tree.argv[0]] = status
            tree.child.exited.set()


class FakeOutput:
    """Keeps lines and lends no descriptors."""

    def __init__(self) -> None:
        self.tail = Tail(64 * 1024)
        self.logging: Logging | None = None
        """What it was last given, if anything."""

    @property
    def followers(self) -> int:
        return len(self.tail._followers)

    def write(self, line: str) -> None:
        self.tail.append(line.encode() + b"\n")

    def open(self) -> FakePipes:
        return FakePipes()

    async def pump(self, pipes: object, fields: object = None) -> None:
        await trio.sleep(0)

    def configure(self, logging: Logging) -> None:
        self.logging = logging

    def reopen(self) -> None:
        pass

    def lines(self, count: int) -> list[str]:
        return self.tail.lines(count)

    def begin_life(self) -> None:
        self.tail.begin_life()

    def lines_of_life(self, count: int) -> list[str]:
        return self.tail.lines_of_life(count)

    def follow(self, backlog: int = 0) -> Follower:
        return self.tail.follow(backlog)


class FakePipes(Pipes):
    def __init__(self) -> None:
        self.stdout = self.stderr = -1
        self._open = set()
