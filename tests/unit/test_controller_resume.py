"""A run that another life of the controller began (design 4, Resume): in which step it goes on, and with whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest

from controller.model.budget import Budget
from controller.model.instance import Instance, InstanceStatus, Verdict, begin_epoch, observe
from controller.model.member import Observation
from controller.model.need import run_needed
from controller.model.relaunch import plan
from controller.model.relaunch.dispatch import postpone, record
from controller.model.relaunch.exchange import CancelKind, EpochBegins, Journal, SaveBudget, Tick
from controller.model.relaunch.promise import promise
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunRecord, RunStep
from controller.model.settings import RelaunchSettings
from controller.model.verdict import judge
from controller.store import codec
from controller.store.codec import Clocks
from supervisor.wire import EndpointStatus, ErrorCode, Step
from tests.unit.controller_gang import (
    FAULT,
    INSTANCE_SETTINGS,
    REJOIN,
    SETTINGS,
    SILENT,
    Drive,
    Told,
    assembled,
    fresh_budget,
    joined,
    registration,
    seen,
    serving,
)

OPERATOR = Cause(RunReason.OPERATOR, "asked by an operator")
STARTED = frozenset({RunStep.START, RunStep.AWAIT, RunStep.PHASE2})
NOW = 500.0
"""By the clock of the second life."""


def killed_in(step: RunStep, cause: Cause = FAULT, nnodes: int = 2) -> Drive:
    if step is RunStep.PHASE2:
        drive = Drive.open(serving(nnodes), cause).to(RunStep.PREPARE)
        drive.refuse(0, ErrorCode.FAILED)
        return drive
    if step is RunStep.CLEANUP:
        drive = Drive.open(serving(nnodes), cause).to(RunStep.PREPARE)
        drive.cancel(CancelKind.ABORT)
        return drive
    budget = replace(fresh_budget(serving(nnodes)), runs=1 if step is RunStep.BACKOFF else 0)
    return Drive.open(serving(nnodes), cause, budget=budget).to(step)


def journaled(drive: Drive) -> RunRecord:
    """The last row, through the journal, a second ago."""
    (*_, last) = [action for action in drive.actions if isinstance(action, Journal)]
    return codec.decode_run(codec.encode_run(last.record, Clocks(drive.now, 0.0)), Clocks(NOW, 1.0))


def loaded(drive: Drive, instance: Instance | None = None) -> Instance:
    kept = instance or drive.run.instance
    for action in drive.actions:
        if isinstance(action, EpochBegins):
            kept = begin_epoch(kept, action.epoch, action.lives)
    return codec.decode_instance(codec.encode_instance(kept, Clocks(drive.now, 0.0)), Clocks(NOW, 1.0))


def spent(drive: Drive) -> Budget:
    budgets = [action.budget for action in drive.actions if isinstance(action, SaveBudget)]
    return budgets[-1] if budgets else drive.run.budget


def resumed(drive: Drive, instance: Instance | None = None, settings: RelaunchSettings = SETTINGS) -> Drive:
    return Drive.resume(loaded(drive, instance), journaled(drive), budget=spent(drive), settings=settings, now=NOW)


@pytest.mark.parametrize(
    "killed, goes_on, sent",
    [
        (RunStep.PROBE, RunStep.PROBE, "probe"),
        (RunStep.PREPARE, RunStep.PROBE, "probe"),
        (RunStep.BACKOFF, RunStep.BACKOFF, ""),
        (RunStep.START, RunStep.START, "start"),
        (RunStep.AWAIT, RunStep.AWAIT, ""),
        (RunStep.CLEANUP, RunStep.CLEANUP, "abort"),
    ],
)
def test_a_run_goes_on_by_the_same_id_and_epoch(killed: RunStep, goes_on: RunStep, sent: str) -> None:
    first = killed_in(killed)
    second = resumed(first)
    assert (second.run.id, second.run.epoch, second.run.base_epoch) == (first.run.id, first.run.epoch, 4)
    assert second.run.step is goes_on
    assert [second.asked(0), second.asked(1)] == [sent, sent]
    assert second.run.term == 8
    journal = [action for action in second.actions if isinstance(action, Journal)]
    assert (journal[0].record.term, journal[0].record.step) == (8, goes_on), "C4: the new term stands in the journal"


def test_a_back_off_gets_no_longer_however_often_the_controller_is_lost() -> None:
    settings = replace(SETTINGS, engine_relaunch_backoff_sec=8.0)
    first = Drive.open(serving(), budget=replace(fresh_budget(serving()), runs=1), settings=settings).to(
        RunStep.BACKOFF
    )
    second = resumed(first, settings=settings)
    assert second.run.step_deadline - NOW == pytest.approx(7.0)


@pytest.mark.parametrize("killed", [RunStep.PROBE, RunStep.PREPARE, RunStep.BACKOFF, RunStep.START, RunStep.AWAIT])
def test_from_every_step_of_phase_one_it_gets_to_its_end(killed: RunStep) -> None:
    drive = resumed(killed_in(killed)).to(RunStep.AWAIT)
    for index in range(2):
        drive.answer_all()
        drive.heartbeat(index)
    drive.wait(6, heard=(0, 1))
    while drive.pending:
        for index in range(2):
            if drive.asked(index):
                drive.answer(index, seen(drive.run.instance, drive.key(index), drive.now, epoch=drive.run.epoch))
    assert drive.run.outcome is Outcome.DONE
    assert drive.run.history[0].step is RunStep.PROBE, "its history goes on"


def test_one_run_is_counted_once_whoever_ends_it() -> None:
    for killed in (RunStep.PREPARE, RunStep.START, RunStep.PHASE2):
        first = killed_in(killed)
        second = resumed(resumed(first))
        if second.run.phase == 1:
            second.to(RunStep.START)
        assert spent(second).runs == 1
        assert spent(second).phase2s == (killed is RunStep.PHASE2)


def test_a_phase_two_is_on_the_account_before_its_row_is_written() -> None:
    first = killed_in(RunStep.PHASE2)
    is_row = [isinstance(action, Journal) and action.record.step is RunStep.PHASE2 for action in first.actions]
    before = first.actions[: is_row.index(True)]
    assert [action.budget.phase2s for action in before if isinstance(action, SaveBudget)][-1] == 1


def test_a_budget_that_was_written_before_its_step_is_not_spent_again() -> None:
    probing = killed_in(RunStep.PROBE)
    row = journaled(probing)
    probing.to(RunStep.PREPARE)  # the controller dies between the budget's row and the run's
    second = Drive.resume(loaded(probing), row, budget=spent(probing), now=NOW).to(RunStep.PREPARE)
    assert spent(second).runs == 1


# --- whom it concerns ---------------------------------------------------------------------------------------


def all_normal(drive: Drive, epoch: int = 4, **told: Unpack[Told]) -> None:
    for index in range(2):
        drive.answer(index, seen(drive.run.instance, drive.key(index), drive.now, epoch=epoch, **told))


@pytest.mark.parametrize("killed", [RunStep.PROBE, RunStep.PREPARE])
def test_a_gang_that_serves_without_the_run_is_let_be(killed: RunStep) -> None:
    drive = resumed(killed_in(killed))
    all_normal(drive)
    assert not drive.sent("prepare", "start", "stop")
    if killed is RunStep.PREPARE:
        assert drive.sent("abort"), "a prepare that is still under way would do harm"
        drive.answer_all()
    assert drive.run.outcome is Outcome.OBSOLETE


def test_what_an_operator_asked_for_is_not_made_obsolete_by_health() -> None:
    drive = resumed(killed_in(RunStep.PROBE, OPERATOR))
    all_normal(drive)
    assert drive.run.step is RunStep.PREPARE


@pytest.mark.parametrize("reason", [reason for reason in RunReason if reason is not RunReason.HOLD])
@pytest.mark.parametrize("killed", [RunStep.PROBE, RunStep.PREPARE])
def test_whatever_it_was_opened_for_a_gang_that_was_relaunched_since_is_not_relaunched(
    killed: RunStep, reason: RunReason
) -> None:
    drive = resumed(killed_in(killed, Cause(reason, "in another life")))
    for index, key in enumerate(drive.run.members):
        drive.answer(index, seen(drive.run.instance, key, NOW, epoch=7))
    if drive.run.outcome is None:
        drive.answer_all()
    assert drive.run.outcome is Outcome.OBSOLETE
    assert not drive.sent("prepare", "start", "stop")


def test_members_in_different_epochs_are_prepared_again() -> None:
    drive = resumed(killed_in(RunStep.PREPARE))
    instance = drive.run.instance
    ours = seen(instance, drive.key(0), NOW, EndpointStatus.WAIT2START, epoch=5, step=Step.PREPARED, run_id="run-1")
    drive.answer(0, replace(ours, prepared=True))
    drive.answer(1, seen(instance, drive.key(1), NOW))
    assert drive.run.step is RunStep.PREPARE
    assert drive.run.epoch == 5, "who is prepared already joins"
    assert [drive.asked(0), drive.asked(1)] == ["prepare", "prepare"]


def test_another_runs_epoch_is_overtaken() -> None:
    drive = resumed(killed_in(RunStep.PREPARE))
    theirs = seen(drive.run.instance, drive.key(0), NOW, EndpointStatus.ABNORMAL, epoch=7, run_id="run-9")
    drive.answer(0, theirs)
    drive.answer(1, seen(drive.run.instance, drive.key(1), NOW))
    assert drive.run.epoch == 8


def test_an_epoch_that_has_not_begun_was_not_started() -> None:
    first = killed_in(RunStep.START)
    before = codec.decode_instance(codec.encode_instance(first.run.instance, Clocks(0, 0)), Clocks(NOW, 1.0))
    second = Drive.resume(before, journaled(first), budget=spent(first), now=NOW)
    assert second.run.step is RunStep.PROBE
    assert second.to(RunStep.START).run.epoch == first.run.epoch


def rebooted(instance: Instance, index: int) -> Instance:
    members = tuple(
        replace(member, boot_id="another", in_epoch=False) if member.node_rank == index else member
        for member in instance.members
    )
    return replace(instance, members=members)


@pytest.mark.parametrize(
    "killed", [RunStep.PROBE, RunStep.PREPARE, RunStep.BACKOFF, RunStep.START, RunStep.AWAIT, RunStep.PHASE2]
)
def test_nothing_is_sent_to_a_boot_that_the_journal_does_not_name(killed: RunStep) -> None:
    first = killed_in(killed)
    drive = Drive.resume(rebooted(loaded(first), 1), journaled(first), budget=spent(first), now=NOW)
    assert drive.run.step is RunStep.PHASE2
    assert {node for node, _ in drive.sent()} == {"#0"}
    assert not any(isinstance(action, EpochBegins) for action in drive.actions)
    drive.new_boot(0)
    assert drive.run.outcome is Outcome.PHASE2


def test_phase_two_goes_on_with_what_it_wanted_of_each() -> None:
    first = Drive.open(serving(3)).to(RunStep.START)
    first.answer(0, first.willing(0, first.pending[first.key(0)].request))
    first.refuse(1, ErrorCode.FAILED)
    first.answer(2, first.willing(2, first.pending[first.key(2)].request))
    assert (first.run.step, first.asked(1)) == (RunStep.PHASE2, "abort")
    second = resumed(first)
    assert second.sent() == [("#1", "abort")], "who accepted start keeps its freeze (S05)"
    second.new_boot(1)
    assert [second.asked(0), second.asked(2)] == ["stop", "stop"]


def test_whoever_was_long_away_asks_before_time_counts() -> None:
    """The gang may have come up meanwhile: it is not struck down by a clock that ran without anybody looking."""
    for killed in (RunStep.START, RunStep.AWAIT):
        first = killed_in(killed)
        row = replace(journaled(first), remaining_sec=0.0)
        drive = Drive.resume(loaded(first), row, budget=spent(first), now=NOW)
        assert drive.run.step is killed
        drive.wait(5.0)
        assert drive.run.step is killed


def test_a_run_that_is_older_than_any_step_may_be_is_closed_and_nobody_is_told() -> None:
    for killed in (RunStep.PREPARE, RunStep.AWAIT, RunStep.PHASE2):
        first = killed_in(killed)
        drive = Drive.resume(
            loaded(first), journaled(first), budget=spent(first), now=NOW + SETTINGS.start_hard_cap_sec + 2
        )
        assert drive.run.outcome is Outcome.OBSOLETE
        assert drive.sent() == []
        assert drive.errors() == []


def test_what_waits_for_the_journal_loses_no_time_by_it() -> None:
    drive = Drive.open(serving())
    deadlines = plan.deadline(drive.run), drive.run.step_deadline
    drive.run = postpone(drive.run, 40.0)
    assert (plan.deadline(drive.run), drive.run.step_deadline) == tuple(time + 40.0 for time in deadlines if time)
    drive.now += 40.0
    assert drive.step(Tick()) == ()
    assert drive.run.step is RunStep.PROBE


# --- a store that was set back (F18) ------------------------------------------------------------------------


def test_F18_a_gang_that_serves_in_an_epoch_the_journal_does_not_know_is_let_be() -> None:
    first = killed_in(RunStep.START)
    drive = resumed(first)
    drive.refuse(0, ErrorCode.STALE_EPOCH, epoch=9)
    assert drive.run.step is RunStep.PROBE
    all_normal(drive, epoch=9, run_id="run-8")
    drive.answer_all()
    assert drive.run.outcome is Outcome.OBSOLETE
    assert not drive.sent("prepare", "stop")


def test_F18_what_is_awaited_in_an_epoch_of_the_past_is_let_be() -> None:
    drive = resumed(killed_in(RunStep.AWAIT))
    drive.tick()
    all_normal(drive, epoch=9, run_id="run-8")
    assert drive.run.step is RunStep.CLEANUP or drive.run.outcome is Outcome.OBSOLETE
    assert not drive.sent("prepare", "stop")


def test_F18_the_epoch_of_a_gang_that_serves_is_taken_over() -> None:
    first = Drive.open(serving())
    instance = loaded(first, replace(serving(), status=InstanceStatus.ACTIVE))
    for index, member in enumerate(instance.members):
        told = seen(instance, member.key, NOW, epoch=9, step=Step.DONE, run_id="run-8")
        instance = observe(instance, member.key, told)
        if index == 0:
            assert run_needed(instance, SETTINGS) is None, "the others have not been heard yet"
            assert judge(instance, False, NOW, INSTANCE_SETTINGS) is None
    assert (instance.epoch, instance.highest_epoch) == (9, 9)
    assert run_needed(instance, SETTINGS) is None
    verdict = judge(instance, False, NOW, INSTANCE_SETTINGS)
    assert isinstance(verdict, Verdict)
    assert verdict.event == "normal"


# --- an instance just loaded --------------------------------------------------------------------------------


def test_a_loaded_gang_needs_nothing_and_is_judged_when_all_are_heard() -> None:
    active = replace(serving(3), status=InstanceStatus.ACTIVE)
    instance = loaded(Drive.open(serving(3)), active)
    assert run_needed(instance, SETTINGS) is None
    assert judge(instance, False, NOW + 9.9, INSTANCE_SETTINGS) is None, "no silence counts in the first window"
    for member in instance.members[:2]:
        instance = observe(instance, member.key, seen(instance, member.key, NOW + 1))
        assert judge(instance, False, NOW + 1, INSTANCE_SETTINGS) is None
    sick = seen(instance, instance.members[2].key, NOW + 2, EndpointStatus.ABNORMAL)
    verdict = judge(observe(instance, instance.members[2].key, sick), False, NOW + 2, INSTANCE_SETTINGS)
    assert verdict is not None


def test_a_loaded_gang_that_was_not_started_yet_is_assembled_once_all_are_prepared() -> None:
    first = Drive.open(assembled(), Cause(RunReason.ASSEMBLE, "all are here"))
    instance = loaded(first)
    assert run_needed(instance, SETTINGS) is None
    for member in instance.members:
        told = Observation(NOW, 0, member.boot_id, normal=False, statuses={}, prepared=True)
        instance = observe(instance, member.key, told)
    needed = run_needed(instance, SETTINGS)
    assert needed is not None
    assert needed.reason is RunReason.ASSEMBLE


def test_silence_after_the_restart_is_asked_about_like_any_other() -> None:
    drive = resumed(killed_in(RunStep.PROBE))
    for _ in range(3):
        for index in range(2):
            if drive.asked(index):
                drive.answer(index, SILENT)
        drive.wait(1.0)
    assert drive.run.step is RunStep.PHASE2
    assert record(drive.run, drive.now).is_open


def test_a_run_that_was_only_promised_is_opened_on_the_instance_as_it_is_now() -> None:
    """Nobody has been asked anything: whoever has restarted meanwhile is lost to the instance, not to the run."""
    instance = serving(2)
    row = promise(instance, OPERATOR, run_id="promised", term=3, now=20.0)
    read = codec.decode_run(codec.encode_run(row, Clocks(20.0, 0.0)), Clocks(NOW, 1.0))
    assert read.is_open
    opened = Drive.resume(instance, read, now=NOW)
    assert (opened.run.id, opened.run.cause, opened.run.step) == ("promised", OPERATOR, RunStep.PROBE)
    assert (opened.run.opened_at, opened.run.epoch) == (NOW, 5)
    assert [row.may_be_frozen for row in opened.run.rows] == [False, False]


def test_a_promise_is_obsolete_once_the_gang_was_relaunched_since() -> None:
    instance = serving(2)
    row = promise(instance, OPERATOR, run_id="promised", term=3, now=20.0)
    drive = Drive.resume(replace(instance, epoch=7, highest_epoch=7), row, now=NOW)
    for index, key in enumerate(drive.run.members):
        drive.answer(index, seen(drive.run.instance, key, NOW, epoch=7))
    assert drive.run.outcome is Outcome.OBSOLETE
    assert drive.sent("prepare", "start", "stop", "abort") == []


def test_it_is_not_resumed_with_a_part_of_a_gang_that_has_started_over() -> None:
    drive = killed_in(RunStep.PREPARE)
    over = joined(drive.run.instance, registration(0, 3, boot_id="boot-0-2"), now=drive.now + 11)
    again = resumed(drive, over, REJOIN)
    assert again.run.outcome is Outcome.ABORTED
    assert again.sent() == []
