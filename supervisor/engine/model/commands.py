"""What a command from outside does to the engine operation: accept, join, refuse (design 4, Answers).

Fencing stands here and nowhere else: a command of an older term, epoch or boot, or of an aborted run, has no
effect (invariant I5). The HTTP route maps the decision to a status code; it holds no state and decides nothing
(seed S10).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model import freeze
from supervisor.engine.model.operation import (
    OUT_OF_SERVICE_STEPS,
    STARTED_STEPS,
    EndSupervisor,
    Operation,
    OperationSettings,
    PrepareEngines,
    Report,
    StartEngines,
)
from supervisor.engine.model.operation import Action as OperationAction
from supervisor.wire import Action, EngineRestartMsg, ErrorCode, StartCmdMsg, Step, StopMsg

PREPARED_STEPS = frozenset({Step.PREPARED, Step.STARTING, Step.LOADING, Step.DONE, Step.FAILED, Step.ABORTED})
SPAWNED_STEPS = frozenset({Step.LOADING, Step.DONE, Step.FAILED, Step.ABORTED})


class Accepted(msgspec.Struct, frozen=True):
    """The caller waits until one of `until` is reached in `epoch`, within the answer time."""

    epoch: int
    until: frozenset[Step]
    will_exit: bool | None = None


class Refused(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str


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
    refused = _fence(state, message.term, message.boot_id, message.run_id)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    if not _is_same_run(state, message):
        if message.epoch is not None and message.epoch < state.epoch:
            return state, (), _stale_epoch(state, message.epoch)
        return (
            state,
            (),
            Refused(
                ErrorCode.NOT_PREPARED, f"not prepared in run {message.run_id}, epoch {message.epoch}: prepare first"
            ),
        )
    refused = _refuse_epochs(message) or _refuse_held(state)
    if refused is not None:
        return state, (), refused
    if state.step is Step.PREPARED:
        started, actions = begin_start(state.heard(message.run_id, now), message.start or state.placement, now)
        return started, actions, Accepted(started.epoch, SPAWNED_STEPS)
    if state.step in STARTED_STEPS:
        return state.heard(message.run_id, now), (), Accepted(state.epoch, SPAWNED_STEPS)
    if state.step is Step.FAILED:
        return state, (), Refused(ErrorCode.FAILED, state.error or "the relaunch failed here")
    if state.step is Step.ABORTED:
        return state, (), Refused(ErrorCode.ABORTED, state.error or "the run was aborted here")
    return state, (), Refused(ErrorCode.NOT_PREPARED, f"still {state.step}: repeat prepare until it is answered")


def abort(state: Operation, message: EngineRestartMsg, now: float) -> Result:
    """Lift the freeze; the run's later messages are refused from now on, even if the run is unknown here."""
    if message.boot_id is not None and message.boot_id != state.boot_id:
        return state, (), _wrong_boot(state)
    if message.term < state.term:
        return state, (), _stale_term(state, message.term)
    if message.run_id is None and _is_foreign(state, message.instance_id):
        return state, (), _wrong_instance(state, message.instance_id)
    remembered = replace(
        state,
        term=max(state.term, message.term),
        aborted_runs=state.aborted_runs | ({message.run_id} if message.run_id is not None else set()),
    )
    if message.epoch is not None and message.epoch < state.epoch:
        return remembered, (), _stale_epoch(state, message.epoch)
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


def stop(state: Operation, message: StopMsg, settings: OperationSettings, now: float) -> Result:
    """`POST /node-manager/stop`: stop the engines, then end with 255 (seed S23)."""
    if message.boot_id is not None and message.boot_id != state.boot_id:
        return state, (), _wrong_boot(state)
    unfenced = message.boot_id is None and message.epoch is None and message.term == 0
    if unfenced and now - state.booted_at < settings.unfenced_stop_guard_sec:
        return (
            state,
            (),
            Refused(
                ErrorCode.WRONG_BOOT,
                "a stop that names no boot, epoch or term is refused in the first "
                f"{settings.unfenced_stop_guard_sec:g} s of a boot: it may be a repeat meant for the container before",
            ),
        )
    if message.term < state.term:
        return state, (), _stale_term(state, message.term)
    if message.epoch is not None and message.epoch < state.epoch:
        return state, (), _stale_epoch(state, message.epoch)
    if _is_foreign(state, message.instance_id):
        return state, (), _wrong_instance(state, message.instance_id)
    if state.leaving is not None:
        return state, (), Accepted(state.epoch, frozenset(Step), will_exit=True)
    reason = f"stop command: {message.reason or 'no reason given'}"
    left = replace(state, term=max(state.term, message.term), leaving=reason)
    return left, (EndSupervisor(reason),), Accepted(left.epoch, frozenset(Step), will_exit=True)


def begin_prepare(
    state: Operation, placement: StartCmdMsg, settings: OperationSettings, now: float
) -> tuple[Operation, tuple[OperationAction, ...]]:
    """-> STOPPING, frozen, in the epoch and run that `state` already names; also used by `progress.py`."""
    # Recorded parameters are those of an older epoch; the engine's environment names the one it runs in.
    placement = replace(placement, epoch=state.epoch)
    begun = replace(
        state,
        step=Step.STOPPING,
        since=now,
        serial=state.serial + 1,
        placement=placement,
        dead=False,
        error=None,
        aborting=False,
        freeze=freeze.begin(settings.freeze, state.run_id, now),
    )
    return begun, (PrepareEngines(begun.serial, placement, begun.reason),)


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
    refused = _fence(state, message.term, message.boot_id, message.run_id)
    if refused is not None:
        return state, (), refused
    state = replace(state, term=max(state.term, message.term))
    until = SPAWNED_STEPS if then_start else PREPARED_STEPS
    if _is_same_run(state, message) or (then_start and _is_repeated_start(state, message)):
        return state.heard(message.run_id, now), (), Accepted(state.epoch, until)
    refused = _refuse_operation(state, message, settings)
    if refused is not None:
        return state, (), refused
    placement = message.start or state.placement
    if placement is None:
        return state, (), Refused(ErrorCode.NOT_STARTED, "no engine was ever started here and no placement was given")
    named = replace(
        state,
        epoch=message.epoch if message.epoch is not None else state.epoch + 1,
        run_id=message.run_id,
        reason=message.reason or f"run {message.run_id or '(unnamed)'}",
        start_when_prepared=then_start,
    )
    accepted, actions = begin_prepare(named, placement, settings, now)
    return accepted, actions, Accepted(accepted.epoch, until)


def _refuse_operation(state: Operation, message: EngineRestartMsg, settings: OperationSettings) -> Refused | None:
    refused = _refuse_epochs(message)
    if refused is not None:
        return refused
    if message.start is None and _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    if message.epoch is not None and message.epoch <= state.epoch:
        return _stale_epoch(state, message.epoch)
    if state.ever_started and not settings.enabled:
        return Refused(ErrorCode.DISABLED, "enable_engine_relaunch is off on this supervisor")
    refused = _refuse_held(state)
    if refused is not None:
        return refused
    # A newer epoch overtakes whatever is in progress; a caller without one cannot be ordered, so it must wait.
    if message.epoch is None and state.busy:
        return Refused(ErrorCode.BUSY, f"a relaunch is in progress ({state.step}, epoch {state.epoch})")
    return None


def _refuse_epochs(message: EngineRestartMsg) -> Refused | None:
    given = message.start
    if given is None or given.epoch in (None, message.epoch):
        return None
    return Refused(
        ErrorCode.MALFORMED, f"start.epoch {given.epoch} and epoch {message.epoch} differ; they must be equal"
    )


def _refuse_held(state: Operation) -> Refused | None:
    if state.held_by is None:
        return None
    return Refused(ErrorCode.HELD, f"the engine is held by {state.held_by}")


def _fence(state: Operation, term: int, boot_id: str | None, run_id: str | None) -> Refused | None:
    if state.leaving is not None:
        return Refused(ErrorCode.LEAVING, f"this supervisor is leaving: {state.leaving}")
    if boot_id is not None and boot_id != state.boot_id:
        return _wrong_boot(state)
    if term < state.term:
        return _stale_term(state, term)
    if run_id is not None and run_id in state.aborted_runs:
        return Refused(ErrorCode.ABORTED, f"run {run_id} was aborted here")
    return None


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
    return state.dead or state.step in OUT_OF_SERVICE_STEPS or state.step in (Step.FAILED, Step.ABORTED)


def _is_foreign(state: Operation, instance_id: int | None) -> bool:
    return instance_id is not None and state.instance_id not in (0, instance_id)


def _wrong_boot(state: Operation) -> Refused:
    return Refused(ErrorCode.WRONG_BOOT, f"this is boot {state.boot_id}: the command was meant for another life")


def _stale_term(state: Operation, term: int) -> Refused:
    found = f"carries term {term}" if term else "carries no term"
    return Refused(ErrorCode.STALE_TERM, f"the command {found}, but a leader of term {state.term} was seen")


def _stale_epoch(state: Operation, epoch: int) -> Refused:
    return Refused(ErrorCode.STALE_EPOCH, f"epoch {epoch} is not newer than {state.epoch}")


def _wrong_instance(state: Operation, instance_id: int | None) -> Refused:
    return Refused(
        ErrorCode.WRONG_INSTANCE, f"instance {instance_id} was meant, this pod belongs to {state.instance_id}"
    )
