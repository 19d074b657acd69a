"""The owner of the engine operation: asks the model, carries out what it says, feeds back what came of it.

Decisions stand in `supervisor.engine.model`; this shell has none. The effects of an operation (stop, gate, spawn)
run in the operator's nursery, never in a request handler: a request that goes away takes nothing with it. Each
effect runs in a scope that reports how it was left, so that a freeze never outlives the work it protects (seed
S33): reached its goal, broke, or was cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import trio
from msgspec.structs import replace

from supervisor.engine.model import progress
from supervisor.engine.model.commands import Accepted, Command, decide
from supervisor.engine.model.condition import Recovered
from supervisor.engine.model.fencing import Refused
from supervisor.engine.model.operation import (
    Action,
    AnnounceRelaunch,
    EndSupervisor,
    HoldEngines,
    Operation,
    OperationSettings,
    PrepareEngines,
    RecoverEngine,
    Report,
    StartEngines,
)
from supervisor.service.changes import Changes
from supervisor.service.credentials import Secrets
from supervisor.wire import (
    CommandAnswer,
    EngineRestartMsg,
    ErrorCode,
    FaultCategory,
    RecoveryState,
    StartCmdMsg,
    Step,
    StopMsg,
)

log = logging.getLogger(__name__)


OperationObserver = Callable[[Operation, Operation, tuple[Action, ...]], None]
"""Told what the operation was, what it is now, and what is about to be done: quick, without exceptions."""


class CommandRefused(Exception):
    """A command had no effect, or the operation it joined has failed."""

    def __init__(self, code: ErrorCode, message: str, category: FaultCategory | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.category = category


class EffectFailed(Exception):
    """An effect cannot reach its goal; the message is for the controller and for people."""

    def __init__(self, message: str, category: FaultCategory | None = None) -> None:
        super().__init__(message)
        self.category = category


class Effects(Protocol):
    """What can be done to this pod's engine. Every method may be cancelled and repeated."""

    def misfit(self, placement: StartCmdMsg) -> str | None:
        """Why `placement` is not for this pod."""

    async def stop_engine(self, reason: str) -> None:
        """Until the whole tree is gone. Raises EffectFailed naming what survived."""

    async def take_configuration(self, digest: str) -> None:
        """Of a stopped engine: what a reload has held back is in force. Raises EffectFailed if that is not `digest`."""

    async def clean(self, placement: StartCmdMsg) -> None:
        """Wait for the engine's dependencies, then pass the hygiene gate. Raises EffectFailed."""

    def announce_relaunch(self, number: int, placement: StartCmdMsg, reason: str) -> None:
        """Print the banner."""

    async def spawn_engine(self) -> None:
        """With the operation's placement. Returns when exec has succeeded. Raises EffectFailed."""

    async def await_handshake(self) -> None:
        """Returns when the engine is ready. Raises EffectFailed when it ends or its start is given up."""

    async def recover_engine(self, recovery: str | None, fault_code: int | None) -> None:
        """Ask the running engine to recover; returns when it has. Raises EffectFailed."""


class Operator:
    """One per supervisor that has an engine."""

    def __init__(
        self,
        operation: Operation,
        settings: OperationSettings,
        effects: Effects,
        end_supervisor: Callable[[str], None],
        observers: Sequence[OperationObserver] = (),
        secrets: Secrets | None = None,
    ) -> None:
        """`secrets` are taken out of what goes wrong: the operation is shown to the controller and to people."""
        self.state = operation
        self.changed = Changes()
        self._settings = settings
        self._effects = effects
        self._end_supervisor = end_supervisor
        self._observers = tuple(observers)
        self._secrets = secrets or Secrets()
        self._nursery: trio.Nursery | None = None
        self._effect_scope = trio.CancelScope()
        self._recovery_scope = trio.CancelScope()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out operations until cancelled; then whatever is in progress is broken off and named so."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self._end_freezes()
            finally:
                # From here on no effect can begin; a command in the same instant is refused, not lost.
                self.feed(progress.Leaving("this supervisor is ending"))

    async def command(self, command: Command) -> CommandAnswer:
        """A command of the node-manager API. Raises CommandRefused.

        Waits for the step that answers it, at most `answer_sec`; then the answer tells the step reached.
        Cancelled: the operation goes on; the same message sent again joins it.
        """
        placement = _placement_in(command)
        why = self._effects.misfit(placement) if placement is not None else None
        if why is not None:
            raise CommandRefused(ErrorCode.DOES_NOT_FIT, f"the placement does not fit this pod: {why}")
        state, actions, decision = decide(self.state, command, self._settings, trio.current_time())
        self._become(state, actions)
        if isinstance(decision, Refused):
            raise CommandRefused(decision.code, decision.message, decision.category)
        with trio.move_on_after(self._settings.answer_sec):
            await self.changed.wait_until(lambda: self.state, partial(_answers, decision))
        return self._answer(decision, command.run_id)

    async def abandon(self, reason: str) -> None:
        """Stop engines that belong to no instance any more. Cancelled: the stop goes on in the service."""
        self._effect_scope.cancel(reason="the engines are abandoned")
        self.feed(progress.Abandoned(reason))
        try:
            await self._effects.stop_engine(reason)
        except EffectFailed as failure:
            log.error("cannot stop the abandoned engine: %s", failure)

    def feed(self, event: progress.Event) -> None:
        """Something happened."""
        event = self._secrets.redacted(event)
        state, actions = progress.advance(self.state, event, self._settings, trio.current_time())
        self._become(state, actions)

    def _answer(self, accepted: Accepted, run_id: str | None) -> CommandAnswer:
        state = self.state
        if state.epoch != accepted.epoch:
            raise CommandRefused(ErrorCode.STALE_EPOCH, f"overtaken by epoch {state.epoch}")
        if accepted.recovery is not None:
            recovery = _recovery(accepted, state)
            return replace(self._accepted(run_id), recovery=recovery)
        # An abort has done its work whatever the step; everything else wanted an engine.
        if accepted.will_exit is None and state.step is Step.FAILED:
            raise CommandRefused(ErrorCode.FAILED, state.error or "the relaunch failed", state.category)
        if accepted.will_exit is None and state.step is Step.ABORTED:
            raise CommandRefused(ErrorCode.ABORTED, state.error or "the run was aborted")
        return replace(self._accepted(run_id), will_exit=accepted.will_exit)

    def _accepted(self, run_id: str | None) -> CommandAnswer:
        state = self.state
        return CommandAnswer(step=state.step, epoch=state.epoch, term=state.term, boot_id=state.boot_id, run_id=run_id)

    def _become(self, state: Operation, actions: tuple[Action, ...]) -> None:
        if state == self.state and not actions:
            return
        if state.step is not self.state.step:
            _log_step(self.state, state)
        before, self.state = self.state, state
        for observer in self._observers:
            observer(before, state, actions)
        for action in actions:
            self._carry_out(action)
        self.changed.announce()

    def _carry_out(self, action: Action) -> None:
        match action:
            case PrepareEngines():
                self._begin(action.serial, partial(self._prepare, action))
            case HoldEngines():
                self._begin(action.serial, partial(self._hold, action))
            case StartEngines():
                self._begin(action.serial, partial(self._start, action))
            case AnnounceRelaunch(relaunch, placement, reason):
                self._effects.announce_relaunch(relaunch, placement, reason)
            case RecoverEngine():
                self._begin_recovery(action)
            case EndSupervisor(reason):
                self._end_supervisor(reason)
            case Report(level, message):
                log.log(logging.getLevelNamesMapping()[level.upper()], message, extra=_facts(self.state))

    def _begin(self, serial: int, work: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None, "the operator is running before it is given commands"
        self._effect_scope.cancel(reason="overtaken by a newer operation")
        self._recovery_scope.cancel(reason="overtaken by a relaunch")
        self._effect_scope = trio.CancelScope()
        self._nursery.start_soon(self._effect, serial, work, self._effect_scope)

    async def _effect(self, serial: int, work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        """The scope of a freeze: left in any way, the model is told that its work is over."""
        reason, category = "broken off: this supervisor is ending", None
        try:
            with scope:
                await work()
        except EffectFailed as failure:
            reason, category = str(failure), failure.category
        finally:
            self.feed(progress.Broke(serial, reason, category))

    def _begin_recovery(self, action: RecoverEngine) -> None:
        assert self._nursery is not None, "the operator is running before it is given commands"
        self._recovery_scope = trio.CancelScope()
        self._nursery.start_soon(self._recover, action, self._recovery_scope)

    async def _recover(self, action: RecoverEngine, scope: trio.CancelScope) -> None:
        """No operation: nothing is stopped, and a relaunch overtakes it. Left in any way, the model is told."""
        error: str | None = "broken off"
        try:
            with scope, trio.fail_after(self._settings.recover_sec):
                await self._effects.recover_engine(action.recovery, action.fault_code)
                error = None
        except EffectFailed as failure:
            error = str(failure)
        except trio.TooSlowError:
            error = f"not done within {self._settings.recover_sec:g} s"
        finally:
            self.feed(Recovered(action.number, error))

    async def _prepare(self, action: PrepareEngines) -> None:
        await self._effects.stop_engine(action.reason)
        if action.config_digest is not None:
            await self._effects.take_configuration(action.config_digest)
        self.feed(progress.Stopped(action.serial))
        await self._effects.clean(action.placement)
        self.feed(progress.Clean(action.serial))

    async def _hold(self, action: HoldEngines) -> None:
        await self._effects.stop_engine(action.reason)
        self.feed(progress.Stopped(action.serial))

    async def _start(self, action: StartEngines) -> None:
        if action.relaunch is not None:
            self._effects.announce_relaunch(action.relaunch, action.placement, action.reason)
        await self._effects.spawn_engine()
        self.feed(progress.Spawned(action.serial))
        await self._effects.await_handshake()
        self.feed(progress.Loaded(action.serial))

    async def _end_freezes(self) -> None:
        """A freeze ends by itself, at a moment known beforehand."""
        while True:
            changed = self.changed.next()
            freeze = self.state.freeze
            with trio.CancelScope(deadline=freeze.ends_at() if freeze is not None else float("inf")):
                await changed.wait()
                continue
            self.feed(progress.Tick())


def _placement_in(command: Command) -> StartCmdMsg | None:
    match command:
        case StartCmdMsg():
            return command
        case EngineRestartMsg():
            return command.start
        case StopMsg():
            return None


def _recovery(accepted: Accepted, state: Operation) -> RecoveryState:
    """How far it is. Raises CommandRefused."""
    recovery = state.recovery
    if recovery is None or recovery.number != accepted.recovery:
        raise CommandRefused(ErrorCode.CONFLICT, "the recovery was overtaken")
    if recovery.state is RecoveryState.FAILED:
        raise CommandRefused(ErrorCode.FAILED, f"the engine did not recover: {recovery.error}")
    return recovery.state


def _answers(accepted: Accepted, state: Operation) -> bool:
    if accepted.recovery is not None and state.epoch == accepted.epoch:
        recovery = state.recovery
        return recovery is None or recovery.number != accepted.recovery or recovery.state is not RecoveryState.RUNNING
    return state.step in accepted.until or state.epoch != accepted.epoch


def _log_step(before: Operation, after: Operation) -> None:
    extra = _facts(after) | {"lasted_sec": round(after.since - before.since, 3)}
    log.info("engine %s -> %s", before.step, after.step, extra=extra)


def _facts(state: Operation) -> dict[str, object]:
    return {"epoch": state.epoch, "run_id": state.run_id, "instance_id": state.instance_id or None}
