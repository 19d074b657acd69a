"""One unit's shell: it keeps the clock, tells the machine what happens, and lets the machine's orders be carried out.

Decisions are in `supervisor.unit.machine`. A caller that goes away takes nothing with it: what was asked for goes on
in the service's own nursery.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import trio
from msgspec.structs import replace

from supervisor.service import transition_log
from supervisor.service.changes import Changes
from supervisor.service.commands import CommandReport, run_captured
from supervisor.service.credentials import Secrets
from supervisor.service.exits import TAIL_LINES, ExitRecord, Exits, last_lines, may_be_oom
from supervisor.service.launch import Launch, LaunchFactory
from supervisor.service.operations import Operations, Surroundings
from supervisor.service.outcomes import Observer, StartFailed, StopReport, Transition
from supervisor.service.processes import Processes
from supervisor.service.unit_output import UnitOutput
from supervisor.service.view import unit_view
from supervisor.unit import events as ev
from supervisor.unit.descent import BACKSTOP_SEC, DIAGNOSE_SEC, KILL_DEADLINE_SEC
from supervisor.unit.machine import step
from supervisor.unit.model import Command, Unit
from supervisor.unit.restart import Ending
from supervisor.unit.start_clock import progress_at
from supervisor.unit.state import Rules, UnitState
from supervisor.unit.states import RunState, SubState
from supervisor.wire import UnitView, Whom

__all__ = ["Service", "StartFailed", "StopReport"]

log = logging.getLogger(__name__)

_NOTHING_TO_DO = frozenset(
    {SubState.DEAD, SubState.FAILED, SubState.START_LIMIT_HIT, SubState.AUTO_RESTART, SubState.EXITED}
)
"""Where no operation is wanted any more. Not `unkillable`: a stop ladder that is late still does its work."""


_STARTS = (SubState.LOADING, SubState.RESTORING)


class Service:
    """Runs one unit. `state` is a snapshot; `changed` tells when there is a new one."""

    def __init__(
        self,
        unit: Unit,
        rules: Rules,
        processes: Processes,
        output: UnitOutput,
        launch: LaunchFactory,
        *,
        around: Surroundings | None = None,
        observers: Sequence[Observer] = (),
        exits: Exits | None = None,
        chance: Callable[[], float] = random.random,
        secrets: Secrets | None = None,
    ) -> None:
        self.unit = unit
        self.rules = rules
        self.output = output
        self.state = UnitState()
        self.changed = Changes()
        self.exits = Exits() if exits is None else exits
        self.changed_keys: tuple[str, ...] = ()
        """In which the files differ from what is in force here, until somebody decides about it."""
        self._since = datetime.now(UTC)
        self._declared = rules
        around = around or Surroundings()
        self._operations = Operations(unit.name, rules, processes, output, launch, around)
        self._processes = processes
        self._observers = (*observers, around.moved)
        self._chance = chance
        self._secrets = secrets or Secrets()
        self._nursery: trio.Nursery | None = None
        self._life = trio.CancelScope(shield=True)
        self._closing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The unit's one task. Cancelled: its tree is stopped, within the stop's own deadlines, before this returns."""
        async with trio.open_nursery() as nursery:
            # Not `nursery.start`: a cancel in it would wait for ever for what is shielded from it.
            living = trio.Event()
            nursery.start_soon(self._live, living)
            try:
                await living.wait()
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._close()

    # --- asked for ---------------------------------------------------------------------------------------------

    def ask_to_start(self, asked_by: str) -> int:
        """Begin a start, or join the one under way; its invocation's number. Raise StartFailed while closing."""
        if self._closing:
            raise StartFailed("its supervisor ends")
        begins_anew = self.state.at_rest or self.state.descent is not None
        target = self.state.invocation + begins_anew
        self._hear(ev.Start(asked_by))
        return target

    def ask_to_stop(self, asked_by: str, reason: str, grace_sec: float | None = None) -> None:
        """Begin a stop, or join the one under way."""
        self._hear(ev.Stop(asked_by, reason, self._grace(grace_sec)))

    def ask_to_restart(self, asked_by: str, reason: str, grace_sec: float | None = None) -> int:
        """Begin a restart; the number of the invocation that follows. Raise StartFailed while closing."""
        if self._closing:
            raise StartFailed("its supervisor ends")
        target = self.state.invocation + (self.state.sub_state is not SubState.WAITING)
        self._hear(ev.Restart(asked_by, reason, self._grace(grace_sec)))
        return target

    async def start(self, *, asked_by: str, launch: LaunchFactory | None = None) -> None:
        """Start it, and return when it is spawned, or skipped for a condition; `wait_until` tells when it is ready.

        `launch` replaces the recorded one, for later restarts too. Raise StartFailed if this start does not get that
        far. Cancelled: the start goes on.
        """
        if launch is not None:
            self._operations.factory = launch
        await self.await_spawn(self.ask_to_start(asked_by))

    async def stop(self, *, asked_by: str, reason: str, grace_sec: float | None = None) -> StopReport:
        """Stop it, or join the stop under way; return when nothing of it is left, or with those that survived.

        Cancelled: the stop goes on.
        """
        invocation = self.state.invocation
        self.ask_to_stop(asked_by, reason, grace_sec)
        await self.wait_until(lambda state: state.ended >= invocation)
        return self._operations.stop_report

    async def restart(self, *, asked_by: str, reason: str, grace_sec: float | None = None) -> None:
        """Stop and start it; return when it is spawned anew. Raise StartFailed. Cancelled: the restart goes on."""
        await self.await_spawn(self.ask_to_restart(asked_by, reason, grace_sec))

    async def await_spawn(self, target: int) -> None:
        """Until this invocation is spawned, or skipped. Raise StartFailed if it does not get that far."""
        state = await self.wait_until(
            lambda state: (
                state.started >= target or (state.ended >= target and not state.cold) or state.at_rest
            )  # a start whose RestoreExec cannot be executed goes on cold
        )
        if state.started < target and not state.skipped:
            raise StartFailed(state.reason)

    def reset_failed(self) -> None:
        """Forget failures and starts, so that back-off and start limit begin anew."""
        self._hear(ev.ResetFailed())

    def redefine(self, unit: Unit, rules: Rules, launch: LaunchFactory) -> None:
        """Another declaration is in force. What only another process can have is had by the next one."""
        self.unit, self._declared = unit, rules
        self._operations.factory = launch
        self.output.configure(unit.service.logging)
        self._settle_rules()
        self.changed.announce()

    async def kill(self, signum: int, whom: Whom) -> tuple[int, ...]:
        """Send a signal to its processes, as systemctl kill: what follows is the policy's; to whom it was sent.

        Raise PermissionError.
        """
        return await self._operations.signal(signum, whom)

    async def wait_until(self, wanted: Callable[[UnitState], bool]) -> UnitState:
        """The first state from now on that is wanted. Short-lived states may pass unseen: ask for counts."""
        return await self.changed.wait_until(lambda: self.state, wanted)

    async def run_beside(
        self, launch: Launch, command: Command, *, timeout_sec: float, environment: Mapping[str, str] | None = None
    ) -> CommandReport:
        """A command in the unit's surroundings, in whatever state. Raise SpawnError, OSError: it was not run."""
        return await run_captured(self._processes, launch, command, timeout_sec=timeout_sec, environment=environment)

    # --- to be seen --------------------------------------------------------------------------------------------

    @property
    def launch(self) -> Launch | None:
        """What the present invocation executes; None before its first command."""
        return self._operations.launch

    @property
    def invocation_ids(self) -> tuple[str, ...]:
        """By which processes of earlier incarnations are known; the latest ones, the newest last."""
        return tuple(self._operations.invocation_ids)

    @property
    def epoch(self) -> int | None:
        return None if self.launch is None else self.launch.epoch

    def view(self, now: float) -> UnitView:
        return replace(
            unit_view(self.unit, self.state, self._since, self.exits.last, self.epoch, now), changed=self.changed_keys
        )

    def progress_age_sec(self, now: float) -> float | None:
        """How long the start has been standing still, by the clock that gives it up; None outside of a start."""
        if self.state.clock is None or self.state.sub_state not in _STARTS:
            return None
        return now - progress_at(self.rules.start, self.state.clock)

    # --- the loop ----------------------------------------------------------------------------------------------

    async def _live(self, living: trio.Event) -> None:
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    living.set()
                    await self._keep_time()
                    nursery.cancel_scope.cancel(reason="the service is closed")
        finally:
            self._nursery = None
            await self._leave_nothing_behind()

    async def _keep_time(self) -> None:
        """Send a Tick whenever the deadline has come, until the service is closed and its unit at rest."""
        while not (self._closing and self.state.at_rest):
            changed = self.changed.next()
            with trio.move_on_at(self.state.deadline):
                await changed.wait()
            if trio.current_time() >= self.state.deadline:
                self._hear(ev.Tick())

    def _close(self) -> None:
        self._closing = True
        if self._nursery is None:
            return  # it has ended by an error of our own
        # DiagnoseExec; ExecStop, the grace and ExecStopPost each have TimeoutStopSec; what takes longer is killed.
        limit = DIAGNOSE_SEC + 3 * self.rules.stop.timeout_sec + KILL_DEADLINE_SEC + BACKSTOP_SEC
        self._life.deadline = trio.current_time() + limit
        try:
            self._hear(ev.Stop("podvisor", "its supervisor ends", self._grace(None)))
        except Exception:
            self._life.cancel(reason="it can begin no stop")  # an error of our own: what is left is killed
            raise
        self.changed.announce()  # it may have been at rest already

    def _grace(self, asked: float | None) -> float | None:
        """What was asked for, else what suits what runs now; None: as the unit's file says."""
        return self.launch.stop_grace_sec if asked is None and self.launch is not None else asked

    async def _leave_nothing_behind(self) -> None:
        """After an error of our own, or when time is up."""
        if self.state.ended == self.state.invocation:
            return
        limit = trio.current_time() + KILL_DEADLINE_SEC + BACKSTOP_SEC
        with trio.CancelScope(deadline=limit, shield=True):
            await self._operations.kill_what_is_left()

    def _hear(self, event: ev.Event) -> None:
        before = self.state
        after, actions = step(self.rules, before, event, trio.current_time(), self._chance())
        if after is before and not actions:
            return
        if self._nursery is None:
            raise RuntimeError(f"cannot move unit {self.unit.name}: its service is not running")
        self.state = after
        self._settle_rules()
        if after.sub_state is not before.sub_state:
            self._since = datetime.now(UTC)
        ended = self._record_ending(actions)  # before the next life's first action forgets the last one's epoch
        self._report(Transition(self.unit.name, event, before, after, actions, self.epoch, ended))
        for action in actions:
            self._carry_out(action, self._nursery)
        self._keep_pace(after)
        self.changed.announce()

    def _hear_of(self, invocation: int, event: ev.Event) -> None:
        """From something that belongs to one invocation; what comes too late is dropped.

        An error of the machine, or of who observes it, is not its teller's: half a move was made, and nobody can say
        what holds. It ends the service.
        """
        if invocation != self.state.invocation:
            return
        try:
            self._hear(self._secrets.redacted(event))
        except Exception as error:
            if self._nursery is None:
                raise
            self._nursery.start_soon(_raise, error)

    def _report(self, transition: Transition) -> None:
        transition_log.tell(transition)
        for observer in self._observers:
            observer(transition)

    def _carry_out(self, action: ev.Action, nursery: trio.Nursery) -> None:
        log.debug("%s: %s: %s", self.unit.name, type(action).__name__, action.reason)
        match action:
            case ev.RecordEnding() | ev.ReportStartLimit():
                pass  # recorded already; the observers' business
            case _:
                if isinstance(action, ev.AwaitDependencies):
                    self.output.begin_life()  # after the last life's ending was recorded with its last lines
                self._operations.begin(nursery, action, partial(self._hear_of, self.state.invocation))

    def _keep_pace(self, state: UnitState) -> None:
        """Let what runs beside the machine follow it."""
        if state.sub_state in _NOTHING_TO_DO:
            self._operations.cancel(state.reason)
        diagnosis = self._operations.diagnosis
        if diagnosis is not None and state.sub_state is not SubState.DIAGNOSE:
            diagnosis.end()
        invocation = self._operations.invocation
        if invocation is None:
            return
        if state.ready_once:
            invocation.became_active()
        if state.descent is not None:
            invocation.stop_watching()

    def _settle_rules(self) -> None:
        """Those that are declared; but a start goes on by the rules it began with, which its clock was set by."""
        under_way = self.state.clock is not None and self.state.state is RunState.ACTIVATING
        start = self.rules.start if under_way else self._declared.start
        self.rules = self._operations.rules = replace(self._declared, start=start)

    def _record_ending(self, actions: Sequence[ev.Action]) -> ExitRecord | None:
        for action in actions:
            if isinstance(action, ev.RecordEnding):
                return self._record(action.ending)
        return None

    def _record(self, ending: Ending) -> ExitRecord:
        invocation = self._operations.invocation
        oom = invocation is not None and may_be_oom(ending) and invocation.saw_oom_kill()
        tail = last_lines(self.output.lines_of_life(TAIL_LINES))
        diagnosis = self._operations.diagnosis
        evidence = () if diagnosis is None else tuple(map(self._secrets.redact, diagnosis.lines))
        record = ExitRecord(ending, datetime.now(UTC), self.epoch, oom, tail, evidence)
        self.exits.add(record)
        return record


async def _raise(error: Exception) -> None:
    raise error
