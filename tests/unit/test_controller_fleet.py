"""How many instances may have their containers restarted at a time, and what is said when it is one too many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.fleet import PhaseTwo, Recent, forgotten, noted, why_not
from controller.model.instance import Holder
from controller.model.member import InstanceKey
from controller.model.relaunch.exchange import Emit, InstanceHeld, Level, SaveBudget
from controller.model.relaunch.run import Outcome, RunStep
from controller.model.settings import FleetSettings
from tests.unit.controller_gang import Drive, serving

SETTINGS = FleetSettings()
NOW = 10_000.0


def key(number: int) -> InstanceKey:
    return InstanceKey("default", f"job-{number}")


def failed(*numbers: int, at: float = NOW, why: str = "10.0.0.1:1026 shows no progress for 600 s") -> Recent:
    recent: Recent = ()
    for number in numbers:
        recent = noted(recent, PhaseTwo(key(number), at, why), SETTINGS)
    return recent


def may(recent: Recent, instances: int, *, who: int = 99, fraction: float = 0.3, now: float = NOW) -> bool:
    return not why_not(recent, key(who), instances, now, FleetSettings(max_phase2_fraction=fraction))


@pytest.mark.parametrize(
    "instances, fraction, before, allowed",
    [
        (1, 0.3, 0, True),
        (2, 0.3, 1, True),
        (3, 0.3, 1, True),
        (3, 0.3, 2, False),
        (9, 0.3, 1, True),
        (9, 0.3, 2, False),
        (10, 0.3, 2, True),
        (10, 0.3, 3, False),
        (100, 0.3, 29, True),
        (100, 0.3, 30, False),
        (100, 0.0, 1, True),
        (100, 0.0, 2, False),
        (100, 1.0, 99, True),
    ],
)
def test_a_fraction_of_the_fleet_but_never_fewer_than_two(
    instances: int, fraction: float, before: int, allowed: bool
) -> None:
    assert may(failed(*range(before)), instances, fraction=fraction) is allowed


def test_what_is_older_than_the_window_does_not_count() -> None:
    recent = failed(1, 2, at=NOW - 600)
    assert not may(recent, 3)
    assert may(recent, 3, now=NOW + 0.1)


def test_the_same_instance_again_is_no_news_of_the_fleet() -> None:
    assert may(failed(1, 1, 1, 1), 3)
    assert may(failed(1, 2), 3, who=2), "its own budget judges it"


def test_what_an_operator_has_dealt_with_does_not_count() -> None:
    assert may(forgotten(failed(1, 2), key(1)), 3)


def test_the_window_keeps_one_entry_for_each_instance_and_nothing_old() -> None:
    recent = noted(failed(1, 2, 1, at=NOW - 700), PhaseTwo(key(3), NOW, "why"), SETTINGS)
    assert [each.instance for each in recent] == [key(3)]


def test_the_likely_shared_cause_is_what_most_of_them_say() -> None:
    recent: Recent = ()
    for number, why in enumerate(
        ["10.0.0.1:1026 shows no progress for 600 s", "a device is gone", "10.0.7.2:1026 shows no progress for 600 s"]
    ):
        recent = noted(recent, PhaseTwo(key(number), NOW, why), SETTINGS)
    said = why_not(recent, key(99), 10, NOW, SETTINGS)
    assert "the containers of 3 of 10 instances restarted within 600 s" in said
    assert said.endswith("2 of them say: 10.0.7.2:1026 shows no progress for 600 s")


# --- the run that may not --------------------------------------------------------------------------------------------


def test_a_run_that_may_not_enter_phase_two_holds_the_instance_with_an_alarm() -> None:
    drive = Drive.open(serving())
    drive.to(RunStep.AWAIT)
    drive.run = replace(drive.run, no_phase_two="3 of 10 have failed")
    drive.wait(700)
    assert drive.run.outcome is Outcome.HELD
    (held,) = [action.held for action in drive.actions if isinstance(action, InstanceHeld)]
    assert held.by is Holder.FLEET
    assert "3 of 10 have failed" in held.reason
    assert any(isinstance(action, Emit) and action.level is Level.ERROR for action in drive.actions)
    assert drive.sent("stop") == [], "no container is restarted"


def test_whoever_was_prepared_is_unfrozen_and_no_phase_two_is_counted() -> None:
    drive = Drive.open(serving())
    drive.to(RunStep.PREPARE)
    drive.run = replace(drive.run, no_phase_two="3 of 10 have failed")
    spent = len([action for action in drive.actions if isinstance(action, SaveBudget)])
    drive.new_boot(1)
    assert drive.run.step is RunStep.CLEANUP
    drive.answer_all()
    assert drive.run.outcome is Outcome.HELD
    assert len(drive.sent("abort")) == 1
    assert len([action for action in drive.actions if isinstance(action, SaveBudget)]) == spent


def test_phase_two_that_has_begun_goes_on() -> None:
    drive = Drive.open(serving())
    drive.to(RunStep.PREPARE)
    drive.new_boot(1)
    assert drive.run.step is RunStep.PHASE2
    drive.run = replace(drive.run, no_phase_two="3 of 10 have failed")
    drive.new_boot(0)
    assert drive.run.outcome is Outcome.PHASE2
