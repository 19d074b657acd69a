"""Which units have given up for good, and want the supervisor to end (StartLimitAction): seen here, for the arbiter.

A unit only reports; whether and when the supervisor ends is decided in `engine/model/arbiter.py` alone.
"""

from __future__ import annotations

from supervisor.engine.model.arbiter import GivenUp
from supervisor.service.changes import Changes
from supervisor.service.outcomes import Transition
from supervisor.unit.events import ReportStartLimit
from supervisor.unit.model import StartLimitAction


class StartLimits:
    """One per supervisor; an observer of every unit."""

    def __init__(self) -> None:
        self.changed = Changes()
        """Another unit has given up."""
        self._given_up: dict[str, GivenUp] = {}

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        return tuple(self._given_up.values())

    def unit_moved(self, transition: Transition) -> None:
        unit = transition.unit
        if transition.after.sub_state is not transition.before.sub_state:
            self._given_up.pop(unit, None)  # somebody has started it again, or reset it
        for action in transition.actions:
            if isinstance(action, ReportStartLimit) and action.action is not StartLimitAction.NONE:
                success = action.action is StartLimitAction.EXIT_SUCCESS
                self._given_up[unit] = GivenUp(f"StartLimitAction of {unit}: {action.reason}", success)
                self.changed.announce()
