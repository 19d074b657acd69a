"""Carry out what a unit's machine orders: wait, run commands, spawn, stop the tree. One operation at a time.

Ordering the next one ends the last: it is cancelled, and its undoing is awaited, before the next begins. So a stop
ladder never misses a process whose fork was in flight when it was ordered. What came of an operation is told to the
machine; nothing is decided here. An error of our own ends the operation, and is told as its failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import trio
from msgspec.structs import replace

from supervisor.process.children import SpawnError
from supervisor.process.spawn import NOT_EXECUTABLE
from supervisor.service.commands import run_command
from supervisor.service.diagnosis import Diagnosis
from supervisor.service.fault_boundary import fault_of
from supervisor.service.invocation import Invocation, exit_of
from supervisor.service.launch import HardwareFault, Launch, LaunchError, LaunchFactory
from supervisor.service.outcomes import ConditionUnknown, ConditionUnmet, DependencyUnmet, Observer, StopReport
from supervisor.service.processes import Ladder, Processes
from supervisor.service.unit_output import UnitOutput, lent
from supervisor.unit import events as ev
from supervisor.unit.descent import KILL_DEADLINE_SEC
from supervisor.unit.restart import Result
from supervisor.unit.state import Rules
from supervisor.wire import Whom

INVOCATIONS_REMEMBERED = 64

Tell = Callable[[ev.Event], None]


async def nothing_to_wait_for() -> None:
    """The dependencies, or the preparation, of a unit that has none."""


class Surroundings(msgspec.Struct, frozen=True):
    """What a service is given by those around it."""

    dependencies: Callable[[], Awaitable[None]] = nothing_to_wait_for
    """Awaited before every start, without limit. Raises DependencyUnmet, ConditionUnmet or ConditionUnknown."""
    before_spawn: Callable[[], Awaitable[None]] = nothing_to_wait_for
    """Awaited before the main process is forked and ahead of ExecStartPre, which is to find what that finds; within the
    start's deadline: a hygiene gate, a placement, peers that must listen first.

    Raises LaunchError.
    """
    claims_unowned: Callable[[], bool] = lambda: False
    """Whether an orphan without a mark can only be this unit's."""
    moved: Observer = lambda _: None
    """Told of every transition."""


@dataclass(eq=False, slots=True)
class _Operation:
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class Operations:
    """Belongs to one service, whose nursery it runs in."""

    def __init__(
        self,
        unit: str,
        rules: Rules,
        processes: Processes,
        output: UnitOutput,
        launch: LaunchFactory,
        around: Surroundings,
    ) -> None:
        self.factory = launch
        self.launch: Launch | None = None
        """Of the present invocation, from its first command on."""
        self._is_prepared = False
        """For the spawn that comes next, by the commands before it."""
        self.invocation: Invocation | None = None
        self.diagnosis: Diagnosis | None = None
        """Of the present invocation, if it is sick and being stopped."""
        self.stop_report = StopReport()
        """Of the last stop."""
        self.invocation_ids: deque[str] = deque(maxlen=INVOCATIONS_REMEMBERED)
        self.rules = rules
        self._unit = unit
        self._processes = processes
        self._output = output
        self._around = around
        self._last: _Operation | None = None

    def begin(self, nursery: trio.Nursery, order: ev.Action, tell: Tell) -> None:
        """Carry the order out in the background; `tell` hears what came of it."""
        match order:
            case ev.AwaitDependencies():
                self.launch = self.invocation = self.diagnosis = None
                self._is_prepared = False
                work = partial(self._await_dependencies, tell)
            case ev.RunCommands(which):
                work = partial(self._run_commands, which, tell)
            case ev.Spawn(restores=restores):
                work = partial(self._spawn, nursery, tell, restores)
            case ev.FollowMain():
                if self.invocation is not None:
                    self.invocation.follow(order)
                return
            case ev.StopTree():
                work = partial(self._stop_tree, order, tell)
            case ev.Diagnose():
                self.diagnosis = self._new_diagnosis()  # now: who ends it may come before its task begins
                nursery.start_soon(self._diagnose, self.diagnosis, tell)
                return  # beside the operations: what stops the unit does not wait for it
            case _:
                return
        previous, self._last = self._last, _Operation()
        broken_off = partial(self._broken_off, order, tell)
        nursery.start_soon(self._operate, previous, self._last, work, broken_off)

    def cancel(self, reason: str) -> None:
        """Nothing is to be done any more."""
        if self._last is not None:
            self._last.scope.cancel(reason=reason)

    async def signal(self, signum: int, whom: Whom) -> tuple[int, ...]:
        """To whom of the present invocation it was sent. Raise PermissionError. Cancelled: sent to all or to none."""
        invocation = self.invocation
        if invocation is None or invocation.child is None or invocation.child.released:
            return ()
        return await self._processes.signal(invocation.child, invocation.id, signum, whom)

    async def kill_what_is_left(self) -> None:
        """Whatever state we are in; takes as long as the ladder's deadlines."""
        if self.invocation is not None:
            await self.invocation.stop(self._ladder(self.invocation, ev.StopTree("SIGKILL", 0.0, "last resort")))

    async def _operate(
        self,
        previous: _Operation | None,
        operation: _Operation,
        work: Callable[[], Awaitable[None]],
        broken_off: Callable[[BaseExceptionGroup[Exception], bool], None],
    ) -> None:
        try:
            if previous is not None:
                previous.scope.cancel(reason="overtaken by the next operation")
                await previous.ended.wait()
            with operation.scope:
                await work()
        except* Exception as errors:  # noqa: BLE001  # of this unit's; a cancellation from outside goes on all the same
            broken_off(errors, operation.scope.cancel_called)
        finally:
            operation.ended.set()

    def _broken_off(self, order: ev.Action, tell: Tell, errors: BaseExceptionGroup[Exception], overtaken: bool) -> None:
        reason = fault_of(self._unit, type(order).__name__, errors)
        if overtaken:
            return  # nobody waits for its answer, which would be taken for that of the next
        match order:
            case ev.AwaitDependencies():
                tell(ev.DependencyFailed(reason))
            case ev.Spawn():
                tell(ev.SpawnFailed(reason, NOT_EXECUTABLE))
            case ev.StopTree():
                self.stop_report = StopReport(gone=False, survivors=(f"whatever is left: {reason}",))
                tell(ev.TreeGone(survivors=self.stop_report.survivors))
            case _:
                tell(ev.CommandsDone(reason))

    async def _await_dependencies(self, tell: Tell) -> None:
        try:
            await self._around.dependencies()
        except ConditionUnknown as unknown:
            tell(ev.ConditionUnknown(str(unknown)))
        except DependencyUnmet as unmet:
            tell(ev.DependencyFailed(str(unmet)))
        except ConditionUnmet as unmet:
            tell(ev.ConditionUnmet(str(unmet)))
        else:
            tell(ev.DependenciesMet())

    async def _run_commands(self, which: ev.Commands, tell: Tell) -> None:
        if which is ev.Commands.START_PRE:
            try:
                await self._around.before_spawn()
            except LaunchError as error:
                tell(_not_launched(error))
                return
            self._is_prepared = True
        try:
            failure = await self._run_each(which, await self._prepared_launch())
        except (LaunchError, OSError) as error:
            failure = str(error)
        tell(ev.CommandsDone(None if failure is None else f"{which}: {failure}"))

    async def _run_each(self, which: ev.Commands, launch: Launch) -> str | None:
        for command in launch.commands.get(which, ()):
            async with lent(self._output, {}) as pipes:
                failure = await run_command(self._processes, launch, command, stdout=pipes.stdout, stderr=pipes.stderr)
            if failure is not None and not command.ignore_failure:
                return failure
        return None

    def _new_diagnosis(self) -> Diagnosis | None:
        launch, invocation = self.launch, self.invocation
        if launch is None or launch.diagnose is None or invocation is None or invocation.child is None:
            return None
        return Diagnosis(self._processes, launch, launch.diagnose, invocation.child.main.pid)

    async def _diagnose(self, diagnosis: Diagnosis | None, tell: Tell) -> None:
        if diagnosis is None:
            tell(ev.CommandsDone("there is nothing to diagnose"))
        elif await diagnosis.run():
            tell(ev.CommandsDone())

    async def _spawn(self, nursery: trio.Nursery, tell: Tell, restores: bool) -> None:
        try:
            if not self._is_prepared:
                await self._around.before_spawn()
            self._is_prepared = False
            launch = await self._prepared_launch()
            if restores and launch.restore is not None:
                launch = replace(launch, argv=launch.restore.argv)
            invocation = Invocation(self.rules, launch, self._processes, self._output, tell)
            self.invocation_ids.append(invocation.id)
            await invocation.spawn()
        except LaunchError as error:
            tell(_not_launched(error))
        except SpawnError as error:
            tell(ev.SpawnFailed(error.reason, error.exit_status))
        except OSError as error:
            tell(ev.SpawnFailed(f"cannot prepare the process: {error}", NOT_EXECUTABLE))
        else:
            # No checkpoint from the fork to here: whoever stops the unit now finds the child.
            self.invocation = invocation
            nursery.start_soon(invocation.run)
            pid = None if invocation.child is None else invocation.child.pid
            tell(ev.Spawned(pid, invocation.awaits_ready))

    async def _prepared_launch(self) -> Launch:
        """Asked for once in an invocation, so that its commands see what its main process sees."""
        if self.launch is None:
            self.launch = await self.factory()
        return self.launch

    async def _stop_tree(self, order: ev.StopTree, tell: Tell) -> None:
        invocation = self.invocation
        if invocation is None:
            tell(ev.TreeGone())
            return
        self.stop_report = StopReport.of(await invocation.stop(self._ladder(invocation, order)))
        await invocation.end()
        if self.diagnosis is not None:
            await self.diagnosis.gone()
        main = None if invocation.child is None else invocation.child.main
        exited = None if main is None or main.status is None else exit_of(main.status)
        tell(ev.TreeGone(exited, self.stop_report.survivors, self.stop_report.left_behind))

    def _ladder(self, invocation: Invocation, order: ev.StopTree) -> Ladder:
        stop = self.rules.stop
        return Ladder(
            invocation_id=invocation.id,
            grace_sec=order.grace_sec,
            kill_deadline_sec=KILL_DEADLINE_SEC,
            mode=stop.kill_mode,
            signal=order.signal,
            final_signal=stop.final_kill_signal,
            send_sigkill=stop.send_sigkill,
            claim_unowned=self._around.claims_unowned(),
        )


def _not_launched(error: LaunchError) -> ev.SpawnFailed:
    if isinstance(error, HardwareFault):
        return ev.SpawnFailed(str(error), NOT_EXECUTABLE, Result.HARDWARE)
    return ev.SpawnFailed(str(error), NOT_EXECUTABLE)
