"""The last operations of this pod's engines, one record each, as far as they got."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model.operation import Operation
from supervisor.wire import Step

OPERATIONS_KEPT = 20


class OperationRecord(msgspec.Struct, frozen=True):
    boot_id: str
    serial: int
    """Counts the operations of one boot."""
    epoch: int
    run_id: str | None
    reason: str
    began_at: str
    step: Step
    since: str
    """Of the step."""
    error: str | None = None


class History(msgspec.Struct, frozen=True):
    """The newest last."""

    operations: tuple[OperationRecord, ...] = ()


def noted(history: History, operation: Operation, at: str) -> History:
    """The very same history if the operation has nothing new to tell."""
    if operation.serial == 0:
        return history  # nothing was begun yet
    last = history.operations[-1] if history.operations else None
    if last is None or (last.boot_id, last.epoch) != (operation.boot_id, operation.epoch):
        begun = OperationRecord(
            operation.boot_id,
            operation.serial,
            operation.epoch,
            operation.run_id,
            operation.reason,
            at,
            operation.step,
            at,
            operation.error,
        )
        return History((*history.operations, begun)[-OPERATIONS_KEPT:])
    if (last.step, last.error) == (operation.step, operation.error):
        return history
    gone_on = replace(last, serial=operation.serial, step=operation.step, since=at, error=operation.error)
    return History((*history.operations[:-1], gone_on))
