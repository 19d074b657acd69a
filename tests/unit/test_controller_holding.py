"""A held instance: what is needed for it, the run that stops its engines, and what ends the hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.instance import (
    Hold,
    Holder,
    Instance,
    hold,
    leave_epoch,
    observe,
    release,
    unreachable,
)
from controller.model.need import must_leave, run_needed, waits_for
from controller.model.relaunch.exchange import Accepted, CancelKind, EpochLeft, InstanceInactive, Journal, Send
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunStep
from supervisor.wire import EndpointStatus, ErrorCode, Step
from tests.unit.controller_gang import (
    NOBODY,
    SETTINGS,
    Drive,
    assembled,
    begun,
    joined,
    registration,
    seen,
    serving,
)

MAINTENANCE = Hold(Holder.OPERATOR, "maintenance")
HOLD = Cause(RunReason.HOLD, "held: maintenance")


def held(instance: Instance | None = None) -> Instance:
    return hold(instance or serving(3), MAINTENANCE)


def open_hold(instance: Instance | None = None, *, heard: bool = True) -> Drive:
    return Drive.open(held(instance), HOLD, heard=heard)


def after(drive: Drive, instance: Instance) -> Instance:
    """What the run leaves of it."""
    (left,) = [action for action in drive.actions if isinstance(action, EpochLeft)]
    return leave_epoch(instance, left.members)


# --- the run ----------------------------------------------------------------------------------------------------


def test_all_are_told_at_once_and_when_all_are_stopped_it_is_over() -> None:
    drive = open_hold()
    assert [word for _, word in drive.sent()] == ["hold"] * 3, "nobody needs to be asked first: there is no barrier"
    drive.answer_all()
    closed = drive.closed()
    assert closed is not None
    assert (closed.outcome, closed.follow) == (Outcome.HELD, None)
    assert drive.errors() == []
    assert run_needed(after(drive, held()), SETTINGS) is None


def test_it_is_out_of_routing_and_journaled_before_anybody_is_told() -> None:
    kinds = [type(action) for action in open_hold().actions]
    assert kinds.index(InstanceInactive) < kinds.index(Journal) < kinds.index(Send)


def test_who_is_not_stopped_yet_is_asked_again() -> None:
    drive = open_hold()
    for index in range(3):
        held = drive.willing(index, drive.pending[drive.key(index)].request)
        assert isinstance(held, Accepted)
        drive.answer(index, replace(held, step=Step.STOPPING))
    assert drive.closed() is None
    drive.tick()
    drive.answer_all()
    assert drive.run.outcome is Outcome.HELD


def test_a_higher_epoch_is_overtaken() -> None:
    drive = open_hold()
    first = drive.run.epoch
    drive.refuse(0, ErrorCode.STALE_EPOCH, epoch=first + 5)
    assert drive.run.epoch == first + 6
    drive.pending.clear()
    drive.tick()
    drive.answer_all()
    assert drive.run.outcome is Outcome.HELD


@pytest.mark.parametrize("code", [ErrorCode.FAILED, ErrorCode.WRONG_INSTANCE, ErrorCode.MALFORMED])
def test_who_cannot_be_held_is_named_and_holds_nobody_up(code: ErrorCode) -> None:
    drive = open_hold()
    drive.refuse(0, code)
    drive.answer_all()
    assert drive.run.outcome is Outcome.HELD
    (error,) = drive.errors()
    assert error.member == drive.key(0)
    assert drive.run.phase == 1, "no container restarts for a hold"


def test_who_does_not_answer_is_given_up_after_some_tries() -> None:
    drive = open_hold()
    drive.answer(1, drive.willing(1, drive.pending[drive.key(1)].request))
    drive.answer(2, drive.willing(2, drive.pending[drive.key(2)].request))
    drive.answer(0, NOBODY)
    while drive.closed() is None:
        drive.tick()
        drive.answer(0, NOBODY)
    assert drive.run.outcome is Outcome.HELD
    assert len(drive.sent("hold")) == 2 + SETTINGS.engine_relaunch_dispatch_retries
    assert [error.member for error in drive.errors()] == [drive.key(0)]


def test_a_container_that_restarts_meanwhile_is_stopped_enough() -> None:
    drive = open_hold()
    drive.new_boot(0)
    drive.answer_all()
    assert drive.run.outcome is Outcome.HELD
    assert drive.errors() == []


def test_only_who_can_be_told_is_told() -> None:
    instance = serving(3)
    instance = unreachable(instance, instance.members[0].key, 5.0)
    instance = joined(instance, registration(1, 3, boot_id="boot-1-2"))
    drive = open_hold(instance, heard=False)
    told = {node for node, _ in drive.sent("hold")}
    assert told == {"#2"}, "a new boot runs nothing"


def test_nobody_to_be_told_is_over_at_once() -> None:
    instance = serving(2)
    for member in instance.members:
        instance = unreachable(instance, member.key, 5.0)
    assert open_hold(instance, heard=False).run.outcome is Outcome.HELD


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_overtaken_by_a_release_it_leaves_nobody_frozen(answered: int) -> None:
    drive = open_hold(serving(2))
    for index in range(answered):
        drive.answer(index, drive.willing(index, drive.pending[drive.key(index)].request))
    drive.cancel(CancelKind.OVERTAKEN)
    drive.answer_all()
    expected = Outcome.HELD if answered == 2 else Outcome.ABORTED
    assert drive.run.outcome is expected
    assert len(drive.sent("abort")) == 2 - answered
    assert drive.errors() == []


def test_another_life_of_the_controller_holds_them_anew() -> None:
    drive = open_hold()
    (journal,) = [action for action in drive.actions if isinstance(action, Journal)]
    resumed = Drive.resume(held(), journal.record)
    assert resumed.run.step is RunStep.HOLD
    assert [word for _, word in resumed.sent()] == ["hold"] * 3
    resumed.answer_all()
    assert resumed.run.outcome is Outcome.HELD


# --- what a held instance needs ---------------------------------------------------------------------------------


def test_engines_of_a_held_instance_are_stopped() -> None:
    assert run_needed(held(), SETTINGS) == HOLD


def test_one_without_engines_needs_nothing_and_says_why() -> None:
    idle = hold(assembled(), MAINTENANCE)
    assert run_needed(idle, SETTINGS) is None
    assert waits_for(idle) == "held: maintenance"


def test_a_rank_that_could_not_be_reached_is_stopped_when_it_can() -> None:
    away = unreachable(serving(2), serving(2).members[0].key, 5.0)
    drive = open_hold(away, heard=False)
    drive.answer_all()
    quiet = after(drive, hold(away, MAINTENANCE))
    assert run_needed(quiet, SETTINGS) is None
    first = quiet.members[0].key
    back = observe(quiet, first, seen(quiet, first, 50.0))
    assert run_needed(back, SETTINGS) == HOLD


def test_a_rank_that_hears_nothing_and_runs_on_has_to_leave() -> None:
    drive = open_hold(serving(2))
    drive.refuse(0, ErrorCode.FAILED)
    drive.answer_all()
    quiet = after(drive, held(serving(2)))
    first, second = quiet.members
    assert not must_leave(quiet, first), "as it was seen last, it is not started"
    running = observe(quiet, first.key, replace(seen(quiet, first.key, 50.0), step=Step.DONE))
    assert must_leave(running, running.members[0])
    stopped = observe(quiet, second.key, replace(seen(quiet, second.key, 50.0), step=Step.HELD))
    assert not must_leave(stopped, stopped.members[1])
    assert not must_leave(release(running, "over"), running.members[0])


def test_released_it_is_assembled_like_any_other() -> None:
    drive = open_hold(serving(2))
    drive.answer_all()
    instance = release(after(drive, held(serving(2))), "over")
    for member in instance.members:
        told = seen(instance, member.key, 200.0, EndpointStatus.PAUSED, step=Step.HELD, prepared=True, run_id="run-1")
        instance = observe(instance, member.key, told)
    needed = run_needed(instance, SETTINGS)
    assert needed is not None
    assert needed.reason is RunReason.ASSEMBLE


def test_who_is_held_for_a_run_that_is_no_more_is_started() -> None:
    """A release that overtook the hold, and whose own run was lost."""
    instance = begun(serving(2), 5)
    first = instance.members[0].key
    instance = observe(instance, first, replace(seen(instance, first, 50.0), step=Step.HELD, run_id="gone"))
    needed = run_needed(instance, SETTINGS)
    assert needed is not None
    assert needed.reason is RunReason.FAULT


# --- what ends a hold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by, stays", [(Holder.OPERATOR, True), (Holder.BUDGET, False), (Holder.FLEET, False)])
def test_a_new_configuration_ends_every_hold_but_that_of_an_operator(by: Holder, stays: bool) -> None:
    instance = hold(assembled(1), Hold(by, "why"))
    rolled_out = joined(instance, registration(0, 1, boot_id="boot-0-2", config_digest="sha256:2"))
    assert bool(rolled_out.held) is stays


def test_a_supervisor_that_is_held_tells_a_controller_that_does_not_know_it() -> None:
    told = joined(None, registration(0, 2, held="maintenance"))
    assert told.held == MAINTENANCE
    assert run_needed(joined(told, registration(1, 2)), SETTINGS) is None
