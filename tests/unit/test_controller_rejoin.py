"""REJOIN: a member is lost and the others wait for it in place; each way in, each way out, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.budget import Budget
from controller.model.instance import observe, unreachable
from controller.model.member import Observation
from controller.model.relaunch import plan
from controller.model.relaunch.exchange import (
    Accepted,
    Answered,
    CancelKind,
    Fault,
    InstanceInactive,
    Journal,
    MemberSilent,
    Probe,
    Registered,
    SaveBudget,
    Send,
    Tick,
    TurnCame,
)
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunStep
from controller.model.settings import Phase2Scope
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, Step
from tests.unit.controller_gang import (
    ASSEMBLE,
    FAULT,
    NOBODY,
    REJOIN,
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

INITIAL, NORMAL = EndpointStatus.INITIAL, EndpointStatus.NORMAL
LOST = Cause(RunReason.REJOIN, "the container of 10.0.0.2:1026 restarted")
IN_PLACE = [RunStep.PROBE, RunStep.PREPARE, RunStep.BACKOFF, RunStep.START, RunStep.AWAIT]


def in_step(step: RunStep, nnodes: int = 2) -> Drive:
    """A run that was opened for a fault, the second without stable service, so that it has a back-off."""
    instance = serving(nnodes)
    budget = replace(fresh_budget(instance), runs=1 if step is RunStep.BACKOFF else 0)
    return Drive.open(instance, budget=budget, settings=REJOIN).to(step)


def waiting(nnodes: int = 2) -> Drive:
    """Member 1's container has ended, the others are stopped; nobody has taken its place yet."""
    drive = in_step(RunStep.PREPARE, nnodes)
    drive.refuse(1, ErrorCode.WRONG_BOOT)
    assert drive.run_step() is RunStep.REJOIN
    drive.answer_all()
    return drive


def done(drive: Drive) -> bool:
    drive.to(RunStep.AWAIT)
    for index in range(len(drive.run.rows)):
        drive.heartbeat(index, NORMAL)
    return drive.run.outcome is Outcome.DONE


# --- found before a run -----------------------------------------------------------------------------------------


@pytest.mark.seed("S28")
def test_a_container_that_restarted_alone_costs_the_others_nothing_but_their_engines() -> None:
    broken = joined(serving(3), registration(1, 3, boot_id="boot-1-2"))
    drive = Drive.open(broken, LOST, settings=REJOIN, heard=False)
    assert drive.run_step() is RunStep.REJOIN
    assert drive.sent() == [("#0", "prepare"), ("#1", "probe"), ("#2", "prepare")]
    drive.answer_all()
    drive.heartbeat(1, INITIAL, epoch=0, prepared=True)
    assert drive.run_step() is RunStep.PROBE
    assert done(drive)
    assert drive.sent("stop", "abort") == []
    assert drive.run.epoch > broken.epoch


def test_the_journal_has_it_and_the_instance_is_out_of_routing_before_anybody_is_asked() -> None:
    broken = joined(serving(), registration(1, boot_id="boot-1-2"))
    kinds = [type(action) for action in Drive.open(broken, LOST, settings=REJOIN).actions]
    assert kinds.index(InstanceInactive) < kinds.index(SaveBudget) < kinds.index(Journal) < kinds.index(Send)


def test_a_member_that_cannot_be_reached_is_asked_on_and_the_others_are_stopped() -> None:
    instance = serving()
    first, second = instance.members
    instance = observe(unreachable(instance, second.key, 50.0), first.key, seen(instance, first.key, 51.0))
    drive = Drive.open(instance, replace(LOST, text="10.0.0.2:1026 cannot be reached"), settings=REJOIN, heard=False)
    assert drive.sent() == [("#0", "prepare"), ("#1", "probe")]


def test_a_newcomer_is_waited_for_until_its_dependencies_are_active() -> None:
    broken = joined(serving(), registration(1, boot_id="boot-1-2"))
    drive = Drive.open(broken, LOST, settings=REJOIN, heard=False)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.answer(1, seen(broken, drive.key(1), drive.now, INITIAL, epoch=0))
    drive.wait(200, heard=(0,))
    assert drive.run_step() is RunStep.REJOIN
    drive.heartbeat(1, INITIAL, epoch=0, prepared=True)
    assert drive.run_step() is RunStep.PROBE


# --- found in a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", IN_PLACE)
@pytest.mark.parametrize("how", ["registered", "heartbeat", "answer", "silent"])
def test_F03_a_loss_ends_every_step_at_once_and_the_gang_starts_with_the_newcomer(step: RunStep, how: str) -> None:
    drive = in_step(step)
    epoch = drive.run.epoch
    drive.lose(how)
    assert drive.run_step() is RunStep.REJOIN
    assert drive.asked(0) == "prepare"
    if step is not RunStep.PROBE:
        assert drive.run.epoch > epoch, "an epoch in which nobody was started yet"
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.new_boot(1)
    drive.heartbeat(1, INITIAL, epoch=0, prepared=True)
    assert drive.run_step() is RunStep.PROBE
    assert done(drive)
    assert drive.sent("stop", "abort") == []


@pytest.mark.seed("S03")
def test_S03_a_supervisor_that_does_not_answer_the_probe_is_waited_for() -> None:
    drive = in_step(RunStep.PROBE)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    opened = drive.now
    for _ in range(3):
        drive.answer(1, NOBODY)
        if drive.run.step is RunStep.PROBE:
            drive.tick()
    assert drive.run_step() is RunStep.REJOIN
    assert drive.now - opened == 2.0
    assert drive.sent("prepare") == [("#0", "prepare")]


@pytest.mark.parametrize("reason", [RunReason.ASSEMBLE, RunReason.OPERATOR])
def test_a_loss_is_survived_whatever_the_run_was_opened_for(reason: RunReason) -> None:
    instance = assembled() if reason is RunReason.ASSEMBLE else serving()
    drive = Drive.open(instance, Cause(reason, "for a test"), settings=REJOIN).to(RunStep.AWAIT)
    drive.new_boot(1)
    assert drive.run_step() is RunStep.REJOIN
    assert done(drive)
    assert drive.run.budget.runs == 1


def test_a_member_that_leaves_in_the_middle_is_waited_for_like_any_other() -> None:
    drive = in_step(RunStep.AWAIT)
    drive.heartbeat(1, INITIAL, leaving=True)
    assert drive.run_step() is RunStep.REJOIN
    assert drive.asked(1) == "probe", "who leaves is not told to prepare"
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.answer(1, seen(drive.run.instance, drive.key(1), drive.now, INITIAL, leaving=True))
    assert drive.run_step() is RunStep.REJOIN
    drive.new_boot(1)
    assert done(drive)


# --- who comes --------------------------------------------------------------------------------------------------


def test_a_newcomer_with_another_address_changes_the_placement_of_all() -> None:
    drive = in_step(RunStep.AWAIT)
    old = drive.run.rows[0].member
    drive.new_boot(0, ip="10.0.7.7")
    drive.to(RunStep.START)
    for index in range(2):
        request = drive.pending[drive.key(index)].request
        assert isinstance(request, EngineRestartMsg)
        prepares = [
            a.request
            for a in drive.actions
            if isinstance(a, Send) and a.member == drive.key(index)
            if isinstance(a.request, EngineRestartMsg) and a.request.action == "prepare"
        ]
        placement = prepares[-1].start
        assert placement is not None
        assert prepares[-1].epoch == request.epoch == drive.run.epoch
        # The same epoch again would only join the prepare before, with the placement before.
        assert len({prepare.epoch for prepare in prepares}) == len(prepares)
        assert (placement.master_dp_ip, placement.node_addrs) == ("10.0.7.7", ("10.0.7.7", "10.0.0.2"))
    assert old.ip not in str(drive.run.instance.members)


def test_a_pod_that_was_created_anew_takes_the_place_under_its_own_name() -> None:
    drive = waiting()
    other = replace(drive.key(1), node="job-7f9c-x2k4d")
    drive.new_boot(1, key=other, ip="10.0.0.9")
    assert [row.key for row in drive.run.rows] == [drive.key(0), other]
    assert done(drive)


def test_who_was_only_cut_off_is_stopped_like_the_others_when_it_can_be_reached_again() -> None:
    drive = in_step(RunStep.AWAIT)
    drive.wait(10, heard=(0,))
    drive.step(MemberSilent(drive.key(1)))
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    for _ in range(5):
        drive.answer(1, SILENT)
        while not drive.asked(1):
            drive.wait(1, heard=(0,))
    assert drive.run_step() is RunStep.REJOIN
    drive.answer(1, seen(drive.run.instance, drive.key(1), drive.now, NORMAL, epoch=drive.run.base_epoch))
    assert drive.asked(1) == "prepare"
    assert done(drive)


def test_F21_who_is_heard_and_cannot_be_told_anything_is_not_waited_for() -> None:
    """Its heartbeats bring it the order to leave, and its next boot may be reached."""
    drive = in_step(RunStep.PROBE)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    entered = drive.now
    while drive.run.step in (RunStep.PROBE, RunStep.REJOIN):
        drive.wait(1, heard=(0, 1))
        if drive.asked(0):
            drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
        if drive.asked(1):
            drive.answer(1, SILENT)
    assert drive.run_step() is RunStep.PHASE2
    assert "its heartbeats come" in drive.run.message
    assert drive.now - entered < 20.0


def test_a_member_that_dies_while_it_waits_is_not_taken_for_one_that_cannot_be_told() -> None:
    drive = waiting(3)
    drive.wait(3, heard=(0, 2))  # the last heartbeat of 2 came after the waiting began
    drive.pending.pop(drive.key(2), None)
    for _ in range(60):
        drive.wait(1, heard=(0,))
        if drive.asked(2):
            drive.answer(2, NOBODY)
        if drive.asked(0):
            drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    assert drive.run_step() is RunStep.REJOIN


# --- how it ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", list(Phase2Scope))
def test_after_the_time_the_containers_of_those_who_waited_restart(scope: Phase2Scope) -> None:
    instance = serving(3)
    settings = replace(REJOIN, engine_relaunch_phase2_scope=scope)
    drive = Drive.open(instance, settings=settings).to(RunStep.AWAIT)
    drive.heartbeat(1, INITIAL, boot_id="boot-1-2")
    entered = drive.now
    while drive.run_step() is RunStep.REJOIN:
        drive.answer_all()
        drive.tick()
    assert drive.now - entered == settings.rejoin_timeout_sec
    assert drive.run_step() is RunStep.PHASE2
    assert drive.sent("stop", "abort") == [("#0", "abort"), ("#2", "abort")]
    assert "10.0.0.2:1026 is not back after 300 s" in drive.run.message
    drive.answer_all()
    for index in range(3):
        drive.new_boot(index)
    assert drive.run.outcome is Outcome.PHASE2


def test_everybody_is_polled_while_they_wait() -> None:
    """F12: their freezes end by silence."""
    drive = waiting(3)
    silent = {0: 0.0, 2: 0.0}
    last = dict.fromkeys(silent, drive.now)
    while drive.run_step() is RunStep.REJOIN:
        drive.tick()
        for index in silent:
            if drive.asked(index) == "probe":
                silent[index] = max(silent[index], drive.now - last[index])
                last[index] = drive.now
                drive.answer(index, drive.willing(index, Probe("run-1")))
    assert max(silent.values()) <= REJOIN.engine_relaunch_poll_interval_sec


def test_when_all_are_here_it_waits_for_its_turn_however_long_that_takes() -> None:
    drive = waiting(3)
    newcomer = drive.newcomer(1)
    run, _ = plan.step(drive.run, Registered(drive.key(1), newcomer.boot_id, newcomer), drive.now)
    assert plan.wants_turn(run)
    assert not plan.has_turn(run)
    now = drive.now
    for _ in range(200):  # polled all the while, so that nobody's freeze ends
        due = plan.deadline(run)
        assert due is not None
        now = due
        run, actions = plan.step(run, Tick(), now)
        for send in (action for action in actions if isinstance(action, Send)):
            told = drive.willing([row.key for row in run.rows].index(send.member), send.request)
            assert isinstance(told, Observation)
            seen_now = replace(told, boot_id=run.members[send.member].member.boot_id, prepared=True)
            run, _ = plan.step(run, Answered(send.member, send.number, seen_now), now)
    assert plan.wants_turn(run)
    run, _ = plan.step(run, TurnCame(), now)
    assert run.step is RunStep.PROBE
    assert plan.step(run, TurnCame(), now) == (run, ()), "only then"


def test_a_turn_that_comes_when_somebody_is_lost_again_starts_nobody() -> None:
    drive = waiting()
    assert plan.step(drive.run, TurnCame(), drive.now) == (drive.run, ())


def test_one_lost_after_the_other_makes_nobody_wait_longer() -> None:
    drive = waiting(3)
    entered = drive.now
    drive.wait(200, heard=(0, 2))
    drive.new_boot(2, observation=None)
    assert drive.run_step() is RunStep.REJOIN
    drive.wait(50, heard=(0,))
    drive.new_boot(1)
    drive.wait(49, heard=(0,))
    assert drive.run_step() is RunStep.REJOIN
    drive.wait(2, heard=(0,))
    assert drive.run_step() is RunStep.PHASE2
    assert drive.now - entered <= 302.0
    assert "10.0.0.3:1026 is not back" in drive.run.message


def test_a_newcomer_that_is_lost_before_the_start_makes_nobody_wait_longer() -> None:
    drive = waiting()
    entered = drive.now
    drive.wait(200, heard=(0,))
    drive.new_boot(1)
    drive.to(RunStep.PREPARE)
    drive.refuse(1, ErrorCode.WRONG_BOOT)
    while drive.run_step() is RunStep.REJOIN:
        drive.answer_all()
        drive.tick()
    assert drive.now - entered == REJOIN.rejoin_timeout_sec
    assert drive.run_step() is RunStep.PHASE2


def test_a_newcomer_that_is_lost_again_is_waited_for_again() -> None:
    drive = waiting()
    drive.new_boot(1, observation=None)
    drive.new_boot(1, 3)
    assert drive.run.rows[1].member.boot_id == "boot-1-3"
    drive.to(RunStep.PREPARE)
    drive.new_boot(1, 4)
    assert done(drive)
    assert drive.run.budget.runs == 1, "nothing was started in between"


def test_the_last_survivor_dies_too() -> None:
    drive = waiting()
    drive.new_boot(0)
    drive.new_boot(1)
    assert done(drive)
    assert drive.sent("stop", "abort") == []


def test_a_newcomer_that_may_not_join_ends_the_waiting_at_once() -> None:
    """A rollout has begun: those who wait are of the old configuration."""
    drive = waiting()
    entered = drive.now
    drive.step(Registered(drive.key(1), "boot-1-2", None))
    assert (drive.run.step, drive.now) == (RunStep.PHASE2, entered)
    assert "may not join" in drive.run.message
    assert drive.sent("stop", "abort") == [("#0", "abort")]


def test_a_member_whose_new_boot_was_refused_before_the_run_is_not_waited_for() -> None:
    instance = serving()
    members = tuple(replace(m, superseded=m.node_rank == 1) for m in instance.members)
    drive = Drive.open(replace(instance, members=members), LOST, settings=REJOIN)
    assert drive.run_step() is RunStep.PHASE2


def test_a_newcomer_that_knows_only_restart_cannot_be_waited_with() -> None:
    drive = waiting()
    drive.new_boot(1, features=())
    assert drive.run_step() is RunStep.PHASE2
    assert "knows only restart and abort" in drive.run.message


def test_peers_that_know_only_restart_follow_into_phase_two() -> None:
    drive = Drive.open(serving(features=(), boot_id=None), settings=REJOIN).to(RunStep.AWAIT)
    drive.wait(10, heard=(0,))
    drive.step(MemberSilent(drive.key(1)))
    assert drive.run_step() is RunStep.PHASE2


@pytest.mark.parametrize("how", ["refuses", "fails", "hardware"])
def test_a_survivor_that_cannot_wait_ends_the_waiting_for_all(how: str) -> None:
    drive = in_step(RunStep.PROBE)
    drive.heartbeat(1, INITIAL, boot_id="boot-1-2")
    assert drive.asked(0) == "prepare"
    match how:
        case "refuses":
            drive.refuse(0, ErrorCode.DISABLED)
        case "fails":
            drive.answer(0, Accepted(Step.FAILED, drive.run.epoch, "boot-0-1", message="its tree does not end"))
        case "hardware":
            drive.step(Fault(drive.key(0), drive.run.base_epoch, "hardware: XID 79", hardware=True))
    assert drive.run_step() is RunStep.PHASE2


def test_a_survivor_that_knows_a_higher_epoch_waits_in_one_more() -> None:
    drive = in_step(RunStep.PROBE)
    drive.heartbeat(1, INITIAL, boot_id="boot-1-2")
    drive.refuse(0, ErrorCode.STALE_EPOCH, epoch=40)
    assert drive.run_step() is RunStep.REJOIN
    request = drive.pending[drive.key(0)].request
    assert isinstance(request, EngineRestartMsg)
    assert (request.epoch or 0) > 40
    drive.answer_all()
    drive.new_boot(1)
    assert done(drive)


@pytest.mark.seed("S07")
@pytest.mark.parametrize("kind", [CancelKind.ABORT, CancelKind.DELETED])
def test_cancelled_while_they_wait_all_who_were_stopped_are_told(kind: CancelKind) -> None:
    drive = waiting(3)
    drive.cancel(kind)
    assert drive.sent("abort") == [("#0", "abort"), ("#2", "abort")]


def test_phase_two_leaves_a_newcomer_alone_that_nobody_has_touched() -> None:
    """It is what the others become by restarting."""
    drive = waiting(3)
    drive.new_boot(1, observation=None)
    drive.step(Fault(drive.key(2), drive.run.base_epoch, "hardware: XID 79", hardware=True))
    assert drive.run_step() is RunStep.PHASE2
    assert drive.sent("stop", "abort") == [("#0", "abort"), ("#2", "abort")]
    drive.answer_all()
    drive.new_boot(0)
    drive.new_boot(2)
    assert drive.run.outcome is Outcome.PHASE2


def test_phase_two_restarts_a_newcomer_that_was_stopped_or_started_with_the_others() -> None:
    drive = waiting()
    drive.new_boot(1)
    drive.to(RunStep.START)
    drive.answer(0, drive.willing(0, drive.pending[drive.key(0)].request))
    drive.refuse(1, ErrorCode.FAILED)
    assert drive.sent("stop", "abort") == [("#1", "abort")]
    drive.answer_all()
    drive.new_boot(0)
    drive.answer_all()
    assert drive.run.outcome is None, "it has been back once, and is to come back once more"
    drive.new_boot(1, 3)
    assert drive.run.outcome is Outcome.PHASE2


# --- what it costs ----------------------------------------------------------------------------------------------


def test_it_costs_one_relaunch_for_each_start_to_which_it_leads() -> None:
    drive = in_step(RunStep.PREPARE)
    assert drive.run.budget.runs == 1
    drive.new_boot(1)
    drive.to(RunStep.AWAIT)
    assert drive.run.budget.runs == 1, "a loss before the start costs nothing more"
    drive.new_boot(1, 3)
    assert drive.run.budget.runs == 2
    assert drive.run.backoff_sec == 30.0
    saved = [action.budget.runs for action in drive.actions if isinstance(action, SaveBudget)]
    assert saved == [1, 2]


def test_a_container_that_crashes_over_and_over_ends_in_phase_two() -> None:
    drive = in_step(RunStep.PROBE)
    for boot in range(2, 5):
        drive.to(RunStep.AWAIT)
        drive.new_boot(1, boot)
    assert drive.run_step() is RunStep.PHASE2
    assert "3 relaunches without 600 s of service" in drive.run.message
    assert drive.run.budget.phase2s == 1


def test_with_the_budget_spent_nobody_waits() -> None:
    instance = joined(serving(), registration(1, boot_id="boot-1-2"))
    budget: Budget = replace(fresh_budget(instance), runs=3)
    drive = Drive.open(instance, LOST, budget=budget, settings=REJOIN)
    assert drive.run_step() is RunStep.PHASE2


def test_without_the_switch_nobody_waits() -> None:
    settings = replace(REJOIN, enable_engine_relaunch=False)
    instance = joined(serving(), registration(1, boot_id="boot-1-2"))
    assert Drive.open(instance, FAULT, settings=settings).run.step is RunStep.PHASE2


def test_F06_a_newcomer_is_started_in_a_higher_epoch_than_the_survivors_had() -> None:
    instance = begun(assembled(), 4)
    drive = Drive.open(instance, ASSEMBLE, settings=REJOIN).to(RunStep.AWAIT)
    epoch = drive.run.epoch
    drive.new_boot(0)
    drive.to(RunStep.START)
    assert drive.run.epoch > epoch
