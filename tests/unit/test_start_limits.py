"""Which units have given up for good, as the arbiter sees it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.engine.model.arbiter import GivenUp
from supervisor.service.outcomes import Transition
from supervisor.start_limits import StartLimits
from supervisor.unit.events import ReportStartLimit, ResetFailed, Start
from supervisor.unit.model import StartLimitAction
from supervisor.unit.state import UnitState
from supervisor.unit.states import SubState

CLEANING = UnitState(sub_state=SubState.CLEANING)
AT_THE_LIMIT = UnitState(sub_state=SubState.START_LIMIT_HIT)


def at_the_limit(action: StartLimitAction, unit: str = "store") -> Transition:
    report = ReportStartLimit(action, "5 starts within 10min")
    return Transition(unit, ResetFailed(), CLEANING, AT_THE_LIMIT, (report,))


@pytest.mark.parametrize(
    "action, given_up",
    [
        (StartLimitAction.NONE, ()),
        (StartLimitAction.EXIT, (GivenUp("StartLimitAction of store: 5 starts within 10min", success=False),)),
        (StartLimitAction.EXIT_SUCCESS, (GivenUp("StartLimitAction of store: 5 starts within 10min", success=True),)),
    ],
)
def test_the_action_says_whether_the_supervisor_is_to_end(
    action: StartLimitAction, given_up: tuple[GivenUp, ...]
) -> None:
    limits = StartLimits()
    news = limits.changed.next()
    limits.unit_moved(at_the_limit(action))
    assert limits.given_up == given_up
    assert news.is_set() is bool(given_up)


def test_who_is_started_again_has_not_given_up_any_more() -> None:
    limits = StartLimits()
    limits.unit_moved(at_the_limit(StartLimitAction.EXIT))
    limits.unit_moved(Transition("other", Start("somebody"), CLEANING, AT_THE_LIMIT, ()))
    assert limits.given_up
    limits.unit_moved(Transition("store", Start("somebody"), AT_THE_LIMIT, replace(AT_THE_LIMIT, restarts=1), ()))
    assert limits.given_up, "it has not moved"
    limits.unit_moved(Transition("store", Start("somebody"), AT_THE_LIMIT, UnitState(sub_state=SubState.WAITING), ()))
    assert not limits.given_up
