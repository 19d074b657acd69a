"""A run that somebody was promised, and that waits for its turn: what the journal has of it until it opens."""

from __future__ import annotations

from controller.model.instance import Instance
from controller.model.relaunch.run import Cause, RunReason, RunRecord, RunStep

PROMISED = frozenset({RunReason.OPERATOR, RunReason.RELOAD})
"""Nothing in the state of an instance says that it wants them: every other run would be opened again by that."""


def promise(instance: Instance, cause: Cause, *, run_id: str, term: int, now: float) -> RunRecord:
    """Whoever reads it opens the run, on the instance as that is then."""
    return RunRecord(
        run_id=run_id,
        instance=instance.key,
        instance_id=instance.id,
        term=term,
        epoch=instance.epoch,
        base_epoch=instance.epoch,
        cause=cause,
        opened_at=now,
        step=RunStep.OPEN,
        remaining_sec=0.0,
        backoff_sec=0.0,
        prepare_sent=False,
        phase=1,
        members=(),
        history=(),
        closing=None,
        outcome=None,
        message=cause.text,
    )


def is_given_up(record: RunRecord) -> bool:
    """Whoever reads it ends the run, unless it is over."""
    return record.closing is not None or not record.is_open
