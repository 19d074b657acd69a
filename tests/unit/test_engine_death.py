"""What is told of a death in the moment in which it is seen: that of this invocation, never of one before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.engine.endpoint_engine import exit_info, why_dead
from supervisor.unit.events import Exited
from supervisor.unit.restart import Ending, Result
from supervisor.unit.state import Descent, Fault, Then, UnitState
from supervisor.unit.states import SubState
from supervisor.wire import ExitInfo

FIRST_ENDED = Ending(
    result=Result.PROTOCOL, cause="critical process core (pid 44) is gone", code=0, pid=33, invocation=1
)
CORE_DIED = Descent(Then.DECIDE, 3.0, fault=Fault(Result.PROTOCOL, "critical process core (pid 135) is gone"))
SECOND = UnitState(sub_state=SubState.STOP_TERM, invocation=2, main_pid=125, descent=CORE_DIED, last_ending=FIRST_ENDED)


@pytest.mark.seed("S25")
def test_a_critical_process_is_missed_before_the_main_process_has_ended() -> None:
    assert exit_info(SECOND) == ExitInfo(cause="critical process core (pid 135) is gone")


def test_the_exit_of_the_main_process_is_told_once_it_is_known() -> None:
    state = replace(SECOND, exit=Exited(code=0, signal=None))
    assert exit_info(state) == ExitInfo(code=0, cause="critical process core (pid 135) is gone")


def test_a_program_that_could_not_be_run_is_told_with_its_code() -> None:
    fault = Fault(Result.EXIT_CODE, "cannot run engine: no such file", code=127)
    state = replace(SECOND, main_pid=None, descent=replace(CORE_DIED, fault=fault))
    assert exit_info(state) == ExitInfo(code=127, cause="cannot run engine: no such file")


def test_at_rest_the_last_ending_tells() -> None:
    ended = replace(FIRST_ENDED, invocation=2, cause="exited with 0", pid=125)
    state = replace(SECOND, sub_state=SubState.FAILED, descent=None, last_ending=ended)
    assert exit_info(state) == ExitInfo(code=0, cause="exited with 0")
    assert why_dead(state) == "exited with 0"
