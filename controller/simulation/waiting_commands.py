"""Commands whose senders wait for a step of the operation, as `supervisor.engine.operator` lets them wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.model.relaunch.exchange import Accepted, Answer, Refused
from controller.simulation.surroundings import Life
from supervisor.engine.model import commands
from supervisor.engine.model.operation import Operation
from supervisor.wire import ErrorCode, Step

Reply = Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    accepted: commands.Accepted
    reply: Reply


class WaitingCommands:
    def __init__(self, life: Life, operation: Callable[[], Operation], answer_sec: float) -> None:
        self._life = life
        self._operation = operation
        self._answer_sec = answer_sec
        """Who has waited for so long is told the step that was reached."""
        self._waiting: list[_Waiting] = []

    def add(self, accepted: commands.Accepted, reply: Reply) -> None:
        waiting = _Waiting(accepted, reply)
        self._waiting.append(waiting)
        self._life.after(self._answer_sec, lambda: self._answer(waiting))
        self.look()

    def look(self) -> None:
        operation = self._operation()
        for waiting in [each for each in self._waiting if _is_answered(each.accepted, operation)]:
            self._answer(waiting)

    def _answer(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.reply(_outcome(waiting.accepted, self._operation()))


def refused(operation: Operation, code: ErrorCode, message: str) -> Refused:
    return Refused(code, message, operation.step, operation.epoch, operation.boot_id, operation.term)


def _is_answered(accepted: commands.Accepted, operation: Operation) -> bool:
    return operation.step in accepted.until or operation.epoch != accepted.epoch


def _outcome(accepted: commands.Accepted, operation: Operation) -> Answer:
    if operation.epoch != accepted.epoch:
        return refused(operation, ErrorCode.STALE_EPOCH, f"overtaken by epoch {operation.epoch}")
    if accepted.will_exit is None and operation.step is Step.FAILED:
        return refused(operation, ErrorCode.FAILED, operation.error or "the relaunch failed")
    if accepted.will_exit is None and operation.step is Step.ABORTED:
        return refused(operation, ErrorCode.ABORTED, operation.error or "the run was aborted")
    return Accepted(operation.step, operation.epoch, operation.boot_id, accepted.will_exit)
