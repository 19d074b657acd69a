"""What is counted of relaunch runs for `/metrics`, out of how each is shown when it closes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from controller.model.member import InstanceKey
from supervisor.shared.durations import Durations
from supervisor.wire import RunStepView, RunView

MAX_JOBS = 5000
"""Whose counts are kept; those of the job that was relaunched longest ago go first."""


class RunMetrics:
    """The counters of one leadership."""

    def __init__(self) -> None:
        self.outcomes: dict[InstanceKey, Counter[str]] = {}
        self.steps: dict[tuple[str, str], Durations] = {}
        """By namespace and step; by job they would be a thousand series for each."""

    def closed(self, run: RunView) -> None:
        key = InstanceKey(run.namespace, run.job_name)
        counts = self.outcomes.pop(key, None) or Counter()
        counts[run.outcome or "suspended"] += 1
        self.outcomes[key] = counts
        if len(self.outcomes) > MAX_JOBS:
            del self.outcomes[next(iter(self.outcomes))]
        for step in run.steps:
            if (seconds := _lasted(step)) is not None:
                self.steps.setdefault((run.namespace, step.name), Durations()).add(seconds)


def _lasted(step: RunStepView) -> float | None:
    """Both times are reckoned from one monotonic clock, so that no wall clock's jump is between them."""
    if step.ended_at is None:
        return None
    ended, started = datetime.fromisoformat(step.ended_at), datetime.fromisoformat(step.started_at)
    return max(0.0, (ended - started).total_seconds())
