"""One run of one unit: its main process, its output, and those who watch it.

It tells the unit's machine what it sees and decides nothing. Its processes are ended by `stop`, which its service
calls in any case; what merely watches ends with `stop_watching`.
"""

from __future__ import annotations

import logging
import math
import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from msgspec.structs import replace

from supervisor.process.children import Child, ExitStatus
from supervisor.process.line_format import Field
from supervisor.process.output import Follower, Pipes
from supervisor.process.tree import TreeReport
from supervisor.service import checks
from supervisor.service.canary import runner_of as canary_of
from supervisor.service.changes import Changes
from supervisor.service.critical import first_death
from supervisor.service.fault_boundary import fault_of
from supervisor.service.launch import Launch, spawn_of
from supervisor.service.notifications import Notifications
from supervisor.service.oom import oom_kills
from supervisor.service.probes import NOTIFICATION, Gates, ProbeRunner
from supervisor.service.processes import Ladder, Processes
from supervisor.service.progress import NewLines
from supervisor.service.unit_output import DRAIN_SEC, UnitOutput
from supervisor.unit.events import CriticalProcessDied, Event, Exited, FollowMain, Progressed, WatchBroke
from supervisor.unit.model import Check, ExecCheck, ExitType, HttpCheck, LogLineCheck, ServiceType, TcpCheck
from supervisor.unit.probing import gates
from supervisor.unit.start_clock import ProgressKind
from supervisor.unit.state import Rules

log = logging.getLogger(__name__)


class Invocation:
    """`spawn` it, then `run` it until `end`."""

    def __init__(
        self,
        rules: Rules,
        launch: Launch,
        processes: Processes,
        output: UnitOutput,
        tell: Callable[[Event], None],
    ) -> None:
        """Raise OSError when descriptors have run out."""
        self.id = uuid.uuid4().hex
        self.launch = launch
        self.child: Child | None = None
        self._rules = rules
        self._processes = processes
        self._output = output
        self._tell = tell
        notifies = rules.type is ServiceType.NOTIFY
        # A watchdog has to be fed by a unit of any type (systemd.service(5), WatchdogSec).
        self._notifications: Notifications | None = None
        names = frozenset[str](gates(launch.probes)) | ({NOTIFICATION} if notifies else frozenset())
        self._gates = Gates(names, tell)
        self._gated = bool(names)
        if notifies or rules.watchdog_sec is not None:
            ready = partial(self._gates.open, NOTIFICATION)
            self._notifications = Notifications(launch.unit, processes, self.id, rules.notify_access, ready, tell)
        self._handed_over = Changes()
        self._active = trio.Event()
        self._watching = trio.CancelScope()
        self._ended = trio.Event()
        self._finished = trio.Event()
        self._oom_kills = oom_kills()
        self._pipes: Pipes | None = None
        self._awaited: dict[LogLineCheck, Follower] = {}
        """The output as each check of kind LogLine reads it, until its line has come: readers cost every line."""

    @property
    def awaits_ready(self) -> bool:
        return self._gates.closed

    def became_active(self) -> None:
        """From now on its critical processes are watched, and its progress no more."""
        self._active.set()

    async def spawn(self) -> None:
        """Start the main process, if the unit has one. Raise SpawnError, and OSError when descriptors have run out.

        Failed or cancelled, nothing was started and nothing is left open.
        """
        if self._rules.type is ServiceType.EXTERNAL:
            return
        pipes = self._output.open()
        try:
            own = self._own_environment()
            spawn = spawn_of(self.launch, self.launch.argv, own, pipes.stdout, pipes.stderr)
            contained = self.launch.contained or spawn.has_settings
            self.child = await self._processes.spawn(replace(spawn, contained=contained))
        except BaseException:
            pipes.close()
            self._close_notifications()
            raise
        pipes.close_write_ends()
        self._pipes = pipes

    async def run(self) -> None:
        """Pass on the output and watch, until `end`, and then until what was written has been read.

        An error of our own ends it before, and the unit's machine is told.
        """
        probes = self.launch.probes
        checks = (probe.check for probe in (probes.startup, probes.readiness) if probe is not None)
        self._awaited = {check: self._output.follow() for check in checks if isinstance(check, LogLineCheck)}
        try:
            async with trio.open_nursery() as nursery:
                if self._pipes is not None:
                    nursery.start_soon(self._output.pump, self._pipes, self._fields())
                await self._watch()
                nursery.cancel_scope.deadline = trio.current_time() + DRAIN_SEC
        except* Exception as errors:  # noqa: BLE001  # of this unit's; a cancellation from outside goes on all the same
            self._tell(WatchBroke(fault_of(self.launch.unit, "watching", errors)))
        finally:
            self._close_notifications()
            self._finished.set()

    def follow(self, order: FollowMain) -> None:
        """The main process is another one of the tree from now on."""
        if self.child is None:
            return
        extra = {"unit": self.launch.unit, "pid": order.pid}
        log.info("%s: %s (MAINPID)", self.launch.unit, order.reason, extra=extra)
        self._processes.hand_over(self.child, (order.pid, order.started_ticks))
        self._handed_over.announce()

    def stop_watching(self) -> None:
        """No probe, no critical process counts any more; the exit does."""
        self._watching.cancel(reason="the unit is being stopped")

    async def stop(self, ladder: Ladder) -> TreeReport | None:
        """End the whole tree; None if there is no process. Cancelled: calling it again carries on."""
        if self.child is None:
            return None
        return await self._processes.stop(self.child, ladder)

    async def end(self) -> None:
        """The tree is gone: read what is left of the output, which takes a moment at most."""
        self.stop_watching()
        self._ended.set()
        await self._finished.wait()

    def saw_oom_kill(self) -> bool:
        """Whether the kernel has killed somebody of this container for memory since the spawn."""
        now = oom_kills()
        return now is not None and now > (self._oom_kills or 0)

    async def _watch(self) -> None:
        async with trio.open_nursery() as nursery:
            if self.child is not None:
                nursery.start_soon(self._for_each_main, self._await_exit, self.child)
                if self._notifications is not None:
                    # Also while it is being stopped: somebody may wait for the answer to a barrier.
                    nursery.start_soon(self._notifications.listen, self.child)
            nursery.start_soon(self._observe)
            await self._ended.wait()
            nursery.cancel_scope.cancel(reason="the invocation is over")

    async def _for_each_main(self, work: Callable[[Child], Awaitable[None]], child: Child) -> None:
        """Do it for the main process there is, and anew for each that is handed over to; until cancelled."""
        while True:
            handed_over = self._handed_over.next()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work, child)
                await handed_over.wait()
                nursery.cancel_scope.cancel(reason="the main process is another one")

    async def _await_exit(self, child: Child) -> None:
        main = child.main
        await self._processes.wait_exit(main)
        if self._rules.exit_type is ExitType.CGROUP:
            await self._processes.tree_gone(child, self.id)
        if self._notifications is not None:
            await self._notifications.settled()
        if child.main is main:
            assert main.status is not None  # set before `exited` is
            self._tell(exit_of(main.status))

    async def _observe(self) -> None:
        with self._watching:
            async with trio.open_nursery() as nursery:
                runner = ProbeRunner(self.launch.probes, self._ask, self._gates, self._tell)
                nursery.start_soon(runner.run)
                nursery.start_soon(self._send_canaries)
                if self.child is not None:
                    nursery.start_soon(self._watch_start, self.child)
                    nursery.start_soon(self._for_each_main, self._watch_critical, self.child)

    async def _send_canaries(self) -> None:
        """To a unit that has been ready once: what still loads has nothing to prove."""
        send = canary_of(self.launch.unit, self.launch.probes.canary, self._tell)
        if send is not None:
            await self._active.wait()
            await send()

    async def _watch_start(self, child: Child) -> None:
        """Progress, while there is a stall to be judged."""
        if self._rules.start.stall_sec is None:
            return

        def tell(kind: ProgressKind) -> None:
            self._tell(Progressed(kind))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._processes.watch_usage, child, tell)
            nursery.start_soon(self._watch_lines, self._output.follow(), tell)
            await self._active.wait()
            nursery.cancel_scope.cancel(reason="the unit is active")

    async def _watch_lines(self, lines: Follower, tell: Callable[[ProgressKind], None]) -> None:
        seen = NewLines()
        async for line in lines:
            if seen.is_new(str(line)):
                tell(ProgressKind.WORK)

    async def _watch_critical(self, child: Child) -> None:
        await self._active.wait()
        try:
            dead = await first_death(self._processes, child, self.launch.critical_processes, self._search_sec)
        except OSError as error:
            log.warning("cannot watch the critical processes of %s: %s; probes alone will tell", child.main.pid, error)
            return
        if dead is None:
            if self.launch.critical_processes:
                log.info("none of CriticalProcesses runs below pid %s: nothing to watch but itself", child.main.pid)
            return
        if not child.main.exited.is_set():  # else the main process's exit tells more
            self._tell(CriticalProcessDied(f"critical process {dead.command or dead.name} (pid {dead.pid}) is gone"))

    @property
    def _search_sec(self) -> float:
        """With a gate all critical processes are there when it opens; without one they may take a whole start."""
        return 0.0 if self._gated else self._rules.start.timeout_sec

    async def _ask(self, check: Check) -> str | None:
        match check:
            case HttpCheck():
                return await checks.check_http(check)
            case TcpCheck():
                return await checks.check_tcp(check)
            case ExecCheck():
                return await checks.check_exec(check, self._processes, self.launch)
            case LogLineCheck():
                await self._await_line(check)
                return None

    async def _await_line(self, check: LogLineCheck) -> None:
        """Until it has come. Startup and Readiness may wait for the same one."""
        if (lines := self._awaited.get(check)) is None:
            return
        pattern = re.compile(check.pattern)
        async for line in lines:
            if pattern.search(str(line)):
                self._awaited.pop(check)
                return

    def _close_notifications(self) -> None:
        if self._notifications is not None:
            self._notifications.close()

    def _own_environment(self) -> dict[str, str]:
        own = {"INVOCATION_ID": self.id}
        if self._notifications is not None:
            own["NOTIFY_SOCKET"] = self._notifications.address
        if self._rules.watchdog_sec is not None and math.isfinite(microseconds := self._rules.watchdog_sec * 1_000_000):
            own["WATCHDOG_USEC"] = str(round(microseconds))
        return own

    def _fields(self) -> dict[str, Field]:
        """What stands in every line of `prefix` and `json` output: an engine's place in its gang."""
        if self.launch.epoch is None:
            return {}  # every unit knows the rank, and only an engine's lines are told apart by it
        rank = self.launch.environment.get("NODE_RANK")
        return {"epoch": self.launch.epoch} | ({"rank": rank} if rank else {})


def exit_of(status: ExitStatus) -> Exited:
    return Exited(status.code, status.signal, status.core_dumped)
