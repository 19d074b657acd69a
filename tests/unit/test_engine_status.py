"""The status table of design 3, row by row: what is on the wire, and what the arbiter counts (seed S15, S22)."""

from __future__ import annotations

import itertools

import pytest

from supervisor.engine.model import progress
from supervisor.engine.model.commands import Command
from supervisor.engine.model.status import EngineFacts, Judgement, judge
from supervisor.wire import EndpointStatus, Step
from tests.support.operations import STEPS, Rig, abort, placement, prepare, restart, rig_at

READY = EngineFacts(ready=True)
NOT_READY = EngineFacts(ready=False)
SICK = EngineFacts(ready=True, unhealthy="liveness failed 3 times")
SICK_IN_GRACE = EngineFacts(ready=True, unhealthy="liveness failed 3 times", in_grace=True)
ALL_FACTS = (READY, NOT_READY, SICK, SICK_IN_GRACE, EngineFacts(ready=False, unhealthy="old engine", in_grace=False))


def judged(rig: Rig, facts: EngineFacts) -> Judgement:
    return judge(rig.state, facts, rig.now)


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [Step.STARTING, Step.LOADING])
@pytest.mark.parametrize("facts", ALL_FACTS)
def test_from_spawn_to_handshake_it_is_initial_whatever_a_probe_says(step: Step, facts: EngineFacts) -> None:
    """F2: an `abnormal` kept through a load would kill a loading engine; S22."""
    assert judged(rig_at(step), facts) == Judgement(EndpointStatus.INITIAL)


def test_ready_is_normal() -> None:
    assert judged(rig_at(Step.DONE), READY) == Judgement(EndpointStatus.NORMAL)


@pytest.mark.seed("S15")
def test_unhealthy_is_abnormal_and_counted() -> None:
    assert judged(rig_at(Step.DONE), SICK) == Judgement(EndpointStatus.ABNORMAL, counted="liveness failed 3 times")


@pytest.mark.seed("S15")
def test_grace_keeps_a_probe_from_being_counted_but_not_from_being_seen() -> None:
    assert judged(rig_at(Step.DONE), SICK_IN_GRACE) == Judgement(EndpointStatus.ABNORMAL, counted=None)


@pytest.mark.seed("S15")
@pytest.mark.parametrize("facts", ALL_FACTS)
def test_a_dead_process_is_counted_grace_or_not(facts: EngineFacts) -> None:
    """F16: death inside the grace period."""
    rig = rig_at(Step.DONE)
    rig.died()
    assert judged(rig, facts) == Judgement(EndpointStatus.ABNORMAL, counted="the engine process is dead")


@pytest.mark.seed("S22")
@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING, Step.PREPARED])
@pytest.mark.parametrize("facts", ALL_FACTS)
def test_while_engines_are_replaced_it_waits_whatever_the_old_engine_shows(step: Step, facts: EngineFacts) -> None:
    """F1: the healthy member leaves NORMAL when prepare is accepted, not when its engine is gone."""
    assert judged(rig_at(step), facts) == Judgement(EndpointStatus.WAIT2START)


@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING])
def test_a_stop_that_outlives_its_freeze_is_still_no_failure(step: Step) -> None:
    rig = rig_at(step)
    rig.wait(60)
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.WAIT2START)


@pytest.mark.parametrize("looked_at_the_clock", [True, False])
def test_prepared_and_thawed_is_counted(looked_at_the_clock: bool) -> None:
    rig = rig_at(Step.PREPARED)
    rig.now += 60
    if looked_at_the_clock:
        rig.feed(progress.Tick())
    judgement = judged(rig, NOT_READY)
    assert judgement.status is EndpointStatus.ABNORMAL
    assert judgement.counted == "prepared, but the freeze is over and nobody started it"


@pytest.mark.parametrize("facts", ALL_FACTS)
def test_a_failed_relaunch_is_counted_with_its_reason(facts: EngineFacts) -> None:
    rig = rig_at(Step.STARTING)
    rig.broke("port 10000 is taken by pid 4711")
    assert judged(rig, facts) == Judgement(EndpointStatus.ABNORMAL, counted="port 10000 is taken by pid 4711")


@pytest.mark.parametrize("facts", ALL_FACTS)
def test_an_aborted_relaunch_is_counted(facts: EngineFacts) -> None:
    judgement = judged(rig_at(Step.ABORTED), facts)
    assert judgement == Judgement(EndpointStatus.ABNORMAL, counted="aborted while prepared")


@pytest.mark.parametrize(
    "event", [progress.Held("an operator"), progress.Leaving("SIGTERM")], ids=["held", "draining or leaving"]
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("facts", ALL_FACTS)
def test_on_purpose_is_paused_in_every_step(event: progress.Event, step: Step, facts: EngineFacts) -> None:
    rig = rig_at(step)
    rig.feed(event)
    assert judged(rig, facts) == Judgement(EndpointStatus.PAUSED)


def test_a_death_after_the_hold_is_no_death() -> None:
    """F23: an operator stopped one rank; the exit that follows is asked for."""
    rig = rig_at(Step.DONE)
    rig.feed(progress.Held("an operator"))
    rig.died()
    assert not rig.state.dead
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.PAUSED)
    rig.feed(progress.Released())
    assert judged(rig, NOT_READY).counted is not None, "from now on its gang lacks it"


@pytest.mark.parametrize("facts", ALL_FACTS)
def test_who_was_never_started_waits_and_is_not_counted(facts: EngineFacts) -> None:
    assert judged(rig_at(Step.IDLE), facts) == Judgement(EndpointStatus.WAIT2START)


def test_a_dead_engine_keeps_its_status_in_a_freeze_whose_ticks_the_arbiter_does_not_count() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.report_accepted(run_id="run-2")
    assert rig.is_frozen()
    assert judged(rig, READY).status is EndpointStatus.ABNORMAL


# --- nothing of one epoch leaks into the next ---------------------------------------------------------------------


@pytest.mark.seed("S22")
@pytest.mark.parametrize("command", [prepare(2, "run-2"), restart(2, "run-2"), restart(), placement(epoch=2)])
def test_a_new_epoch_takes_the_endpoint_out_of_normal_at_once(command: Command) -> None:
    """F1: a healthy member that kept `normal` would let the run be declared done before it began."""
    rig = rig_at(Step.DONE)
    assert judged(rig, READY).status is EndpointStatus.NORMAL
    rig.accepted(command)
    assert judged(rig, READY) == Judgement(EndpointStatus.WAIT2START)


@pytest.mark.seed("S22")
def test_normal_comes_back_with_the_new_engine_s_handshake_and_not_before() -> None:
    rig = rig_at(Step.STOPPING)
    seen = []
    for go in (rig.stopped, rig.clean, lambda: rig.accepted(restart(3, "run-3")), rig.stopped, rig.clean, rig.spawned):
        seen.append(judged(rig, READY).status)
        go()
    seen.append(judged(rig, READY).status)
    assert EndpointStatus.NORMAL not in seen
    rig.loaded()
    assert judged(rig, READY).status is EndpointStatus.NORMAL


@pytest.mark.seed("S22")
def test_a_death_of_the_old_epoch_is_forgotten_by_the_new_one() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.accepted(restart(2, "run-2"))
    for go in (rig.stopped, rig.clean, rig.spawned, rig.loaded):
        assert judged(rig, NOT_READY).counted is None
        go()
    assert judged(rig, READY).status is EndpointStatus.NORMAL


def test_a_local_engine_is_not_counted_in_its_back_off() -> None:
    """RestartWith = "local": the unit's own policy and start limit decide, not the arbiter."""
    rig = rig_at(Step.IDLE)
    rig.feed(progress.StartedLocally(placement(instance_id=0, epoch=1), 1))
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.INITIAL)
    rig.loaded()
    assert judged(rig, READY) == Judgement(EndpointStatus.NORMAL)
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.INITIAL), "gone, and about to be started again"
    rig.feed(progress.StartedLocally(placement(instance_id=0, epoch=2), 2))
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.INITIAL)
    assert rig.state.epoch == 2


@pytest.mark.parametrize("step, facts", list(itertools.product(STEPS, ALL_FACTS)))
def test_only_abnormal_endpoints_are_ever_counted(step: Step, facts: EngineFacts) -> None:
    judgement = judged(rig_at(step), facts)
    assert judgement.counted is None or judgement.status is EndpointStatus.ABNORMAL


def test_an_abort_while_stopping_is_counted_only_once_the_stop_is_finished() -> None:
    rig = rig_at(Step.STOPPING)
    rig.accepted(abort("run-2"))
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.WAIT2START)
    rig.stopped()
    rig.clean()
    assert judged(rig, NOT_READY) == Judgement(EndpointStatus.ABNORMAL, counted="aborted while stopping")
