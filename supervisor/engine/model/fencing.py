"""Which commands have no effect, and what their sender is told (design 4, Answers; invariant I5).

A command of an older term, epoch or boot, of an aborted run, for another instance, or one that meets a held or busy
engine. Everything here is a question about the operation as it is; what an accepted command does is in `commands.py`.
"""

from __future__ import annotations

import msgspec

from supervisor.engine.model.operation import Operation, OperationSettings
from supervisor.wire import EngineRestartMsg, ErrorCode, FaultCategory, RecoveryState, Step, StopMsg


class Refused(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str
    category: FaultCategory | None = None


def fence(state: Operation, message: EngineRestartMsg) -> Refused | None:
    """What holds for every command about engines, one that is repeated included."""
    if state.leaving is not None:
        return Refused(ErrorCode.LEAVING, f"this supervisor is leaving: {state.leaving}")
    refused = _of_another_life(state, message.boot_id, message.term)
    if refused is None and message.run_id is not None and message.run_id in state.aborted_runs:
        return Refused(ErrorCode.ABORTED, f"run {message.run_id} was aborted here")
    return refused


def refuse_operation(state: Operation, message: EngineRestartMsg, settings: OperationSettings) -> Refused | None:
    """A prepare or restart that joins nothing."""
    refused = refuse_differing_epochs(message)
    if refused is not None:
        return refused
    if message.start is None and _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    if message.epoch is not None and message.epoch <= state.epoch:
        return stale_epoch(state, message.epoch)
    if state.ever_started and not settings.enabled:
        return Refused(ErrorCode.DISABLED, "enable_engine_relaunch is off on this supervisor")
    refused = refuse_held(state) or _refuse_restoring(state)
    if refused is not None:
        return refused
    # A newer epoch overtakes whatever is in progress; a caller without one cannot be ordered, so it must wait.
    if message.epoch is None and state.busy:
        return Refused(ErrorCode.BUSY, f"a relaunch is in progress ({state.step}, epoch {state.epoch})")
    return None


def refuse_hold(state: Operation, message: EngineRestartMsg) -> Refused | None:
    """A hold that joins nothing: whatever is done with the engines, it may end that."""
    if _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    if message.epoch is not None and message.epoch <= state.epoch:
        return stale_epoch(state, message.epoch)
    return None


def refuse_reload(state: Operation, message: EngineRestartMsg) -> Refused | None:
    """It touches no engine, but an order that is out of date is none (I5)."""
    refused = fence(state, message)
    if refused is None and _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    if refused is None and message.epoch is not None and message.epoch < state.epoch:
        return stale_epoch(state, message.epoch)
    return refused


def refuse_recovery(state: Operation, message: EngineRestartMsg, settings: OperationSettings) -> Refused | None:
    """A recovery that joins nothing: only an engine that runs, and the one that is meant, can be asked."""
    if _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    if message.epoch is not None and message.epoch != state.epoch:
        return Refused(ErrorCode.STALE_EPOCH, f"epoch {message.epoch} is not that of the engine here, {state.epoch}")
    if not settings.recovers:
        return Refused(ErrorCode.UNSUPPORTED, "the engine's unit declares neither RecoverHttp nor RecoverExec")
    refused = refuse_held(state)
    if refused is not None:
        return refused
    if state.busy:
        return Refused(ErrorCode.BUSY, f"a relaunch is in progress ({state.step}, epoch {state.epoch})")
    if state.step is not Step.DONE or state.dead:
        return Refused(ErrorCode.CONFLICT, "no engine runs here that could be asked to recover")
    if state.recovery is not None and state.recovery.state is RecoveryState.RUNNING:
        return Refused(ErrorCode.BUSY, f"the engine is recovering already, for run {state.recovery.run_id}")
    return None


def refuse_abort(state: Operation, message: EngineRestartMsg) -> Refused | None:
    """An abort reaches a supervisor in every state, a leaving one too; its epoch is judged once it is remembered."""
    refused = _of_another_life(state, message.boot_id, message.term)
    if refused is None and message.run_id is None and _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    return refused


def refuse_stop(state: Operation, message: StopMsg, settings: OperationSettings, now: float) -> Refused | None:
    unfenced = message.boot_id is None and message.epoch is None and message.term == 0
    if unfenced and now - state.booted_at < settings.unfenced_stop_guard_sec:
        reason = (
            "a stop that names no boot, epoch or term is refused in the first "
            f"{settings.unfenced_stop_guard_sec:g} s of a boot: it may be a repeat meant for the container before"
        )
        return Refused(ErrorCode.WRONG_BOOT, reason)
    refused = _of_another_life(state, message.boot_id, message.term)
    if refused is not None:
        return refused
    if message.epoch is not None and message.epoch < state.epoch:
        return stale_epoch(state, message.epoch)
    if _is_foreign(state, message.instance_id):
        return _wrong_instance(state, message.instance_id)
    return None


def refuse_differing_epochs(message: EngineRestartMsg) -> Refused | None:
    given = message.start
    if given is None or given.epoch in (None, message.epoch):
        return None
    reason = f"start.epoch {given.epoch} and epoch {message.epoch} differ; they must be equal"
    return Refused(ErrorCode.MALFORMED, reason)


def refuse_held(state: Operation) -> Refused | None:
    return None if state.held_by is None else Refused(ErrorCode.HELD, f"the engine is held by {state.held_by}")


def _refuse_restoring(state: Operation) -> Refused | None:
    if not state.restoring:
        return None
    return Refused(ErrorCode.RESTORING, "a snapshot is being restored: ask again when that is done, or stop the engine")


def stale_epoch(state: Operation, epoch: int) -> Refused:
    return Refused(ErrorCode.STALE_EPOCH, f"epoch {epoch} is not newer than {state.epoch}")


def _of_another_life(state: Operation, boot_id: str | None, term: int) -> Refused | None:
    """Sent to the supervisor of an earlier container, or by a leader that has been deposed."""
    if boot_id is not None and boot_id != state.boot_id:
        return Refused(ErrorCode.WRONG_BOOT, f"this is boot {state.boot_id}: the command was meant for another life")
    if term < state.term:
        found = f"carries term {term}" if term else "carries no term"
        return Refused(ErrorCode.STALE_TERM, f"the command {found}, but a leader of term {state.term} was seen")
    return None


def _is_foreign(state: Operation, instance_id: int | None) -> bool:
    return instance_id is not None and state.instance_id not in (0, instance_id)


def _wrong_instance(state: Operation, instance_id: int | None) -> Refused:
    reason = f"instance {instance_id} was meant, this pod belongs to {state.instance_id}"
    return Refused(ErrorCode.WRONG_INSTANCE, reason)
