"""The instance's state machine, C6, and which run an instance needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.draining import is_released, why_drain
from controller.model.instance import (
    TRANSITIONS,
    Hold,
    Holder,
    Instance,
    InstanceEvent,
    InstanceStatus,
    Verdict,
    abandon,
    activate,
    answered,
    deactivate,
    delete,
    hold,
    observe,
    release,
    transition,
    unreachable,
)
from controller.model.member import Observation, observed, seen_in_heartbeat, seen_in_status
from controller.model.need import not_prepared, run_needed, waits_for
from controller.model.relaunch.run import Cause, RunReason
from controller.model.settings import RelaunchSettings
from controller.model.verdict import AskDirectly, judge, why_not_ready
from supervisor.wire import (
    EndpointStatus,
    EndpointView,
    HeartbeatMsg,
    NodeManagerStatus,
    OperationView,
    Step,
)
from tests.unit.controller_gang import (
    INSTANCE_SETTINGS,
    REJOIN,
    SETTINGS,
    Told,
    assembled,
    begun,
    joined,
    prepared,
    registration,
    seen,
    serving,
)

INITIAL, NORMAL, ABNORMAL = EndpointStatus.INITIAL, EndpointStatus.NORMAL, EndpointStatus.ABNORMAL
ACTIVE = activate(serving(), "all are normal", 0.0)


def heard(
    instance: Instance, now: float, *statuses: EndpointStatus, epoch: int | None = None, **told: Unpack[Told]
) -> Instance:
    """One status for each member."""
    for member, status in zip(instance.members, statuses or (NORMAL,) * len(instance.members), strict=True):
        instance = observe(instance, member.key, seen(instance, member.key, now, status, epoch=epoch, **told))
    return instance


def judged(instance: Instance, now: float, run_open: bool = False) -> Verdict | AskDirectly | None:
    return judge(instance, run_open, now, INSTANCE_SETTINGS)


def event(instance: Instance, now: float, run_open: bool = False) -> InstanceEvent | None:
    verdict = judged(instance, now, run_open)
    assert not isinstance(verdict, AskDirectly)
    return verdict.event if verdict else None


# --- the table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, init, normal, abnormal, timeout",
    [
        ("initial", "initial", "active", "inactive", "deleted"),
        ("active", "active", "active", "inactive", "inactive"),
        ("inactive", "initial", "active", "inactive", "deleted"),
        ("deleted", "deleted", "deleted", "deleted", "deleted"),
    ],
)
def test_the_transitions_are_the_reference_systems(
    status: str, init: str, normal: str, abnormal: str, timeout: str
) -> None:
    row = TRANSITIONS[InstanceStatus(status)]
    assert [row[event] for event in InstanceEvent] == [init, normal, abnormal, timeout]


def test_since_moves_only_with_the_status() -> None:
    again = transition(ACTIVE, Verdict(InstanceEvent.NORMAL, "still"), 50.0)
    assert (again.since, again.reason) == (0.0, "still")
    assert deactivate(ACTIVE, "engine dead", 50.0).since == 50.0
    assert transition(delete(ACTIVE, "terminated", 1.0), Verdict(InstanceEvent.NORMAL, "x"), 9.0).since == 1.0


# --- C6 -----------------------------------------------------------------------------------------------------


def test_all_normal_fresh_and_of_this_epoch_is_ready() -> None:
    assert why_not_ready(heard(ACTIVE, 10.0), 19.0, INSTANCE_SETTINGS) is None


@pytest.mark.parametrize(
    "instance, why",
    [
        (heard(ACTIVE, 0.9), "stay away"),
        (heard(ACTIVE, 10.0, NORMAL, INITIAL), "endpoint 1 on 10.0.0.2:1026 is initial"),
        (heard(ACTIVE, 10.0, epoch=3), "epoch 3, not 4"),
        (heard(begun(ACTIVE, 5), 10.0, epoch=4), "epoch 4, not 5"),
        (joined(heard(ACTIVE, 10.0), registration(1, boot_id="boot-1-2")), "restarted"),
        (begun(assembled(), 1), "not been heard of"),
        (begun(joined(None, registration(0)), 1), "1 of 2 members"),
    ],
)
def test_C6_names_what_is_in_the_way(instance: Instance, why: str) -> None:
    found = why_not_ready(instance, 10.0, INSTANCE_SETTINGS)
    assert found is not None
    assert why in found


@given(
    statuses=st.tuples(*[st.sampled_from(EndpointStatus)] * 2),
    ages=st.tuples(*[st.floats(0, 30)] * 2),
    epochs=st.tuples(*[st.integers(3, 5)] * 2),
    status=st.sampled_from(InstanceStatus),
    run_open=st.booleans(),
)
def test_C6_only_the_fresh_and_normal_of_this_epoch_become_active(
    statuses: tuple[EndpointStatus, ...],
    ages: tuple[float, ...],
    epochs: tuple[int, ...],
    status: InstanceStatus,
    run_open: bool,
) -> None:
    instance = replace(ACTIVE, status=status)
    for member, own, age, epoch in zip(instance.members, statuses, ages, epochs, strict=True):
        instance = observe(instance, member.key, seen(instance, member.key, 100.0 - age, own, epoch=epoch))
    verdict = judged(instance, 100.0, run_open)
    became_active = (
        isinstance(verdict, Verdict)
        and status is not InstanceStatus.ACTIVE
        and transition(instance, verdict, 100.0).status is InstanceStatus.ACTIVE
    )
    # An epoch that is unknown here but serves in all of the gang is the gang's (F18).
    of_one_epoch = set(epochs) in ({4}, {5})
    good = set(statuses) == {NORMAL} and max(ages) <= 9.0 and of_one_epoch
    could = status in (InstanceStatus.INITIAL, InstanceStatus.INACTIVE) and not run_open
    assert became_active == (could and good)


def test_an_open_run_alone_decides_about_active() -> None:
    inactive = heard(deactivate(ACTIVE, "engine dead", 1.0), 10.0)
    assert event(inactive, 10.0) is InstanceEvent.NORMAL
    assert event(inactive, 10.0, run_open=True) is None


def test_one_abnormal_endpoint_takes_the_instance_out() -> None:
    assert event(heard(ACTIVE, 10.0, NORMAL, ABNORMAL), 10.0) is InstanceEvent.ABNORMAL


def test_active_with_an_endpoint_that_loads_or_pauses_does_not_stay_active() -> None:
    for status in (INITIAL, EndpointStatus.PAUSED, EndpointStatus.WAIT2START):
        assert event(heard(ACTIVE, 10.0, NORMAL, status), 10.0) is InstanceEvent.ABNORMAL


def test_what_loads_without_a_run_is_initial() -> None:
    inactive = deactivate(ACTIVE, "engine dead", 1.0)
    assert event(heard(inactive, 10.0, NORMAL, INITIAL), 10.0) is InstanceEvent.INIT


def test_nothing_is_judged_before_the_first_start() -> None:
    assert judged(assembled(), 5.0) is None


# --- silence ------------------------------------------------------------------------------------------------


def test_a_silent_member_is_asked_before_it_counts() -> None:
    first, second = ACTIVE.members
    instance = observe(ACTIVE, first.key, seen(ACTIVE, first.key, 11.0))
    assert event(instance, 10.0) is None, "not fresh any more, but not silent either"
    assert judged(instance, 11.0) == AskDirectly((second.key,))
    assert judged(instance, 11.0, run_open=True) == AskDirectly((second.key,))
    dead = unreachable(instance, second.key, 12.0)
    assert event(dead, 12.0) is InstanceEvent.HEARTBEAT_TIMEOUT
    answered = observe(dead, second.key, seen(ACTIVE, second.key, 12.5))
    assert event(answered, 13.0) is InstanceEvent.NORMAL


def silent(instance: Instance) -> Instance:
    for member in instance.members:
        instance = unreachable(instance, member.key, 11.0)
    return instance


def silent_again(instance: Instance, at: float) -> Instance:
    """Who was to be asked again did not answer this time either."""
    verdict = judged(instance, at)
    assert isinstance(verdict, AskDirectly)
    for key in verdict.members:
        instance = unreachable(instance, key, at)
    return instance


def test_it_is_deleted_only_when_all_were_silent_for_300_s() -> None:
    inactive = silent(deactivate(ACTIVE, "silent", 11.0))
    assert event(inactive, 300.0) is InstanceEvent.ABNORMAL
    assert event(inactive, 301.0) is InstanceEvent.HEARTBEAT_TIMEOUT
    assert event(inactive, 301.0, run_open=True) is InstanceEvent.HEARTBEAT_TIMEOUT
    one = inactive.members[0]
    alive = observe(inactive, one.key, seen(inactive, one.key, 295.0))
    assert event(silent_again(alive, 296.0), 301.0) is InstanceEvent.ABNORMAL


def test_who_is_inactive_because_nobody_answers_stays_so_until_somebody_does() -> None:
    gone = deactivate(ACTIVE, "10.0.0.2:1026 cannot be reached", 11.0)
    gone = unreachable(gone, gone.members[1].key, 11.0)
    gone = observe(gone, gone.members[0].key, seen(gone, gone.members[0].key, 12.0))
    verdict = judge(gone, False, 12.0, INSTANCE_SETTINGS)
    assert verdict == Verdict(InstanceEvent.ABNORMAL, "10.0.0.2:1026 cannot be reached")
    back = observe(gone, gone.members[1].key, seen(gone, gone.members[1].key, 13.0))
    verdict = judge(back, False, 13.0, INSTANCE_SETTINGS)
    assert isinstance(verdict, Verdict)
    assert verdict.event is InstanceEvent.NORMAL


def test_leaving_is_draining_and_the_last_one_gone_is_deleted_at_once() -> None:
    first = ACTIVE.members[0]
    leaving = observe(ACTIVE, first.key, seen(ACTIVE, first.key, 5.0, leaving=True))
    verdict = judged(leaving, 5.0)
    assert verdict == Verdict(InstanceEvent.ABNORMAL, "10.0.0.1:1026 is leaving: draining")
    assert run_needed(leaving, SETTINGS) is None
    gone = silent(heard(deactivate(ACTIVE, "draining", 5.0), 5.0, leaving=True))
    assert judged(gone, 16.0) == Verdict(InstanceEvent.HEARTBEAT_TIMEOUT, "all members have left")


def test_who_said_that_it_is_gone_is_not_missed_and_the_last_one_ends_the_instance_at_once() -> None:
    first, second = ACTIVE.members
    one_left = observe(
        deactivate(ACTIVE, "draining", 5.0), second.key, seen(ACTIVE, second.key, 5.0, leaving=True, gone=True)
    )
    one_left = observe(one_left, first.key, seen(ACTIVE, first.key, 20.0))
    assert judged(one_left, 20.0) == Verdict(InstanceEvent.ABNORMAL, "10.0.0.2:1026 has left")
    assert run_needed(one_left, SETTINGS) is None
    all_left = observe(one_left, first.key, seen(ACTIVE, first.key, 21.0, leaving=True, gone=True))
    assert judged(all_left, 21.0) == Verdict(InstanceEvent.HEARTBEAT_TIMEOUT, "all members have left")


def leaving_gang(rank: int, first: EndpointStatus = NORMAL, **told: Unpack[Told]) -> Instance:
    """Member `rank` leaves; `first` and `told` are what rank 0 says of itself."""
    instance = heard(ACTIVE, 5.0, first, NORMAL, **told)
    member = instance.members[rank]
    return observe(instance, member.key, seen(instance, member.key, 6.0, leaving=True))


def test_while_any_member_leaves_rank_0_finishes_its_requests() -> None:
    instance = leaving_gang(1)
    assert why_drain(instance, instance.members[0]) == "10.0.0.2:1026 is leaving"
    assert why_drain(instance, instance.members[1]) is None
    assert why_drain(ACTIVE, ACTIVE.members[0]) is None
    by_itself = leaving_gang(0)
    assert why_drain(by_itself, by_itself.members[0]) is None


@pytest.mark.parametrize(
    "instance, released",
    [
        (leaving_gang(1), False),
        (leaving_gang(1, EndpointStatus.PAUSED), False),
        (leaving_gang(1, EndpointStatus.PAUSED, drained=True), True),
        (leaving_gang(1, EndpointStatus.PAUSED, gone=True), True),
        (leaving_gang(1, ABNORMAL), True),
        (leaving_gang(1, INITIAL), True),
        (unreachable(leaving_gang(1), ACTIVE.members[0].key, 7.0), True),
        (joined(leaving_gang(1), registration(0, boot_id="boot-0-2")), True),
        (ACTIVE, False),
    ],
)
def test_a_leaving_member_is_released_once_rank_0_has_no_requests(instance: Instance, released: bool) -> None:
    assert is_released(instance, instance.members[1]) is released
    assert not is_released(instance, instance.members[0])


# --- what is seen -------------------------------------------------------------------------------------------


def test_an_overtaken_heartbeat_or_one_of_another_boot_changes_nothing() -> None:
    member = ACTIVE.members[0]
    newer = observed(member, seen(ACTIVE, member.key, 2.0, sequence=5))
    assert observed(newer, seen(ACTIVE, member.key, 3.0, ABNORMAL, sequence=4)) == newer
    assert observed(newer, seen(ACTIVE, member.key, 3.0, ABNORMAL, boot_id="another")) == newer
    direct = observed(newer, seen(ACTIVE, member.key, 3.0, ABNORMAL))
    assert direct.observation is not None
    assert direct.observation.abnormal == (0,)
    assert observed(direct, seen(ACTIVE, member.key, 4.0, sequence=4)) == direct


@pytest.mark.parametrize("heard_at, counts", [(4.0, True), (5.0, True), (5.5, False)])
def test_an_answer_counts_unless_something_was_heard_since_the_question(heard_at: float, counts: bool) -> None:
    instance = serving()
    key = instance.members[0].key
    told = observe(instance, key, seen(instance, key, heard_at))
    answer = seen(instance, key, 6.0, EndpointStatus.INITIAL)
    assert (answered(told, key, answer, asked_at=5.0) != told) is counts


def test_a_heartbeat_and_a_status_become_the_same_kind_of_fact() -> None:
    heartbeat = seen_in_heartbeat(
        HeartbeatMsg(job_name="llama", ins_id=1, ip="10.0.0.1", status={"0": NORMAL}, epoch=4, boot_id="b"),
        7.0,
    )
    status = seen_in_status(
        NodeManagerStatus(
            status=True,
            instance_id=1,
            epoch=4,
            boot_id="b",
            operation=OperationView(step=Step.DONE, since="", run_id="r"),
            endpoints=(EndpointView(id=0, status=NORMAL, state="ready", progress_age_sec=2.0),),
        ),
        7.0,
    )
    assert replace(status, step=Step.IDLE, run_id=None, progress_age_sec=None) == heartbeat
    assert (status.step, status.run_id, status.progress_age_sec) == (Step.DONE, "r", 2.0)


def test_no_endpoint_is_not_all_normal() -> None:
    heartbeat = HeartbeatMsg(job_name="llama", ins_id=1, ip="10.0.0.1", status={})
    assert not seen_in_heartbeat(heartbeat, 0.0).normal


def test_the_highest_epoch_ever_reported_is_kept() -> None:
    member = ACTIVE.members[0]
    assert observe(ACTIVE, member.key, seen(ACTIVE, member.key, 1.0, epoch=8)).highest_epoch == 8


# --- need ---------------------------------------------------------------------------------------------------


def test_a_complete_gang_that_was_never_started_needs_an_assemble() -> None:
    cause = run_needed(prepared(assembled()), SETTINGS)
    assert cause is not None
    assert cause.reason is RunReason.ASSEMBLE
    assert run_needed(joined(None, registration(0)), SETTINGS) is None


def test_a_gang_whose_stores_still_load_is_not_started_yet() -> None:
    """A run would end at its prepare time-out and restart containers that only wait for their KV store."""
    cold = assembled()
    assert run_needed(cold, SETTINGS) is None
    assert not_prepared(cold) == tuple(member.address for member in cold.members)
    assert run_needed(prepared(assembled(features=())), SETTINGS) is not None


def test_people_are_told_what_a_gang_waits_for() -> None:
    cold = assembled()
    second = cold.members[1]
    alone = joined(None, registration(0))
    assert waits_for(alone) == "1 of 2 members: node 1 missing"
    assert waits_for(cold) == "waits for the dependencies of 10.0.0.1:1026, 10.0.0.2:1026"
    ready = observe(cold, second.key, seen(cold, second.key, 1.0, prepared=True))
    assert waits_for(ready) == "waits for the dependencies of 10.0.0.1:1026"
    assert waits_for(prepared(cold)) is None
    assert waits_for(unreachable(cold, second.key, 1.0)) == "10.0.0.2:1026 cannot be reached"
    assert waits_for(ACTIVE) is None
    assert waits_for(delete(ACTIVE, "terminated", 1.0)) is None


def test_a_held_instance_says_so_whatever_is_seen_of_its_members() -> None:
    spent = Hold(Holder.BUDGET, "its containers restarted 3 times")
    held = hold(joined(ACTIVE, registration(1, boot_id="boot-1-2")), spent)
    verdict = judge(held, False, 1.0, INSTANCE_SETTINGS)
    assert isinstance(verdict, Verdict)
    assert waits_for(transition(held, verdict, 1.0)) == "held: its containers restarted 3 times"


def test_a_gang_that_is_complete_no_longer_says_who_is_missing() -> None:
    assert assembled().reason == "all 2 members have registered"


def test_a_healthy_gang_needs_nothing() -> None:
    assert run_needed(ACTIVE, SETTINGS) is None
    assert run_needed(delete(ACTIVE, "terminated", 1.0), SETTINGS) is None


@pytest.mark.seed("S28")
def test_F03_a_new_boot_among_survivors_is_a_lost_member_and_all_new_boots_an_assemble() -> None:
    broken = joined(ACTIVE, registration(1, boot_id="boot-1-2"))
    lost = "the container of 10.0.0.2:1026 restarted"
    assert run_needed(broken, SETTINGS) == Cause(RunReason.FAULT, lost)
    assert run_needed(broken, REJOIN) == Cause(RunReason.REJOIN, lost)
    assert run_needed(broken, replace(REJOIN, enable_engine_relaunch=False)) == Cause(RunReason.FAULT, lost)
    reborn = run_needed(prepared(joined(broken, registration(0, boot_id="boot-0-2"))), SETTINGS)
    assert reborn is not None
    assert reborn.reason is RunReason.ASSEMBLE


def test_a_member_that_did_not_answer_is_lost() -> None:
    first, second = ACTIVE.members
    alone = unreachable(ACTIVE, second.key, 5.0)
    assert run_needed(alone, SETTINGS) is None, "who was heard before may be as far away by now"
    cause = run_needed(observe(alone, first.key, seen(ACTIVE, first.key, 6.0)), SETTINGS)
    assert cause is not None
    assert cause.text == "10.0.0.2:1026 cannot be reached"


def test_when_nobody_could_be_reached_the_first_that_is_heard_proves_nothing_against_the_others() -> None:
    """It was the controller that was cut off; a fleet's containers must not restart over that."""
    first, second = ACTIVE.members
    healed = observe(silent(ACTIVE), first.key, seen(ACTIVE, first.key, 60.0))
    assert run_needed(healed, SETTINGS) is None
    assert judged(healed, 60.0) == AskDirectly((second.key,))
    gone = observe(unreachable(healed, second.key, 62.0), first.key, seen(ACTIVE, first.key, 63.0))
    assert run_needed(gone, SETTINGS) is not None


def test_nothing_is_run_while_those_who_take_part_cannot_be_reached() -> None:
    """Their node is gone: the others have restarted and wait for a newcomer, for however long."""
    lost = unreachable(ACTIVE, ACTIVE.members[1].key, 5.0)
    waiting = joined(lost, registration(0, boot_id="boot-0-2"))
    assert run_needed(waiting, SETTINGS) is None
    cause = run_needed(prepared(joined(waiting, registration(1, boot_id="boot-1-2"))), SETTINGS)
    assert cause is not None
    assert cause.reason is RunReason.ASSEMBLE


def test_a_silent_newcomer_is_waited_for_and_nobody_is_stopped_over_it() -> None:
    cold = assembled()
    assert run_needed(unreachable(cold, cold.members[0].key, 5.0), SETTINGS) is None


def test_a_still_dead_endpoint_opens_a_run_again_unless_an_operator_gave_it_up() -> None:
    dead = heard(ACTIVE, 5.0, NORMAL, ABNORMAL)
    cause = run_needed(dead, SETTINGS)
    assert cause is not None
    assert cause.endpoint_abnormal
    assert run_needed(abandon(dead, 0.0), SETTINGS) is None
    assert run_needed(release(abandon(dead, 0.0), "reset"), SETTINGS) == cause
    assert run_needed(dead, RelaunchSettings(enable_engine_relaunch=False)) is None
    assert run_needed(heard(ACTIVE, 5.0, NORMAL, ABNORMAL, epoch=3), SETTINGS) is None


def test_what_an_operator_gave_up_is_over_when_it_serves_again() -> None:
    given_up = abandon(deactivate(ACTIVE, "a relaunch", 1.0), 1.5)
    assert given_up.abandoned_epoch == ACTIVE.epoch
    assert event(given_up, 2.0) is InstanceEvent.INIT, "what was seen before says nothing of what it has stopped"
    heard_since = given_up
    for member in ACTIVE.members:
        heard_since = observe(heard_since, member.key, seen(ACTIVE, member.key, 2.0))
    assert event(heard_since, 2.0) is InstanceEvent.NORMAL
    assert activate(given_up, "all endpoints are normal", 2.0).abandoned_epoch is None


@pytest.mark.parametrize("step", Step)
def test_F17_who_is_stopped_for_a_run_that_is_no_more_would_never_be_started(step: Step) -> None:
    first, _ = ACTIVE.members
    told = replace(seen(ACTIVE, first.key, 6.0), step=step, run_id="of an earlier life of the controller")
    needed = run_needed(observe(ACTIVE, first.key, told), SETTINGS) is not None
    assert needed is (step in (Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.HELD))
    by_hand = observe(ACTIVE, first.key, replace(told, run_id=None))
    assert run_needed(by_hand, SETTINGS) is None, "it goes on by itself"


@pytest.mark.parametrize("step", Step)
def test_F14_a_rank_that_somebody_else_started_in_a_later_epoch_needs_the_others_there(step: Step) -> None:
    first, _ = ACTIVE.members
    ahead = observe(ACTIVE, first.key, replace(seen(ACTIVE, first.key, 6.0), epoch=9, step=step))
    needed = run_needed(ahead, SETTINGS) is not None
    assert needed is (step in (Step.STARTING, Step.LOADING, Step.DONE))
    assert run_needed(replace(ahead, abandoned_epoch=ahead.epoch), SETTINGS) is None


def test_what_is_held_needs_nothing_until_it_is_released() -> None:
    held = hold(prepared(assembled()), Hold(Holder.BUDGET, "its budget is spent"))
    assert run_needed(held, SETTINGS) is None
    assert run_needed(release(held, "reset"), SETTINGS) is not None


def test_observation_of_an_unextended_peer_is_enough_for_active() -> None:
    instance = serving(features=(), boot_id=None)
    told = Observation(received_at=5.0, epoch=0, boot_id=None, normal=True, statuses={})
    for member in instance.members:
        instance = observe(instance, member.key, told)
    assert why_not_ready(instance, 6.0, INSTANCE_SETTINGS) is None


def test_the_epoch_of_an_engine_that_relaunched_alone_is_taken_over() -> None:
    """One node, nobody could be told: without this its instance would never be ACTIVE again."""
    alone = serving(1, epoch=4)
    key = alone.members[0].key
    told = replace(seen(alone, key, 9.0), epoch=5, step=Step.DONE, run_id=None)
    taken = observe(alone, key, told)
    assert (taken.epoch, taken.highest_epoch) == (5, 5)
    assert why_not_ready(taken, 9.0, INSTANCE_SETTINGS) is None
    loading = observe(alone, key, replace(told, step=Step.LOADING))
    assert loading.epoch == 4


def test_a_rank_of_a_gang_never_moves_the_instance_to_another_epoch() -> None:
    gang = serving(2, epoch=4)
    key = gang.members[0].key
    assert observe(gang, key, replace(seen(gang, key, 9.0), epoch=5, step=Step.DONE, run_id=None)).epoch == 4
