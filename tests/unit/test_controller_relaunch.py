"""The steps of a run, row by row of design 4, and the sequences that broke earlier drafts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from controller.model.budget import Budget, BudgetKey
from controller.model.instance import observe, unreachable
from controller.model.relaunch import plan
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.exchange import (
    Accepted,
    Cancel,
    CancelKind,
    Close,
    EpochAbandoned,
    EpochBegins,
    Fault,
    InstanceActive,
    InstanceHeld,
    InstanceInactive,
    Journal,
    MemberSilent,
    MembersStranded,
    Registered,
    SaveBudget,
    Send,
    StepDown,
    Tick,
)
from controller.model.relaunch.run import Cause, Farewell, Outcome, RunReason, RunStep, Stage
from controller.model.relaunch.view import view
from controller.model.settings import Phase2Scope
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, Step, StopMsg
from tests.unit.controller_gang import (
    ASSEMBLE,
    FAULT,
    NOBODY,
    SETTINGS,
    SILENT,
    Drive,
    assembled,
    begun,
    fresh_budget,
    joined,
    registration,
    seen,
    serving,
)

INITIAL, NORMAL, ABNORMAL = EndpointStatus.INITIAL, EndpointStatus.NORMAL, EndpointStatus.ABNORMAL


# --- the good way -------------------------------------------------------------------------------------------


@pytest.mark.seed("S02")
@pytest.mark.seed("S04")
def test_S04_all_are_stopped_then_all_are_started_and_all_normal_is_done() -> None:
    drive = Drive.open(serving(3))
    drive.to(RunStep.AWAIT)
    assert [word for _, word in drive.sent()] == ["probe"] * 3 + ["prepare"] * 3 + ["start"] * 3
    for index in range(3):
        assert drive.closed() is None
        drive.heartbeat(index, NORMAL)
    assert drive.closed() == Close(Outcome.DONE, drive.run.message)


def test_the_run_takes_one_epoch_more_than_anybody_knows() -> None:
    instance = replace(serving(epoch=4), highest_epoch=6)
    drive = Drive.open(instance)
    assert drive.run.epoch == 7
    drive.answer(0, seen(instance, drive.key(0), drive.now, INITIAL, epoch=9))
    drive.answer(1, seen(instance, drive.key(1), drive.now, INITIAL))
    assert drive.run.epoch == 10
    prepare = drive.pending[drive.key(1)].request
    assert isinstance(prepare, EngineRestartMsg)
    assert prepare.start is not None
    assert (prepare.epoch, prepare.start.epoch, prepare.run_id, prepare.term) == (10, 10, "run-1", 7)


def test_a_run_takes_the_instance_out_of_routing_and_journals_before_it_sends() -> None:
    kinds = [type(action) for action in Drive.open(serving()).actions]
    assert kinds.index(InstanceInactive) < kinds.index(Journal) < kinds.index(Send)


def test_a_cold_start_is_the_same_run() -> None:
    drive = Drive.open(assembled(), ASSEMBLE).to(RunStep.AWAIT)
    assert [word for _, word in drive.sent("prepare", "start")] == ["prepare", "prepare", "start", "start"]
    assert not any(isinstance(action, InstanceInactive | SaveBudget) for action in drive.actions)
    assert drive.run.epoch == 1


def test_done_and_active_and_the_journal_row_are_one_transition() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL)
    active, _, close = drive.heartbeat(1, NORMAL)
    assert isinstance(active, InstanceActive)
    assert active.record.outcome is Outcome.DONE
    assert isinstance(close, Close)


def test_the_epoch_begins_after_the_journal_and_before_the_first_start() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    actions = drive.actions
    begins = actions.index(next(a for a in actions if isinstance(a, EpochBegins)))
    journal = actions.index(next(a for a in actions if isinstance(a, Journal) and a.record.step is RunStep.START))
    start = next(
        i
        for i, a in enumerate(actions)
        if isinstance(a, Send) and isinstance(a.request, EngineRestartMsg) and a.request.action == "start"
    )
    assert journal < begins < start


# --- PROBE --------------------------------------------------------------------------------------------------


@pytest.mark.seed("S03")
def test_S03_any_unreachable_supervisor_leads_to_phase_two() -> None:
    drive = Drive.open(serving())
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    opened = drive.now
    for _ in range(3):
        drive.answer(1, NOBODY)
        assert len(drive.sent("prepare")) == 0
        if drive.run.step is RunStep.PROBE:
            drive.tick()
    assert drive.run_step() is RunStep.PHASE2
    assert drive.now - opened == 2.0, "refused: three tries a second apart"


def test_a_silent_supervisor_costs_eight_seconds_at_most() -> None:
    drive = Drive.open(serving())
    opened = drive.now
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    while drive.run_step() is RunStep.PROBE:
        drive.tick()
    assert drive.now - opened <= 8.0


def test_two_failed_tries_are_forgiven() -> None:
    drive = Drive.open(serving())
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for _ in range(2):
        drive.answer(1, NOBODY)
        drive.tick()
    drive.answer(1, drive.willing(1, drive.pending[drive.key(1)].request))
    assert drive.run_step() is RunStep.PREPARE


def test_an_endpoint_that_is_normal_again_closes_the_run_untouched() -> None:
    instance = serving()
    cause = replace(FAULT, endpoint_abnormal=True)
    drive = Drive.open(instance, cause)
    for index in range(2):
        drive.answer(index, seen(instance, drive.key(index), drive.now))
    assert drive.run.outcome is Outcome.RECOVERED_ITSELF
    assert drive.sent("prepare", "abort", "stop") == []
    assert not any(isinstance(action, SaveBudget) for action in drive.actions), "it cost nothing"


def test_the_death_report_that_comes_after_the_heartbeat_names_the_cause() -> None:
    abnormal = Cause(RunReason.FAULT, "endpoint 1 is abnormal", endpoint_abnormal=True)
    drive = Drive.open(serving(), abnormal)
    base = drive.run.base_epoch
    actions = drive.step(Fault(drive.key(1), base, "engine 1: killed by SIGKILL"))
    assert drive.run.cause.text == "engine 1: killed by SIGKILL"
    assert drive.run.cause.reporter == drive.key(1)
    assert InstanceInactive("engine 1: killed by SIGKILL") in actions
    for index in range(2):
        drive.answer(index, seen(drive.run.instance, drive.key(index), drive.now))
    assert drive.run_step() is RunStep.PREPARE, "a process is dead, whatever the endpoints look like"
    drive.step(Fault(drive.key(0), base, "engine 0: killed by SIGTERM"))
    assert drive.run.cause.text == "engine 1: killed by SIGKILL", "the first"


def test_a_failed_probe_that_is_reported_still_leaves_the_engine_to_recover_itself() -> None:
    abnormal = Cause(RunReason.FAULT, "endpoint 1 is abnormal", endpoint_abnormal=True)
    drive = Drive.open(serving(), abnormal)
    drive.step(Fault(drive.key(1), drive.run.base_epoch, "liveness failed", probe_derived=True))
    for index in range(2):
        drive.answer(index, seen(drive.run.instance, drive.key(index), drive.now))
    assert drive.run.closing is Outcome.RECOVERED_ITSELF
    assert drive.sent("abort") == [("#1", "abort")], "its reporter froze itself"


def test_a_reporter_that_recovered_is_told_to_unfreeze() -> None:
    instance = serving()
    cause = replace(FAULT, endpoint_abnormal=True, reporter=instance.members[1].key)
    drive = Drive.open(instance, cause)
    for index in range(2):
        drive.answer(index, seen(instance, drive.key(index), drive.now))
    assert drive.sent("abort") == [("#1", "abort")]
    drive.answer_all()
    assert drive.run.outcome is Outcome.RECOVERED_ITSELF


def test_a_dead_engine_is_relaunched_even_if_all_look_normal() -> None:
    instance = serving()
    drive = Drive.open(instance)
    for index in range(2):
        drive.answer(index, seen(instance, drive.key(index), drive.now))
    assert drive.run_step() is RunStep.PREPARE


def test_a_leaving_member_ends_the_run_before_anybody_is_touched() -> None:
    instance = serving()
    drive = Drive.open(instance)
    drive.answer(0, seen(instance, drive.key(0), drive.now, leaving=True))
    drive.answer(1, seen(instance, drive.key(1), drive.now))
    assert drive.run.outcome is Outcome.ABORTED
    assert drive.sent("prepare", "stop") == []


# --- PREPARE ------------------------------------------------------------------------------------------------


def test_prepare_repeats_while_the_answer_says_stopping_or_cleaning() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for step in (Step.STOPPING, Step.CLEANING):
        drive.answer(1, Accepted(step, drive.run.epoch, "boot-1-1"))
        assert drive.asked(1) == ""
        drive.tick()
        while drive.asked(1) != "prepare":
            drive.tick()
    drive.answer_all()
    assert drive.run_step() is RunStep.START


@pytest.mark.parametrize("code", [ErrorCode.BUSY, ErrorCode.RESTORING])
def test_F14_busy_waits_until_the_prepare_deadline_and_kills_nobody(code: ErrorCode) -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    entered = drive.now
    for _ in range(20):
        while not drive.asked(1):
            drive.tick()
        drive.refuse(1, code)
    assert drive.run_step() is RunStep.PREPARE
    while drive.run_step() is RunStep.PREPARE:
        drive.tick()
        if drive.asked(1) == "prepare":
            drive.refuse(1, code)
    assert drive.run_step() is RunStep.PHASE2
    assert drive.now - entered == SETTINGS.engine_relaunch_prepare_timeout_sec


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ABORTED,
        ErrorCode.NOT_PREPARED,
        ErrorCode.WRONG_INSTANCE,
        ErrorCode.NOT_STARTED,
        ErrorCode.DISABLED,
        ErrorCode.HELD,
        ErrorCode.LEAVING,
        ErrorCode.FAILED,
        ErrorCode.WRONG_BOOT,
    ],
)
@pytest.mark.parametrize("step", [RunStep.PREPARE, RunStep.START])
def test_a_definite_cannot_leads_to_phase_two_at_once(code: ErrorCode, step: RunStep) -> None:
    drive = Drive.open(serving()).to(step)
    entered = drive.now
    if step is RunStep.START:
        drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.refuse(1, code)
    assert (drive.run.step, drive.now) == (RunStep.PHASE2, entered)
    assert drive.run.phase == 2


@pytest.mark.parametrize("step", [RunStep.PREPARE, RunStep.START])
def test_a_stale_epoch_is_read_again_and_overtaken(step: RunStep) -> None:
    drive = Drive.open(serving()).to(step)
    drive.refuse(1, ErrorCode.STALE_EPOCH, epoch=11)
    assert (drive.run.step, drive.run.epoch) == (RunStep.PROBE, 12)
    drive.to(RunStep.AWAIT)
    assert len(drive.sent("prepare")) == 4, "the barrier holds in the new epoch too"


def test_a_stale_epoch_again_and_again_is_hopeless() -> None:
    drive = Drive.open(serving())
    for _ in range(4):
        drive.to(RunStep.PREPARE)
        drive.refuse(1, ErrorCode.STALE_EPOCH, epoch=drive.run.epoch)
    assert drive.run_step() is RunStep.PHASE2


@pytest.mark.parametrize("step", [RunStep.PREPARE, RunStep.START])
def test_a_stale_term_steps_down_and_sends_nothing_more(step: RunStep) -> None:
    drive = Drive.open(serving()).to(step)
    actions = drive.refuse(1, ErrorCode.STALE_TERM, term=9)
    assert [type(action) for action in actions] == [StepDown, Close]
    assert drive.run.outcome is Outcome.SUSPENDED
    assert plan.deadline(drive.run) is None


def test_a_member_that_cannot_be_reached_with_prepare_leads_to_phase_two() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    for _ in range(3):
        while drive.asked(1) != "prepare":
            drive.tick()
        drive.answer(1, SILENT)
    assert drive.run_step() is RunStep.PHASE2


def test_F11_a_prepared_member_is_polled_while_another_still_stops() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    polls, entered = [], drive.now
    while drive.now < entered + 80:
        drive.tick()
        if drive.asked(0) == "probe":
            polls.append(drive.now)
            drive.answer(0, seen(drive.run.instance, drive.key(0), drive.now, EndpointStatus.WAIT2START))
        if drive.asked(1) == "prepare":
            drive.answer(1, Accepted(Step.STOPPING, drive.run.epoch, "boot-1-1"))
    gaps = [b - a for a, b in pairwise(polls)]
    assert max(gaps) <= SETTINGS.engine_relaunch_poll_interval_sec


def test_F20_nobody_preempts_a_run_once_prepare_was_sent() -> None:
    drive = Drive.open(serving())
    assert plan.preemptible(drive.run)
    drive.to(RunStep.PREPARE)
    assert not plan.preemptible(drive.run)
    drive.cancel(CancelKind.PREEMPT)
    assert drive.run_step() is RunStep.PREPARE
    drive.to(RunStep.AWAIT)


def test_a_graver_fault_preempts_while_nobody_is_touched() -> None:
    drive = Drive.open(serving())
    drive.cancel(CancelKind.PREEMPT)
    assert drive.run.outcome is Outcome.ABORTED
    assert not any(isinstance(action, EpochAbandoned) for action in drive.actions)


# --- BACKOFF and the budget ---------------------------------------------------------------------------------


def test_F12_everybody_is_polled_through_the_back_off() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=2)).to(RunStep.BACKOFF)
    assert drive.run.backoff_sec == 60.0
    entered, polls = drive.now, [drive.now]
    while drive.run_step() is RunStep.BACKOFF:
        drive.tick()
        if drive.asked(1) == "probe":
            polls.append(drive.now)
            drive.answer_all(None)
    assert drive.run_step() is RunStep.START
    assert drive.now - entered == 60.0
    assert max(b - a for a, b in pairwise(polls)) <= 5.0


def test_the_budget_is_spent_when_prepare_goes_out() -> None:
    drive = Drive.open(serving())
    assert not any(isinstance(action, SaveBudget) for action in drive.actions)
    drive.to(RunStep.PREPARE)
    saved = [action.budget.runs for action in drive.actions if isinstance(action, SaveBudget)]
    assert saved == [1]


def test_a_run_that_reads_the_epoch_again_is_paid_once() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.refuse(1, ErrorCode.STALE_EPOCH, epoch=11)
    drive.to(RunStep.AWAIT)
    assert drive.run.budget.runs == 1


def test_F05_a_spent_budget_lets_every_container_restart() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=3))
    assert drive.run_step() is RunStep.PHASE2
    assert drive.sent() == [("#0", "stop"), ("#1", "stop")]
    saved = [action.budget.phase2s for action in drive.actions if isinstance(action, SaveBudget)]
    assert saved == [1]


def test_F13_what_restarted_too_often_is_assembled_and_not_started() -> None:
    """The budget knows no boots, so that registering anew does not make it whole."""
    instance = assembled()
    again = joined(instance, registration(0, boot_id="boot-0-2"))
    key = BudgetKey(again.key, again.spec.config_digest)
    assert key == fresh_budget(instance).key
    drive = Drive.open(again, ASSEMBLE, budget=Budget(key, runs=3, phase2s=3))
    assert drive.run.outcome is Outcome.HELD
    assert drive.sent() == []
    assert any(isinstance(action, InstanceHeld) for action in drive.actions)
    assert drive.errors(), "an alarm"


# --- START --------------------------------------------------------------------------------------------------


def test_nobody_is_started_before_all_are_prepared() -> None:
    drive = Drive.open(serving(3)).to(RunStep.PREPARE)
    for index in range(2):
        drive.answer(index, drive.willing(index, drive.pending[drive.key(index)].request))
    assert drive.sent("start") == []
    drive.answer(2, drive.willing(2, drive.pending[drive.key(2)].request))
    assert len(drive.sent("start")) == 3


@pytest.mark.seed("S05")
@pytest.mark.parametrize("scope", list(Phase2Scope))
def test_S05_abort_goes_only_to_those_to_which_start_was_not_dispatched(scope: Phase2Scope) -> None:
    settings = replace(SETTINGS, engine_relaunch_phase2_scope=scope)
    drive = Drive.open(serving(3), settings=settings).to(RunStep.START)
    for index in range(2):
        drive.answer(index, drive.willing(index, drive.pending[drive.key(index)].request))
    drive.refuse(2, ErrorCode.FAILED)
    assert drive.sent("abort", "stop") == [("#2", "abort")]
    drive.answer_all()
    drive.wait(100, heard=(0, 1))
    assert drive.sent("abort", "stop") == [("#2", "abort")], "the dispatched keep their freeze"
    drive.new_boot(2)
    assert drive.sent("stop") == [("#0", "stop"), ("#1", "stop")], "until the first new boot"


@pytest.mark.seed("S05")
@pytest.mark.parametrize("scope", list(Phase2Scope))
def test_S05_a_start_that_is_not_answered_yet_may_have_been_dispatched(scope: Phase2Scope) -> None:
    settings = replace(SETTINGS, engine_relaunch_phase2_scope=scope)
    drive = Drive.open(serving(3), settings=settings).to(RunStep.START)
    drive.refuse(1, ErrorCode.FAILED)
    assert drive.run_step() is RunStep.START
    drive.answer(2, drive.willing(2, drive.pending[drive.key(2)].request))
    assert drive.sent("abort", "stop") == []
    drive.answer(0, SILENT)
    assert drive.sent("abort", "stop") == [("#0", "abort"), ("#1", "abort")]
    assert drive.sent("start") == [("#0", "start"), ("#1", "start"), ("#2", "start")], "nobody is asked twice"


def test_a_start_that_nobody_answers_is_waited_for_until_the_deadline() -> None:
    drive = Drive.open(serving(2)).to(RunStep.START)
    drive.refuse(1, ErrorCode.FAILED)
    drive.tick()
    assert drive.run_step() is RunStep.PHASE2


@pytest.mark.seed("S05")
def test_S05_undispatched_scope_spares_the_loading_even_if_a_member_is_unreachable() -> None:
    settings = replace(SETTINGS, engine_relaunch_phase2_scope=Phase2Scope.UNDISPATCHED)
    drive = Drive.open(serving(), settings=settings).to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for _ in range(3):
        while drive.asked(1) != "start":
            drive.tick()
        drive.answer(1, SILENT)
    assert drive.sent("abort", "stop") == [("#1", "abort")]


def test_an_unreachable_member_in_start_lets_everybody_leave() -> None:
    drive = Drive.open(serving()).to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for _ in range(3):
        while drive.asked(1) != "start":
            drive.tick()
        drive.answer(1, SILENT)
    assert drive.sent("abort", "stop") == [("#0", "stop"), ("#1", "abort")]


@pytest.mark.seed("S05")
def test_S05_a_failed_abort_is_an_error_that_names_the_supervisor() -> None:
    drive = Drive.open(serving()).to(RunStep.START)
    drive.refuse(1, ErrorCode.FAILED)
    for _ in range(3):
        while drive.asked(1) != "abort":
            drive.tick()
        drive.answer(1, NOBODY)
    (error,) = drive.errors()
    assert "10.0.0.2:1026" in error.message
    assert error.member == drive.key(1)


# --- AWAIT --------------------------------------------------------------------------------------------------


def test_F01_normal_of_the_old_epoch_is_not_done() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL)
    drive.heartbeat(1, NORMAL, epoch=4)
    assert drive.run.outcome is None
    drive.heartbeat(1, NORMAL)
    assert drive.run.outcome is Outcome.DONE


def test_nothing_that_loads_and_nothing_stale_is_done() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL)
    drive.heartbeat(1, INITIAL)
    assert drive.run.outcome is None
    drive.now += 9.5
    drive.heartbeat(1, NORMAL)
    assert drive.run.outcome is None, "the heartbeats of the other stay away"
    drive.heartbeat(0, NORMAL)
    assert drive.run.outcome is Outcome.DONE


def test_an_endpoint_that_is_not_reported_is_not_normal() -> None:
    instance = serving(2, business_port=("1", "2"), mgmt_port=("3", "4"))
    drive = Drive.open(instance).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL, NORMAL)
    drive.heartbeat(1, NORMAL)
    assert drive.run.outcome is None


def test_F04_a_load_without_progress_ends_in_phase_two_for_all() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    entered = drive.now
    drive.heartbeat(0, NORMAL)
    drive.heartbeat(1, INITIAL, progress_age_sec=0.0)
    drive.wait(599, heard=(0,))
    assert drive.run_step() is RunStep.AWAIT
    drive.wait(2, heard=(0,))
    assert drive.run_step() is RunStep.PHASE2
    assert drive.now - entered <= 601.0
    assert drive.sent("abort", "stop") == [("#0", "stop"), ("#1", "stop")]


def test_progress_moves_the_deadline_up_to_the_hard_cap() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    entered = drive.now
    drive.heartbeat(0, INITIAL, progress_age_sec=1.0)
    drive.heartbeat(1, INITIAL, progress_age_sec=1.0)
    drive.wait(SETTINGS.start_hard_cap_sec - 1, heard=(0, 1))
    assert drive.run_step() is RunStep.AWAIT
    drive.wait(2, heard=(0, 1))
    assert drive.run_step() is RunStep.PHASE2
    assert drive.now - entered <= SETTINGS.start_hard_cap_sec + 1


def test_who_is_normal_and_waits_for_a_slower_member_does_not_stall() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL)
    drive.heartbeat(1, INITIAL, progress_age_sec=1.0)
    drive.wait(1000, heard=(0, 1))
    assert drive.run_step() is RunStep.AWAIT
    drive.heartbeat(1, NORMAL)
    assert drive.run.outcome is Outcome.DONE


def test_F15_the_second_death_of_the_old_epoch_is_absorbed() -> None:
    drive = Drive.open(serving())
    drive.step(Fault(drive.key(0), 4, "engine 0: killed"))
    assert drive.run_step() is RunStep.PROBE
    drive.to(RunStep.AWAIT)
    drive.step(Fault(drive.key(0), 4, "engine 0: killed"))
    assert drive.run_step() is RunStep.AWAIT


@pytest.mark.parametrize("how", ["report", "heartbeat", "poll", "failed"])
def test_an_engine_dead_again_in_this_epoch_makes_a_new_run(how: str) -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    match how:
        case "report":
            drive.step(Fault(drive.key(1), drive.run.epoch, "engine 1: killed"))
        case "heartbeat":
            drive.heartbeat(1, ABNORMAL)
        case "poll":
            drive.tick()
            dead = seen(drive.run.instance, drive.key(1), drive.now, ABNORMAL, epoch=drive.run.epoch)
            drive.answer(1, dead)
        case "failed":
            drive.heartbeat(1, EndpointStatus.ABNORMAL, step=Step.FAILED)
    closed = drive.closed()
    assert closed is not None
    assert closed.outcome is Outcome.ABORTED
    assert closed.follow is not None
    assert closed.follow.reason is RunReason.FAULT


def test_an_engine_dead_again_with_the_budget_spent_is_phase_two() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=2)).to(RunStep.AWAIT)
    drive.step(Fault(drive.key(1), drive.run.epoch, "engine 1: killed"))
    assert drive.run_step() is RunStep.PHASE2


def test_polls_that_fail_mean_nothing_while_heartbeats_come() -> None:
    """F21's other half: the controller cannot reach the supervisor, which still reports."""
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, INITIAL, progress_age_sec=0.0)
    drive.heartbeat(1, INITIAL, progress_age_sec=0.0)
    for _ in range(60):
        drive.wait(1, heard=(0, 1))
        for index in range(2):
            if drive.asked(index):
                drive.answer(index, SILENT)
    assert drive.run_step() is RunStep.AWAIT
    while drive.run_step() is RunStep.AWAIT:
        drive.wait(1, heard=(0,))
        if drive.asked(1):
            drive.answer(1, SILENT)
    assert "heartbeats stay away" in drive.run.message


def test_when_nobody_is_heard_loading_goes_on_for_it_may_be_us_who_are_cut_off() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, INITIAL)
    drive.heartbeat(1, INITIAL)
    for _ in range(120):
        drive.wait(1)
        for index in range(2):
            drive.step(MemberSilent(drive.key(index)))
            if drive.asked(index):
                drive.answer(index, SILENT)
    assert drive.run_step() is RunStep.AWAIT
    drive.heartbeat(0, INITIAL)
    while drive.run_step() is RunStep.AWAIT:
        drive.wait(1, heard=(0,))
        if drive.asked(1):
            drive.answer(1, SILENT)
    assert f"{drive.run.rows[1].address} cannot be reached" in drive.run.message


# --- a member lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [RunStep.PROBE, RunStep.PREPARE, RunStep.BACKOFF, RunStep.START, RunStep.AWAIT])
@pytest.mark.parametrize("how", ["registered", "heartbeat", "answer", "silent"])
def test_F03_a_member_in_another_boot_ends_every_step_at_once(step: RunStep, how: str) -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=1)).to(step)
    drive.lose(how)
    assert drive.run_step() is RunStep.PHASE2
    words = {word for node, word in drive.sent("abort", "stop") if node == "#0"}
    assert words == {"abort" if step in (RunStep.PREPARE, RunStep.BACKOFF, RunStep.START) else "stop"}


def test_F03_a_run_on_a_broken_gang_stops_the_survivors() -> None:
    instance = joined(serving(3), registration(2, 3, boot_id="boot-2-2"))
    drive = Drive.open(instance)
    assert drive.sent() == [("#0", "stop"), ("#1", "stop")]
    assert drive.run_step() is RunStep.PHASE2
    drive.answer_all()
    drive.new_boot(0)
    drive.new_boot(1)
    assert drive.run.outcome is Outcome.PHASE2


def test_an_unreachable_member_is_asked_before_anybody_is_stopped() -> None:
    instance = serving()
    first, second = instance.members
    instance = unreachable(instance, second.key, 50.0)
    instance = observe(instance, first.key, seen(instance, first.key, 51.0))
    drive = Drive.open(instance, heard=False)
    assert drive.run_step() is RunStep.PHASE2, "the registry has asked it already"
    assert ("#0", "stop") in drive.sent()


# --- PHASE 2 ------------------------------------------------------------------------------------------------


def test_an_abort_that_will_not_end_the_supervisor_is_followed_by_stop() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.refuse(1, ErrorCode.FAILED)
    assert drive.asked(1) == "abort"
    drive.answer(1, Accepted(Step.ABORTED, 5, "boot-1-1", will_exit=False))
    assert drive.asked(1) == "stop"


def test_F08_a_stop_never_meets_the_new_container() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=3))
    request = drive.pending[drive.key(1)].request
    assert isinstance(request, StopMsg)
    assert request.boot_id == "boot-1-1"
    drive.answer(1, SILENT)
    drive.new_boot(1)
    drive.wait(20, heard=(0,))
    assert drive.sent("stop").count(("#1", "stop")) == 1


def test_F08_wrong_boot_proves_that_it_has_left() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=3))
    drive.refuse(1, ErrorCode.WRONG_BOOT)
    drive.answer(0, SILENT)
    drive.wait(20)
    assert drive.sent("stop").count(("#1", "stop")) == 1
    assert [error.member for error in drive.errors()] in ([], [drive.key(0)])


def test_F10_a_member_that_thaws_later_is_named_and_waited_for() -> None:
    drive = Drive.open(serving()).to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    while drive.run.outcome is None:
        drive.tick()
        for index in range(2):
            if drive.asked(index):
                drive.answer(index, SILENT if index else drive.willing(0, drive.pending[drive.key(0)].request))
    assert drive.run.outcome is Outcome.PHASE2
    assert drive.key(1) in {error.member for error in drive.errors()}


def test_phase_two_without_a_return_is_closed_with_an_alarm() -> None:
    instance = serving()
    drive = Drive.open(instance, budget=replace(fresh_budget(instance), runs=3))
    entered = drive.now
    drive.answer_all()
    drive.new_boot(0)
    while drive.run.outcome is None:
        drive.tick()
    assert drive.now - entered == 300.0
    (alarm,) = drive.errors()
    assert "10.0.0.2:1026 did not register again" in alarm.message
    (stranded,) = [action for action in drive.actions if isinstance(action, MembersStranded)]
    assert stranded.members == {drive.key(1)}


def test_phase_two_that_comes_to_its_end_leaves_nobody_stranded() -> None:
    drive = Drive.open(serving(), budget=replace(fresh_budget(serving()), runs=3))
    drive.answer_all()
    for index in range(2):
        drive.new_boot(index)
    assert drive.run.outcome is Outcome.PHASE2
    assert not any(isinstance(action, MembersStranded) for action in drive.actions)


def test_F06_after_phase_two_the_gang_is_assembled_in_a_higher_epoch() -> None:
    instance = serving(epoch=4)
    drive = Drive.open(instance).to(RunStep.AWAIT)
    epoch = drive.run.epoch
    reborn = begun(instance, epoch)
    for index in range(2):
        reborn = joined(reborn, registration(index, boot_id=f"boot-{index}-2"))
    assert Drive.open(reborn, ASSEMBLE).run.epoch > epoch


# --- cancelled ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S07")
@pytest.mark.parametrize("kind", [CancelKind.ABORT, CancelKind.DELETED])
def test_S07_abort_goes_to_all_who_may_be_frozen_and_have_not_started(kind: CancelKind) -> None:
    drive = Drive.open(serving(3)).to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    entered = drive.now
    drive.cancel(kind)
    assert drive.sent("abort") == [("#1", "abort"), ("#2", "abort")]
    drive.answer(1, Accepted(Step.ABORTED, 5, "boot-1-1", will_exit=True))
    while drive.run.outcome is None:
        drive.tick()
    assert drive.now - entered <= 3.0
    assert drive.run.outcome is Outcome.ABORTED
    assert [error.member for error in drive.errors()] == [drive.key(2)]


@pytest.mark.seed("S06")
@pytest.mark.parametrize("step", [RunStep.PROBE, RunStep.PREPARE, RunStep.START, RunStep.AWAIT])
def test_S06_a_deleted_instance_ends_the_run(step: RunStep) -> None:
    drive = Drive.open(serving()).to(step)
    drive.cancel(CancelKind.DELETED)
    drive.answer_all()
    assert drive.run.outcome is Outcome.ABORTED


def test_an_operator_abandons_the_epoch() -> None:
    drive = Drive.open(serving())
    drive.cancel(CancelKind.ABORT)
    assert any(isinstance(action, EpochAbandoned) for action in drive.actions)


def test_a_suspended_run_tells_nobody_and_stays_open_in_the_journal() -> None:
    drive = Drive.open(serving()).to(RunStep.START)
    actions = drive.cancel(CancelKind.SUSPEND)
    assert [type(action) for action in actions] == [Journal, Close]
    assert view(record(drive.run, drive.now), str).outcome is None


def test_a_closed_run_answers_nothing() -> None:
    drive = Drive.open(serving())
    drive.cancel(CancelKind.ABORT)
    assert plan.step(drive.run, Tick(), drive.now) == (drive.run, ())
    assert plan.deadline(drive.run) is None


# --- what is odd ----------------------------------------------------------------------------------------------


def test_a_member_that_leaves_in_the_middle_takes_the_others_into_phase_two() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(1, INITIAL, leaving=True)
    assert "is leaving" in drive.run.message
    assert drive.run_step() is RunStep.PHASE2


def test_an_overtaken_heartbeat_says_nothing() -> None:
    drive = Drive.open(serving()).to(RunStep.AWAIT)
    drive.heartbeat(0, NORMAL)
    drive.heartbeat(1, INITIAL, sequence=9)
    drive.heartbeat(1, NORMAL, sequence=8)
    assert drive.run.outcome is None


def test_a_word_said_before_the_start_says_nothing_about_what_was_started() -> None:
    """An unextended peer names no epoch, and may still have been normal when it was asked."""
    instance = serving(features=(), boot_id=None)
    drive = Drive.open(instance)
    for index in range(2):
        drive.answer(index, seen(instance, drive.key(index), drive.now))
    drive.now += 0.5
    drive.answer_all()
    assert drive.run_step() is RunStep.AWAIT
    drive.heartbeat(0, NORMAL, epoch=0)
    assert drive.run.outcome is None
    drive.heartbeat(1, NORMAL, epoch=0)
    assert drive.run.outcome is Outcome.DONE


def test_start_answered_for_another_epoch_is_not_accepted() -> None:
    drive = Drive.open(serving()).to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for _ in range(3):
        while drive.asked(1) != "start":
            drive.tick()
        drive.answer(1, Accepted(Step.LOADING, 4, "boot-1-1"))
    assert drive.run_step() is RunStep.PHASE2


def test_prepare_answered_with_failed_is_hopeless() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.answer(1, Accepted(Step.FAILED, 5, "boot-1-1", message="port 10000 is taken"))
    assert drive.run_step() is RunStep.PHASE2
    assert "port 10000 is taken" in drive.run.message


def test_a_refused_poll_is_an_unanswered_one() -> None:
    drive = Drive.open(serving())
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.refuse(1, ErrorCode.FAILED)
    assert drive.run_step() is RunStep.PROBE
    drive.tick()
    assert drive.asked(1) == "probe"


def test_a_refused_abort_is_followed_by_stop_and_a_refused_stop_is_an_error() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.refuse(1, ErrorCode.FAILED)
    drive.refuse(1, ErrorCode.NOT_STARTED)
    assert drive.asked(1) == "stop"
    drive.refuse(1, ErrorCode.STALE_EPOCH)
    (error,) = drive.errors()
    assert "10.0.0.2:1026" in error.message
    assert "stale_epoch" in error.message


def test_events_of_strangers_change_nothing() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    stranger = replace(drive.key(0), node="#7")
    assert drive.step(MemberSilent(stranger)) == ()


def test_a_second_cancel_asks_once_more_who_has_not_answered_the_first() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.cancel(CancelKind.ABORT)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    again = drive.cancel(CancelKind.ABORT)
    assert [action.member for action in again if isinstance(action, Send)] == [drive.key(1)]
    assert drive.run_step() is RunStep.CLEANUP
    drive.answer_all()
    assert drive.run.outcome is Outcome.ABORTED
    assert drive.errors() == []


def test_a_clean_up_that_a_controller_cannot_end_is_the_next_one_s() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.cancel(CancelKind.ABORT)
    (row, closed) = drive.cancel(CancelKind.SUSPEND)
    assert isinstance(row, Journal)
    assert (row.record.step, row.record.closing, row.record.is_open) == (RunStep.CLEANUP, Outcome.ABORTED, True)
    assert closed == Close(Outcome.SUSPENDED, "suspend for a test")


def test_a_run_that_is_withdrawn_before_its_turn_tells_its_reporters_and_nobody_else() -> None:
    reported = [Fault(serving().members[1].key, 4, "killed")]
    drive = Drive.withdraw(serving(), FAULT, Cancel(CancelKind.PREEMPT, "a graver fault"), reported)
    assert drive.sent() == [("#1", "abort")]
    drive.answer_all()
    assert drive.run.outcome is Outcome.ABORTED
    assert not any(isinstance(action, InstanceInactive | EpochBegins | SaveBudget) for action in drive.actions)


def test_a_run_that_a_stopping_controller_has_not_opened_is_the_next_one_s_to_open() -> None:
    drive = Drive.withdraw(serving(), FAULT, Cancel(CancelKind.SUSPEND, "the controller stops"))
    assert drive.sent() == []
    (row,) = [action for action in drive.actions if isinstance(action, Journal)]
    assert (row.record.step, row.record.is_open) == (RunStep.OPEN, True)
    assert Drive.resume(serving(), row.record).run_step() is RunStep.PROBE


def test_the_same_registration_again_is_no_new_boot() -> None:
    drive = Drive.open(serving()).to(RunStep.PREPARE)
    drive.step(Registered(drive.key(1), "boot-1-1", drive.run.rows[1].member))
    assert drive.run_step() is RunStep.PREPARE


def test_an_endpoint_normal_in_another_epoch_has_not_recovered() -> None:
    instance = serving()
    drive = Drive.open(instance, replace(FAULT, endpoint_abnormal=True))
    drive.answer(0, seen(instance, drive.key(0), drive.now))
    drive.answer(1, seen(instance, drive.key(1), drive.now, epoch=3))
    assert drive.run_step() is RunStep.PREPARE


# --- members that know only restart and abort -----------------------------------------------------------------


def test_a_gang_with_a_peer_that_knows_only_restart_is_driven_by_restart() -> None:
    instance = serving(features=(), boot_id=None)
    drive = Drive.open(instance).to(RunStep.START)
    assert drive.sent("prepare", "start") == []
    assert drive.sent("restart") == [("#0", "restart"), ("#1", "restart")]


def test_conflict_on_the_retry_of_our_own_restart_counts_as_accepted() -> None:
    drive = Drive.open(serving(features=(), boot_id=None)).to(RunStep.START)
    drive.answer(0, Accepted(Step.STARTING))
    drive.answer(1, SILENT)
    drive.tick()
    drive.refuse(1, ErrorCode.BUSY)
    assert drive.run_step() is RunStep.AWAIT


def test_conflict_without_a_time_out_is_somebody_elses_restart() -> None:
    drive = Drive.open(serving(features=(), boot_id=None)).to(RunStep.START)
    drive.answer(0, Accepted(Step.STARTING))
    drive.refuse(1, ErrorCode.BUSY)
    assert drive.run_step() is RunStep.START


def test_a_cold_gang_of_the_reference_form_gets_its_start_command() -> None:
    drive = Drive.open(assembled(features=(), boot_id=None), ASSEMBLE).to(RunStep.START)
    assert drive.sent("cold start") == [("#0", "cold start"), ("#1", "cold start")]


def test_an_unextended_peer_is_done_by_a_word_said_after_its_start() -> None:
    drive = Drive.open(serving(features=(), boot_id=None)).to(RunStep.AWAIT)
    drive.tick()
    drive.heartbeat(0, NORMAL, epoch=0)
    drive.heartbeat(1, NORMAL, epoch=0)
    assert drive.run.outcome is Outcome.DONE


# --- the view -----------------------------------------------------------------------------------------------


def test_the_view_shows_each_step_with_its_times() -> None:
    drive = Drive.open(serving(), Cause(RunReason.OPERATOR, "asked by an operator")).to(RunStep.AWAIT)
    shown = view(record(drive.run, drive.now), lambda moment: f"T{moment:g}")
    assert [step.name for step in shown.steps] == ["probe", "prepare", "start", "await"]
    assert shown.steps[0].ended_at == "T100"
    assert shown.steps[-1].ended_at is None
    assert (shown.reason, shown.phase, shown.outcome) == ("operator", 1, None)
    assert shown.supervisors == ("10.0.0.1:1026", "10.0.0.2:1026")
    assert all(row.stage is Stage.STARTED and row.farewell is Farewell.NONE for row in drive.run.rows)


# --- a device is gone -------------------------------------------------------------------------------------------


def test_a_device_that_is_gone_leads_to_phase_two_at_once() -> None:
    instance = serving()
    cause = Cause(RunReason.FAULT, "hardware: XID 79", reporter=instance.members[1].key, hardware=True)
    drive = Drive.open(instance, cause)
    assert drive.run_step() is RunStep.PHASE2
    assert "hardware: XID 79" in drive.run.message


@pytest.mark.parametrize("step", [RunStep.PROBE, RunStep.PREPARE, RunStep.START, RunStep.AWAIT])
def test_a_device_found_gone_during_the_run_ends_what_is_tried_in_place(step: RunStep) -> None:
    drive = Drive.open(serving()).to(step)
    drive.step(Fault(drive.key(1), drive.run.base_epoch, "hardware: XID 79", hardware=True))
    while drive.run_step() is step:  # from START on the answers under way are waited for
        drive.tick()
    assert drive.run_step() is RunStep.PHASE2
    assert "hardware: XID 79" in drive.run.message
