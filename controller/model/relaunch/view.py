"""A run as tools see it (wire.RunView)."""

from __future__ import annotations

from collections.abc import Callable

from controller.model.relaunch.run import Outcome, Run
from supervisor.wire import RunStepView, RunView


def view(run: Run, to_wall: Callable[[float], str]) -> RunView:
    """`to_wall` turns a monotonic time into RFC 3339 UTC. A suspended run still runs: the next leader's."""
    return RunView(
        id=run.id,
        instance_id=run.instance.id,
        epoch=run.epoch,
        reason=run.cause.reason,
        outcome=None if run.outcome in (None, Outcome.SUSPENDED) else run.outcome,
        phase=run.phase,
        steps=tuple(
            RunStepView(
                name=record.step,
                started_at=to_wall(record.started_at),
                ended_at=None if record.ended_at is None else to_wall(record.ended_at),
                error=record.error,
            )
            for record in run.history
        ),
        supervisors=tuple(row.address for row in run.rows),
        message=run.message or run.cause.text,
    )
