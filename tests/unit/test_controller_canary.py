"""Relaunches on a canary alone: of one model one at a time, and what is not held back by that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fleet import Fleet
from controller.model import canary
from controller.model.canary import Begun, Recent, noted, put_off
from controller.model.instance import Instance
from controller.model.member import InstanceKey
from controller.model.relaunch import plan
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.exchange import (
    Action,
    CancelKind,
    Event,
    Fault,
    InstanceInactive,
    Journal,
    Tick,
    TurnCame,
)
from controller.model.relaunch.run import Cause, Outcome, PutOff, RunReason, RunStep
from controller.model.settings import FleetSettings
from supervisor.wire import EndpointStatus
from tests.unit.controller_gang import REJOIN, SETTINGS, Drive, seen, serving

INTERVAL = FleetSettings().canary_min_interval_sec
NOW = 10_000.0
ABNORMAL = EndpointStatus.ABNORMAL
ON_CANARY = Cause(RunReason.FAULT, "canary: no answer within 30 s", endpoint_abnormal=True, canary=True)


def instance(number: int, *, model: str = "llama-70b", namespace: str = "default") -> Instance:
    return serving(job_name=f"job-{number}", model_name=model, namespace=namespace)


def begun(number: int, ago: float, **fields: str) -> Begun:
    of = instance(number, **fields)
    return Begun(of.key, of.model, NOW - ago)


def waits(recent: Recent, who: Instance, *ahead: int, interval: float = INTERVAL) -> float | None:
    """For how long."""
    keys = [InstanceKey("default", f"job-{number}") for number in ahead]
    found = put_off(recent, who, keys, NOW, interval)
    return found.until - NOW if found else None


# --- how long ---------------------------------------------------------------------------------------------------------

ME = instance(9)


@pytest.mark.parametrize(
    "recent, ahead, expected",
    [
        pytest.param((), (), None, id="nobody was"),
        pytest.param((begun(1, 0),), (), 300, id="at the same moment"),
        pytest.param((begun(1, 299),), (), 1, id="just within"),
        pytest.param((begun(1, 300),), (), None, id="just over"),
        pytest.param((begun(1, 290), begun(2, 10)), (), 290, id="the last one counts"),
        pytest.param((begun(9, 10),), (), None, id="itself: that is its budget's"),
        pytest.param((begun(1, 100), begun(9, 10)), (), 200, id="another and itself"),
        pytest.param((begun(1, 0, model="other"),), (), None, id="of another model"),
        pytest.param((begun(1, 0, namespace="other"),), (), None, id="of another tenant"),
        pytest.param((), (1,), 300, id="one waits for longer"),
        pytest.param((begun(1, 100),), (2, 3), 800, id="each of those before it takes its turn"),
        pytest.param((begun(1, 1000),), (2,), 300, id="a turn that was not taken is not kept"),
    ],
)
def test_how_long_an_instance_is_put_off(recent: Recent, ahead: tuple[int, ...], expected: float | None) -> None:
    assert waits(recent, ME, *ahead) == expected


def test_those_without_a_name_are_of_one_model_as_routers_see_them() -> None:
    assert waits((begun(1, 0, model=""),), instance(9, model="")) == 300
    assert waits((begun(1, 0, model=""),), ME) is None


def test_an_interval_of_nothing_puts_nobody_off() -> None:
    assert waits((begun(1, 0),), ME, 2, 3, interval=0) is None


def test_it_says_for_whom_and_by_which_setting() -> None:
    found = put_off((begun(1, 12),), ME, [InstanceKey("default", "job-2")], NOW, INTERVAL)
    assert found is not None
    assert found.why == (
        "default/job-1 was relaunched on its canary alone 12 s ago, default/job-2 goes first,"
        " of one model only one is in 300 s (canary_min_interval_sec)"
    )


def test_what_puts_nobody_off_any_more_is_forgotten() -> None:
    recent = noted((begun(1, 301), begun(2, 10), begun(3, 100)), begun(3, 0), INTERVAL)
    assert [each.instance.job_name for each in recent] == ["job-2", "job-3"]


# --- the run that waits -----------------------------------------------------------------------------------------------


def waiting(cause: Cause = ON_CANARY, **fields: object) -> Drive:
    """All have answered, member 1's engine is stuck, and another instance of the model was just relaunched so."""
    drive = Drive.open(serving(), replace(cause, reporter=serving().members[1].key), **fields)  # type: ignore[arg-type]
    drive.run = replace(drive.run, put_off=PutOff(drive.now + 300, "another was"))
    drive.heartbeat(1, ABNORMAL, epoch=4, freeze_remaining_sec=60.0)
    answer_probes(drive)
    assert drive.run.step is RunStep.PUT_OFF
    return drive


def answer_probes(drive: Drive) -> None:
    """Member 1 alone is stuck."""
    for index, status in enumerate([EndpointStatus.NORMAL, ABNORMAL]):
        if drive.asked(index) == "probe":
            drive.answer(index, seen(drive.run.instance, drive.key(index), drive.now, status))


def test_it_touches_nobody_asks_how_they_are_and_gives_its_turn_to_another() -> None:
    drive = waiting()
    assert not plan.has_turn(drive.run)
    drive.wait(200, heard=(0, 1))
    assert {word for _, word in drive.sent()} == {"probe"}
    assert drive.run.budget.runs == 0


def test_people_are_told_why_and_for_how_long_and_when_it_is_over() -> None:
    drive = waiting()
    words = "canary: no answer within 30 s; put off for 300 s: another was"
    told = [action for action in drive.actions if isinstance(action, Journal | InstanceInactive)]
    assert [action.reason for action in told[-2:]] == [words, words]
    drive.run = replace(drive.run, put_off=None)
    drive.step(Tick())
    last = [action.reason for action in drive.actions if isinstance(action, InstanceInactive)][-1]
    assert last == ON_CANARY.text


def test_it_wants_its_turn_when_the_time_has_come_and_then_asks_anew() -> None:
    drive = waiting()
    assert plan.deadline(replace(drive.run, members={})) == drive.now + 300
    assert not plan.wants_turn(drive.run)
    drive.run = replace(drive.run, put_off=None)
    assert plan.wants_turn(drive.run)
    drive.step(TurnCame())
    assert drive.run.step is RunStep.PROBE
    drive.to(RunStep.PREPARE)
    assert canary.begun_at(drive.run) == drive.now


def test_a_turn_that_comes_too_late_because_another_was_quicker_is_given_back() -> None:
    drive = waiting()
    drive.step(TurnCame())
    assert drive.run.step is RunStep.PUT_OFF


def test_one_that_recovers_while_it_waits_is_not_touched() -> None:
    drive = waiting()
    drive.heartbeat(1, epoch=4)
    assert drive.run.step is RunStep.CLEANUP
    drive.answer_all()
    assert drive.run.outcome is Outcome.RECOVERED_ITSELF
    assert [word for _, word in drive.sent() if word != "probe"] == ["abort"], "its freeze is over"
    assert canary.begun_at(drive.run) is None


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("probe_derived", [False, True])
def test_anything_else_that_fails_is_not_held_back(index: int, probe_derived: bool) -> None:
    drive = waiting()
    actions = drive.step(Fault(drive.key(index), 4, "killed by SIGKILL", probe_derived=probe_derived))
    kept = [action.record for action in actions if isinstance(action, Journal)]
    assert not any(row.cause.canary for row in kept), "another life would put it off"
    assert kept[0].step is RunStep.PUT_OFF
    drive.to(RunStep.PREPARE)
    assert drive.run.cause.text == "killed by SIGKILL"
    assert canary.begun_at(drive.run) is None, "and it puts nobody off"


def test_another_canary_of_the_gang_is_no_more_than_a_canary() -> None:
    drive = waiting()
    drive.step(Fault(drive.key(0), 4, "no answer", probe_derived=True, canary=True))
    assert drive.run.step is RunStep.PUT_OFF


def test_a_report_of_an_epoch_that_is_over_changes_nothing() -> None:
    drive = waiting()
    drive.step(Fault(drive.key(0), 3, "killed by SIGKILL"))
    assert drive.run.step is RunStep.PUT_OFF


def test_a_device_that_is_gone_goes_to_phase_two_at_once() -> None:
    drive = waiting()
    drive.step(Fault(drive.key(1), 4, "XID 79", hardware=True))
    assert drive.run.step is RunStep.PHASE2


def test_a_lost_member_is_waited_for_and_then_all_start_without_waiting_for_others() -> None:
    drive = waiting(settings=REJOIN)
    drive.new_boot(1)
    assert drive.run.step is RunStep.REJOIN
    drive.run = replace(drive.run, put_off=PutOff(drive.now + 300, "another was"))
    assert not canary.is_to_begin(drive.run.cause, drive.run)
    drive.run = replace(drive.run, put_off=None)
    drive.to(RunStep.START)
    assert canary.begun_at(drive.run) is None


def test_a_member_that_leaves_ends_it() -> None:
    drive = waiting()
    drive.heartbeat(0, epoch=4, leaving=True)
    assert "is leaving: draining" in drive.run.message


@pytest.mark.parametrize("kind", [CancelKind.ABORT, CancelKind.PREEMPT, CancelKind.DELETED, CancelKind.OVERTAKEN])
def test_it_can_be_ended_and_whoever_is_frozen_is_told(kind: CancelKind) -> None:
    drive = waiting()
    drive.cancel(kind)
    drive.answer_all()
    assert drive.run.outcome is Outcome.ABORTED
    assert drive.sent("abort") == [(drive.key(1).node, "abort")]


def test_the_next_life_of_the_controller_asks_all_and_lets_it_wait_on_however_long_it_was() -> None:
    drive = waiting()
    kept = record(drive.run, drive.now)
    resumed = Drive.resume(serving(), kept, now=drive.now + 2 * SETTINGS.start_hard_cap_sec)
    assert resumed.run.step is RunStep.PROBE
    assert canary.is_to_begin(resumed.run.cause, resumed.run)
    resumed.run = replace(resumed.run, put_off=PutOff(resumed.now + 200, "another was"))
    answer_probes(resumed)
    assert resumed.run.step is RunStep.PUT_OFF


def test_one_that_is_stuck_again_in_its_start_is_its_budgets_and_puts_others_off() -> None:
    drive = Drive.open(serving(), ON_CANARY)
    drive.to(RunStep.AWAIT)
    drive.step(Fault(drive.key(1), 5, "no answer", probe_derived=True, canary=True))
    closed = drive.closed()
    assert closed is not None
    assert closed.follow is not None
    assert (closed.follow.canary, closed.follow.follows) == (True, True)
    follow = Drive.open(serving(epoch=5), closed.follow)
    assert not canary.is_to_begin(follow.run.cause, follow.run)
    follow.to(RunStep.PREPARE)
    assert canary.begun_at(follow.run) is not None


def test_one_that_dies_again_is_no_canarys() -> None:
    drive = Drive.open(serving(), ON_CANARY)
    drive.to(RunStep.AWAIT)
    drive.step(Fault(drive.key(1), 5, "killed by SIGKILL"))
    closed = drive.closed()
    assert closed is not None
    assert closed.follow is not None
    assert not closed.follow.canary


def test_a_heartbeat_that_overtook_the_report_is_explained_by_it() -> None:
    drive = Drive.open(serving(), Cause(RunReason.FAULT, "endpoint 1 is abnormal", endpoint_abnormal=True))
    drive.step(Fault(drive.key(1), 4, ON_CANARY.text, probe_derived=True, canary=True))
    assert canary.is_to_begin(drive.run.cause, drive.run)


# --- what always holds ------------------------------------------------------------------------------------------------


@dataclass
class Told(Drive):
    """A run that is told of the fleet before each event, as the shells tell it."""

    fleet: Fleet = field(default_factory=lambda: Fleet(FleetSettings(max_phase2_fraction=1)))
    others: Mapping[int, Drive] = field(default_factory=dict)

    def step(self, event: Event) -> tuple[Action, ...]:
        before = self.fleet.told(self.run, 10, self._ahead, self.now)
        self.run, actions = plan.step(before, event, self.now)
        self.fleet.note(before, self.run, self.now)
        self._keep(actions)
        return (*actions, *self.step(TurnCame())) if plan.wants_turn(self.run) else actions

    def _ahead(self) -> list[InstanceKey]:
        runs = [other.run for other in self.others.values()]
        return [
            run.instance.key
            for run in runs
            if canary.is_to_begin(run.cause, run) and run.instance.model == self.run.instance.model
            if (run.opened_at, run.id) < (self.run.opened_at, self.run.id)
        ]


@dataclass
class Many:
    """Instances of two models, whose engines are found stuck, or die."""

    fleet: Fleet = field(default_factory=lambda: Fleet(FleetSettings(max_phase2_fraction=1)))
    now: float = NOW
    open: dict[int, Told] = field(default_factory=dict)
    """Those that have not begun."""
    began: list[tuple[float, int, bool]] = field(default_factory=list)
    """When, who, and whether on its canary alone."""

    def fails(self, number: int, cause: Cause) -> None:
        if number in self.open:
            told = self.open[number]
            self._do(number, Fault(told.key(1), 4, cause.text, cause.endpoint_abnormal, cause.canary))
            return
        gang, run_id = instance(number, model=f"model-{number % 2}"), f"run-{len(self.began):03}-{number}"
        drive = Drive.open(gang, cause, now=self.now, run_id=run_id)
        self.open[number] = Told(drive.run, self.now, drive.actions, drive.pending, self.fleet, self.open)
        self.goes_on(number)

    def goes_on(self, number: int) -> None:
        """Its time has come if that is so."""
        self._do(number, Tick())

    def _do(self, number: int, event: Event) -> None:
        """And whatever it asks is answered."""
        told = self._at_now(number)
        told.step(event)
        while told.run.step in canary.ASKING and told.pending:
            answer_probes(told)
        if told.run.step not in canary.ASKING:
            self.began.append((self.now, number, canary.begun_at(told.run) is not None))
            del self.open[number]

    def _at_now(self, number: int) -> Told:
        told = self.open[number]
        told.now = self.now
        return told


MOVES = st.one_of(
    st.tuples(st.sampled_from(["stuck", "stuck", "dead", "goes on", "goes on"]), st.integers(0, 3)),
    st.tuples(st.just("later"), st.sampled_from([0, 1, 50, 150, 299, 300])),
)


@settings(deadline=None)
@given(st.lists(MOVES, min_size=5, max_size=20))
def test_never_are_two_of_a_model_relaunched_within_the_interval_on_their_canary_alone(
    moves: list[tuple[str, int]],
) -> None:
    many = Many()
    for what, number in moves:
        if what == "stuck":
            many.fails(number, ON_CANARY)
        elif what == "dead":
            many.fails(number, Cause(RunReason.FAULT, "killed by SIGKILL"))
        elif what == "later":
            many.now += number
        elif number in many.open:
            many.goes_on(number)
    # Nobody waits for ever.
    for model in range(2):
        waiting_still = [number for number in many.open if number % 2 == model]
        for _ in waiting_still:
            many.now += INTERVAL
            for number in list(many.open):
                many.goes_on(number)
    assert many.open == {}
    on_canary = [(at, number) for at, number, alone in many.began if alone]
    for at, number in on_canary:
        near = {other for then, other in on_canary if abs(then - at) < INTERVAL and other % 2 == number % 2}
        assert near == {number}
