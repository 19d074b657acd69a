"""What is counted in this pod for `/metrics`, out of what observers are told. How it is written: `api/exposition.py`.

Names and causes are an interface (design 8). Nothing here has a pid or an epoch for a label: each would be a new
time series for every restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from supervisor.engine.model.operation import Action, Operation
from supervisor.process.drops import Drop
from supervisor.service.exits import ExitRecord
from supervisor.service.outcomes import Transition
from supervisor.shared.durations import Durations
from supervisor.unit.events import Restart
from supervisor.wire import Step

OUTCOMES = ("done", "failed", "aborted", "obsolete", "abandoned")
"""How a relaunch ends on this supervisor: obsolete is overtaken by a newer epoch, abandoned is the instance deleted."""
ASKED = "asked"
OOM_KILL = "oom-kill"


class Gauges(msgspec.Struct, frozen=True):
    """What is measured when somebody asks."""

    units: Mapping[str, str]
    """The run state of each."""
    freeze_sec: float | None
    """None without an engine, as the next."""
    arbiter_count: int | None
    controller_up: bool | None
    """None without a controller, as the next."""
    heartbeat_age_sec: float | None


class PodMetrics:
    """The counters of one life of the supervisor."""

    def __init__(self, namespace: str, job_name: str) -> None:
        self.labels: Mapping[str, str] = {"namespace": namespace, "job_name": job_name}
        self.exits: Counter[tuple[str, str]] = Counter()
        """By unit and cause."""
        self.restarts: Counter[tuple[str, str]] = Counter()
        self.relaunches: Counter[str] = Counter()
        """By outcome."""
        self.steps: dict[Step, Durations] = {}
        self.lost_bytes: Counter[tuple[str, str]] = Counter()
        """By unit and stream."""
        self.suppressed_lines: Counter[tuple[str, str]] = Counter()
        self._last_cause: dict[str, str] = {}
        self._relaunching = False

    def unit_moved(self, transition: Transition) -> None:
        unit = transition.unit
        if transition.exit is not None:
            self._last_cause[unit] = _cause(transition.exit)
            self.exits[unit, self._last_cause[unit]] += 1
        if transition.after.restarts > transition.before.restarts:
            asked = isinstance(transition.event, Restart)
            self.restarts[unit, ASKED if asked else self._last_cause.get(unit, ASKED)] += 1

    def operation_moved(self, before: Operation, after: Operation, actions: Sequence[Action]) -> None:
        if self._relaunching and before.busy and after.step is not before.step:
            self.steps.setdefault(before.step, Durations()).add(after.since - before.since)
        overtaken = before.busy and after.step is Step.STOPPING and after.serial != before.serial
        if self._relaunching and before.busy and (overtaken or not after.busy):
            self.relaunches[_outcome(after.step)] += 1
            self._relaunching = False
        if after.busy and before.ever_started and (overtaken or not before.busy):
            self._relaunching = True

    def output_dropped(self, drop: Drop) -> None:
        self.lost_bytes[drop.unit, drop.stream] += drop.lost_bytes
        self.suppressed_lines[drop.unit, drop.stream] += drop.suppressed_lines


def _cause(record: ExitRecord) -> str:
    """systemd's Result, and two words beside it: what was asked for is no fault of the unit."""
    if record.ending.asked:
        return ASKED
    return OOM_KILL if record.oom_killed else record.ending.result


def _outcome(step: Step) -> str:
    if step in (Step.DONE, Step.FAILED, Step.ABORTED):
        return step
    return "abandoned" if step in (Step.IDLE, Step.HELD) else "obsolete"
