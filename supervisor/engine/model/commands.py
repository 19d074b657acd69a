"""What a command from outside does to the engine operation: accept or join it (design 4, Answers).

Which commands have no effect is asked of `fencing.py`. The HTTP route maps the decision to a status code; it holds
no state and decides nothing (seed S10).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model import freeze
from supervisor.engine.model.fencing import (
    Refused,
    fence,
    refuse_abort,
    refuse_differing_epochs,
    refuse_held,
    refuse_hold,
    refuse_operation,
    refuse_recovery,
    refuse_reload,
    refuse_stop,
    stale_epoch,
)
from supervisor.engine.model.operation import (
    OUT_OF_SERVICE_STEPS,
    STARTED_STEPS,
    EndSupervisor,
    EngineRecovery,
    HoldEngines,
    Operation,
    OperationSettings,
    PrepareEngines,
    RecoverEngine,
    Report,
    StartEngines,
)
from supervisor.engine.model.operation import Action as OperationAction
from supervisor.wire import Action, EngineRestartMsg, ErrorCode, StartCmdMsg, Step, StopMsg

PREPARED_STEPS = frozenset({Step.PREPARED, Step.STARTING, Step.LOADING, Step.DONE, Step.FAILED, Step.ABORTED})
HELD_STEPS = frozenset({Step.HELD, Step.FAILED, Step.ABORTED})
SPAWNED_STEPS = frozenset({Step.LOADING, Step.DONE, Step.FAILED, Step.ABORTED})


class Accepted(msgspec.Struct, frozen=True):
    """The caller waits until one of `until` is reached in `epoch`, within the answer time."""

    epoch: int
    until: frozenset[Step]
    will_exit: bool | None = None
    recovery: int | None = None
    """The number of the recovery whose end is waited for, in place of a step."""


Decision = Accepted | Refused
Result = tuple[Operation, tuple[OperationAction, ...], Decision]
Command = EngineRestartMsg | StartCmdMsg | StopMsg


def decide(state: Operation, command: Command, settings: OperationSettings, now: float) -> Result:
    """The state after `command`, what is to be done, and what its sender is told."""
    match command:
        case StartCmdMsg():
            return start_placement(state, command, settings, now)
        case StopMsg():
            return stop(state, command, settings, now)
        case EngineRestartMsg(action=Action.PREPARE):
            return prepare(state, command, settings, now)
        case EngineRestartMsg(action=Action.START):
            return start(state, command, now)
        case EngineRestartMsg(action=Action.RESTART):
            return restart(state, command, settings, now)
        case EngineRestartMsg(action=Action.ABORT):
            return abort(state, command, now)
        case EngineRestartMsg(action=Action.HOLD):
            return hold(state, command, settings, now)
        case EngineRestartMsg(action=Action.RECOVER):
            return recover(state, command, settings)
        case EngineRestartMsg(action=Action.RELOAD):
            # Files are no part of the operation: whoever reads them asks first whether that may be.
            return state, (), refuse_reload(state, command) or Accepted(state.epoch, frozenset(Step))
        case _:
            raise AssertionError(f"no such action: {command.action}")


def prepare(state: Operation, message: EngineRestartMsg, settings: OperationSettings, now: float) -> Result:
    """Stop and clean, then wait for the barrier."""
    return _prepare(state, message, settings, now, then_start=False)


def restart(state: Operation, message: EngineRestartMsg, settings: OperationSettings, now: float) -> Result:
    """Prepare and start on this supervisor alone: the seed's form, without a barrier."""
    return _prepare(state, message, settings, now, then_start=True)


def start_placement(state: Operation, message: StartCmdMsg, settings: OperationSettings, now: float) -> Result:
    """`POST /node-manager/start`: the reference system's start, idempotent per (instance, epoch)."""
    command = EngineRestartMsg(
        action=Action.RESTART,
        instance_id=message.instance_id,
        epoch=message.epoch if message.epoch is not None else _epoch_of_start(state, message),
        term=message.term,
        run_id=message.run_id,
        start=message,
        reason="start command",
    )
    return _prepare(state, command, settings, now, then_start=True)


def start(state: Operation, message: EngineRestartMsg, now: float) -> Result:
    """The second phase: only what was prepared in this very run and epoch may start (C2)."""
    refused = fence(state, message)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    if not _is_same_run(state, message):
        if message.epoch is not None and message.epoch < state.epoch:
            return state, (), stale_epoch(state, message.epoch)
        words = f"not prepared in run {message.run_id}, epoch {message.epoch}: prepare first"
        return state, (), Refused(ErrorCode.NOT_PREPARED, words)
    refused = refuse_differing_epochs(message) or refuse_held(state)
    if refused is not None:
        return state, (), refused
    if state.step is Step.PREPARED:
        started, actions = begin_start(state.heard(message.run_id, now), message.start or state.placement, now)
        return started, actions, Accepted(started.epoch, SPAWNED_STEPS)
    if state.step in STARTED_STEPS:
        return state.heard(message.run_id, now), (), Accepted(state.epoch, SPAWNED_STEPS)
    if state.step is Step.FAILED:
        return state, (), Refused(ErrorCode.FAILED, state.error or "the relaunch failed here", state.category)
    if state.step is Step.ABORTED:
        return state, (), Refused(ErrorCode.ABORTED, state.error or "the run was aborted here")
    return state, (), Refused(ErrorCode.NOT_PREPARED, f"still {state.step}: repeat prepare until it is answered")


def abort(state: Operation, message: EngineRestartMsg, now: float) -> Result:
    """Lift the freeze; the run's later messages are refused from now on, even if the run is unknown here."""
    refused = refuse_abort(state, message)
    if refused is not None:
        return state, (), refused
    remembered = replace(state.remember_aborted(message.run_id), term=max(state.term, message.term))
    if message.epoch is not None and message.epoch < state.epoch:
        return remembered, (), stale_epoch(state, message.epoch)
    if not _concerns_us(state, message.run_id):
        return remembered, (), Accepted(state.epoch, frozenset(Step), will_exit=False)
    aborted = replace(remembered, freeze=None)
    if state.step in (Step.STOPPING, Step.CLEANING):
        # The stop is finished first; a half-stopped tree is a state without a name.
        aborted = replace(aborted, aborting=True, start_when_prepared=False)
    elif state.step is Step.PREPARED:
        aborted = replace(aborted, step=Step.ABORTED, since=now, error="aborted while prepared")
    note = Report("warning", f"abort of run {message.run_id or '(unnamed)'} while {state.step}: unfrozen")
    return aborted, (note,), Accepted(aborted.epoch, frozenset(Step), will_exit=_will_exit(state))


def hold(state: Operation, message: EngineRestartMsg, settings: OperationSettings, now: float) -> Result:
    """Stop the engines, which stay stopped until the gang is prepared again."""
    refused = fence(state, message)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    if _is_same_run(state, message):
        return state.heard(message.run_id, now), (), Accepted(state.epoch, HELD_STEPS)
    refused = refuse_hold(state, message)
    if refused is not None:
        return state, (), refused
    held, actions = _begin_hold(_named(state, message), settings, now)
    return held, actions, Accepted(held.epoch, HELD_STEPS)


def recover(state: Operation, message: EngineRestartMsg, settings: OperationSettings) -> Result:
    """Ask the running engine to recover without a restart; step and freeze stay as they are."""
    refused = fence(state, message)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    known = state.recovery
    same_epoch = message.epoch in (None, state.epoch)
    if known is not None and message.run_id is not None and known.run_id == message.run_id and same_epoch:
        return state, (), Accepted(state.epoch, frozenset(), recovery=known.number)
    refused = refuse_recovery(state, message, settings)
    if refused is not None:
        return state, (), refused
    number = state.recoveries + 1
    recovering = replace(state, recoveries=number, recovery=EngineRecovery(number, message.run_id))
    reason = message.reason or f"run {message.run_id or '(unnamed)'}"
    ask = RecoverEngine(number, message.recovery, message.fault_code, reason)
    return recovering, (ask,), Accepted(state.epoch, frozenset(), recovery=number)


def stop(state: Operation, message: StopMsg, settings: OperationSettings, now: float) -> Result:
    """`POST /node-manager/stop`: stop the engines, then end with 255 (seed S23)."""
    refused = refuse_stop(state, message, settings, now)
    if refused is not None:
        return state, (), refused
    if state.leaving is not None:
        return state, (), Accepted(state.epoch, frozenset(Step), will_exit=True)
    reason = f"stop command: {message.reason or 'no reason given'}"
    left = replace(state, term=max(state.term, message.term), leaving=reason)
    return left, (EndSupervisor(reason),), Accepted(left.epoch, frozenset(Step), will_exit=True)


def begin_prepare(
    state: Operation,
    placement: StartCmdMsg,
    settings: OperationSettings,
    now: float,
    config_digest: str | None = None,
) -> tuple[Operation, tuple[OperationAction, ...]]:
    """-> STOPPING, frozen, in the epoch and run that `state` already names; also used by `progress.py`."""
    # Recorded parameters are those of an older epoch; the engine's environment names the one it runs in.
    placement = replace(placement, epoch=state.epoch)
    begun = replace(_stopping(state, settings, now), placement=placement)
    return begun, (PrepareEngines(begun.serial, placement, begun.reason, config_digest),)


def _begin_hold(
    state: Operation, settings: OperationSettings, now: float
) -> tuple[Operation, tuple[OperationAction, ...]]:
    """The hold of the gang takes over that of one rank: what ends the one is to start all."""
    begun = replace(
        _stopping(state, settings, now), holding=True, held_by=None, held=frozenset(), start_when_prepared=False
    )
    return begun, (HoldEngines(begun.serial, begun.reason),)


def _stopping(state: Operation, settings: OperationSettings, now: float) -> Operation:
    return replace(
        state,
        step=Step.STOPPING,
        since=now,
        serial=state.serial + 1,
        dead=frozenset(),
        error=None,
        category=None,
        device_fault=None,
        recovery=None,
        holding=False,
        aborting=False,
        # What is done to a gang cannot wait for one rank that somebody took out of routing.
        paused=None,
        drained=False,
        freeze=freeze.begin(settings.freeze, state.run_id, now),
    )


def begin_start(
    state: Operation, placement: StartCmdMsg | None, now: float
) -> tuple[Operation, tuple[OperationAction, ...]]:
    """PREPARED -> STARTING; also used by `progress.py` when no barrier is waited for."""
    assert placement is not None, "prepared without a placement"
    placement = replace(placement, epoch=state.epoch)
    relaunch = state.relaunch_count + 1 if state.ever_started else None
    started = replace(
        state,
        step=Step.STARTING,
        since=now,
        serial=state.serial + 1,
        placement=placement,
        ever_started=True,
        start_when_prepared=False,
        relaunch_count=relaunch if relaunch is not None else state.relaunch_count,
    )
    return started, (StartEngines(started.serial, placement, relaunch, state.reason),)


def _prepare(
    state: Operation,
    message: EngineRestartMsg,
    settings: OperationSettings,
    now: float,
    *,
    then_start: bool,
) -> Result:
    refused = fence(state, message)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    until = SPAWNED_STEPS if then_start else PREPARED_STEPS
    if _is_same_run(state, message) or (then_start and _is_repeated_start(state, message)):
        return state.heard(message.run_id, now), (), Accepted(state.epoch, until)
    refused = refuse_operation(state, message, settings)
    if refused is not None:
        return state, (), refused
    placement = message.start or state.placement
    if placement is None:
        return state, (), Refused(ErrorCode.NOT_STARTED, "no engine was ever started here and no placement was given")
    named = replace(_named(state, message), start_when_prepared=then_start)
    accepted, actions = begin_prepare(named, placement, settings, now, message.config_digest)
    return accepted, actions, Accepted(accepted.epoch, until)


def _named(state: Operation, message: EngineRestartMsg) -> Operation:
    """Which operation it is from now on."""
    return replace(
        state,
        epoch=message.epoch if message.epoch is not None else state.epoch + 1,
        run_id=message.run_id,
        reason=message.reason or f"run {message.run_id or '(unnamed)'}",
    )


def _is_same_run(state: Operation, message: EngineRestartMsg) -> bool:
    """The same (run_id, epoch) sent again joins or gets the same answer."""
    return message.run_id is not None and message.run_id == state.run_id and message.epoch == state.epoch


def _is_repeated_start(state: Operation, message: EngineRestartMsg) -> bool:
    """A start without a run is the same one per (instance, epoch)."""
    return (
        message.run_id is None
        and message.epoch == state.epoch
        and message.instance_id == state.instance_id
        and state.start_under_way
    )


def _epoch_of_start(state: Operation, message: StartCmdMsg) -> int:
    """A peer without epochs repeats its start; one for engines that run or are about to must not restart them."""
    repeated = message.instance_id == state.instance_id and state.start_under_way
    return state.epoch if repeated else state.epoch + 1


def _concerns_us(state: Operation, run_id: str | None) -> bool:
    if run_id is None:
        return True
    if state.busy:
        return state.run_id in (None, run_id)
    return state.freeze is None or state.freeze.run_id in (None, run_id)


def _will_exit(state: Operation) -> bool:
    """Whether the arbiter ends this supervisor once nothing is frozen."""
    if state.leaving is not None:
        return True
    if state.held_by is not None:
        return False
    return bool(state.dead) or state.step in OUT_OF_SERVICE_STEPS or state.step in (Step.FAILED, Step.ABORTED)
