"""What is kept of an exit, and how people and tools get to see it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from supervisor.service.exits import EXITS_KEPT, TAIL_CHARACTERS, TAIL_LINES, ExitRecord, Exits, last_lines, may_be_oom
from supervisor.unit.model import Command, Engine, RestartSettings
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.restart import CleanExits, Ending, Result, result_of_exit
from supervisor.unit.state import rules_of
from supervisor.wire import ExitView
from tests.support.services import unit

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
CRASH = Ending(
    Result.CORE_DUMP,
    "killed by SIGSEGV, core dumped",
    signal="SIGSEGV",
    core_dumped=True,
    pid=7,
    began_at=10.0,
    ended_at=12.5,
)


def test_everything_that_is_known_is_shown() -> None:
    view = ExitRecord(CRASH, AT, epoch=3, oom_killed=True, log_tail=("last words",)).view
    assert view == ExitView(
        pid=7,
        code=None,
        signal="SIGSEGV",
        asked=False,
        asked_by=None,
        cause="killed by SIGSEGV, core dumped (out of memory)",
        uptime_sec=2.5,
        at="2026-01-02T03:04:05.678Z",
        epoch=3,
        oom_killed=True,
        core_dumped=True,
        log_tail=("last words",),
    )


def test_the_last_ones_are_kept() -> None:
    exits = Exits()
    assert (exits.last, [*exits]) == (None, [])
    for number in range(EXITS_KEPT + 5):
        exits.add(ExitRecord(CRASH, AT, epoch=number, oom_killed=False, log_tail=()))
    assert [record.epoch for record in exits] == [*range(5, EXITS_KEPT + 5)]
    assert exits.last is not None
    assert exits.last.epoch == EXITS_KEPT + 4


@pytest.mark.parametrize(
    "lines, kept",
    [
        ([], ()),
        (["a", "b"], ("a", "b")),
        ([str(number) for number in range(100)], tuple(str(number) for number in range(100 - TAIL_LINES, 100))),
        (["x" * TAIL_CHARACTERS, "end"], ("end",)),
        (["a" + "x" * TAIL_CHARACTERS], ("x" * TAIL_CHARACTERS,)),
    ],
)
def test_the_last_lines_are_bounded(lines: list[str], kept: tuple[str, ...]) -> None:
    assert last_lines(lines) == kept


def test_a_dash_before_the_program_makes_every_exit_a_clean_one_but_not_an_engines() -> None:
    run = ServiceTable(exec_start=Command(("x",), ignore_failure=True))
    assert rules_of(unit(service=run)).clean_exits is CleanExits.ALWAYS
    assert rules_of(unit(service=run, engine=Engine())).clean_exits is CleanExits.NEVER
    for code, signal in ((3, None), (None, "SIGKILL")):
        assert result_of_exit(RestartSettings(), CleanExits.ALWAYS, code, signal, False) is Result.SUCCESS


@pytest.mark.parametrize(
    "ending, expected",
    [
        (Ending(Result.SIGNAL, "killed by SIGKILL", signal="SIGKILL"), True),
        (Ending(Result.SIGNAL, "killed by SIGKILL", signal="SIGKILL", asked_by="operator"), False),
        (Ending(Result.PROTOCOL, "critical process worker (pid 7) is gone", signal="SIGTERM"), True),
        (Ending(Result.EXIT_CODE, "exited with code 1", code=1), False),
        (CRASH, False),
    ],
)
def test_which_endings_an_oom_kill_explains(ending: Ending, expected: bool) -> None:
    assert may_be_oom(ending) is expected
