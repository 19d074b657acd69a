"""A rollout: whether all files say the same, and the run that starts a gang with them."""

from __future__ import annotations

import pytest

from controller.model.budget import Budget, BudgetKey
from controller.model.relaunch.effects import changed
from controller.model.relaunch.exchange import (
    Accepted,
    Answer,
    ConfigurationTaken,
    EpochBegins,
    Refused,
    SaveBudget,
    Send,
)
from controller.model.relaunch.run import Cause, RunReason, RunStep
from controller.model.rollout import Agreed, Differing, agreed
from supervisor.wire import EngineRestartMsg, ErrorCode, Step
from tests.unit.controller_gang import FAULT, NOBODY, Drive, serving

NEW = "sha256:2"
RELOAD = Cause(RunReason.RELOAD, "rollout", config_digest=NEW)


def says(digest: str | None) -> Answer:
    return Accepted(Step.DONE, 4, config_digest=digest)


# --- what the files say -----------------------------------------------------------------------------------------


def test_all_say_the_same() -> None:
    assert agreed({"10.0.0.1:1026": says(NEW), "10.0.0.2:1026": says(NEW)}) == Agreed(NEW)


def test_who_says_what_is_named() -> None:
    told = {"10.0.0.1:1026": says("b"), "10.0.0.2:1026": says("a"), "10.0.0.3:1026": says("a")}
    assert agreed(told) == Differing(
        "the files have not come everywhere yet: 10.0.0.2:1026 and 10.0.0.3:1026 a, 10.0.0.1:1026 b"
    )


@pytest.mark.parametrize(
    "answer, said",
    [
        (NOBODY, "10.0.0.2:1026: connection refused"),
        (Refused(ErrorCode.FAILED, "wrong files"), "10.0.0.2:1026: wrong files"),
        (says(None), "10.0.0.2:1026: it does not say which configuration it would have"),
    ],
)
def test_who_cannot_say_is_named(answer: Answer, said: str) -> None:
    assert agreed({"10.0.0.1:1026": says(NEW), "10.0.0.2:1026": answer}) == Differing(said)


# --- the run ----------------------------------------------------------------------------------------------------


def prepares(drive: Drive) -> list[EngineRestartMsg]:
    requests = [action.request for action in drive.actions if isinstance(action, Send)]
    return [each for each in requests if isinstance(each, EngineRestartMsg) and each.action == "prepare"]


def test_only_a_rollout_tells_the_members_to_take_another_configuration() -> None:
    for cause, expected in ((RELOAD, NEW), (FAULT, None), (Cause(RunReason.OPERATOR, "asked"), None)):
        drive = Drive.open(serving(), cause).to(RunStep.PREPARE)
        assert [each.config_digest for each in prepares(drive)] == [expected] * 2


def test_it_is_the_instance_s_once_all_have_taken_it_and_before_the_first_start() -> None:
    drive = Drive.open(serving(), RELOAD).to(RunStep.PREPARE)
    assert not any(isinstance(action, ConfigurationTaken) for action in drive.actions)
    drive.answer_all()
    kinds = [type(action) for action in drive.actions]
    assert kinds.index(ConfigurationTaken) < kinds.index(EpochBegins)
    (taken,) = [action for action in drive.actions if isinstance(action, ConfigurationTaken)]
    assert changed(serving(), taken, 0.0).spec.config_digest == NEW


def test_what_fails_from_then_on_is_counted_for_the_new_configuration() -> None:
    instance = serving()
    spent = Budget(BudgetKey(instance.key, instance.spec.config_digest), runs=3, phase2s=2)
    drive = Drive.open(instance, RELOAD, budget=spent).to(RunStep.AWAIT)
    drive.wait(700)
    assert drive.run.step is RunStep.PHASE2
    (saved,) = [action.budget for action in drive.actions if isinstance(action, SaveBudget)]
    assert saved.key == BudgetKey(instance.key, NEW)
    assert (saved.runs, saved.phase2s) == (0, 1)


def test_a_member_that_cannot_take_it_leads_to_phase_two() -> None:
    drive = Drive.open(serving(), RELOAD).to(RunStep.PREPARE)
    drive.refuse(0, ErrorCode.FAILED)
    assert drive.run.step is RunStep.PHASE2
