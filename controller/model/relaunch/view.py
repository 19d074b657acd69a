"""A run as tools see it (wire.RunView)."""

from __future__ import annotations

from collections.abc import Callable

from controller.model.relaunch.run import RunRecord
from supervisor.wire import RunStepView, RunView


def view(record: RunRecord, to_wall: Callable[[float], str]) -> RunView:
    """`to_wall` turns a monotonic time into RFC 3339 UTC. A suspended run still runs: the next leader's."""
    return RunView(
        id=record.run_id,
        instance_id=record.instance_id,
        epoch=record.epoch,
        reason=record.cause.reason,
        outcome=None if record.is_open else record.outcome,
        phase=record.phase,
        steps=tuple(
            RunStepView(
                name=step.step,
                started_at=to_wall(step.started_at),
                ended_at=None if step.ended_at is None else to_wall(step.ended_at),
                error=step.error,
            )
            for step in record.history
        ),
        supervisors=tuple(member.address for member in record.members),
        message=record.message or record.cause.text,
        namespace=record.instance.namespace,
        job_name=record.instance.job_name,
    )
