"""An operator holds the whole gang: what one supervisor makes of it, in every step, and how it ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.engine.model import progress
from supervisor.engine.model.operation import HoldEngines
from supervisor.engine.model.status import EngineFacts, Judgement, judge
from supervisor.wire import EndpointStatus, ErrorCode, StartCmdMsg, Step
from tests.support.operations import (
    STEPS,
    SWITCHED_OFF,
    Rig,
    abort,
    hold,
    placement,
    prepare,
    rig_at,
    start,
    stop,
)

PAUSED = Judgement(EndpointStatus.PAUSED)
READY = EngineFacts(ready=True)


def told_anew(rig: Rig, epoch: int) -> StartCmdMsg:
    return placement(epoch=epoch, instance_id=rig.state.instance_id or 9)


@pytest.mark.parametrize("step", STEPS)
def test_it_stops_whatever_is_going_on_and_is_no_failure_however_long(step: Step) -> None:
    rig = rig_at(step)
    rig.accepted(hold(9, "run-9", reason="maintenance"))
    assert isinstance(rig.actions[-1], HoldEngines)
    assert rig.state.step is Step.STOPPING
    rig.stopped()
    assert (rig.state.step, rig.state.epoch, rig.state.freeze) == (Step.HELD, 9, None)
    rig.wait(100_000)
    assert judge(rig.state, READY, rig.now) == PAUSED


def test_the_same_hold_again_joins_and_an_older_one_is_stale() -> None:
    rig = rig_at(Step.HELD)
    before = rig.state
    rig.accepted(hold(2, "run-2"))
    assert rig.refused(hold(2, "run-4")) is ErrorCode.STALE_EPOCH
    assert rig.state == before


def test_the_next_prepare_ends_it_and_is_a_first_start() -> None:
    """No engine is parted from, so there is no banner and no switch that forbids it."""
    rig = rig_at(Step.HELD, SWITCHED_OFF)
    relaunches = rig.state.relaunch_count
    rig.accepted(prepare(4, "run-4", start=told_anew(rig, 4)))
    rig.stopped()
    assert rig.state.step is Step.CLEANING
    rig.clean()
    rig.accepted(start(4, "run-4"))
    assert rig.starts[-1].relaunch is None
    assert rig.state.relaunch_count == relaunches


def test_nothing_starts_by_itself_and_no_start_is_taken() -> None:
    rig = rig_at(Step.HELD)
    assert rig.refused(start(1, "run-1")) is ErrorCode.STALE_EPOCH
    assert rig.refused(start(2, "run-2")) is ErrorCode.NOT_PREPARED
    rig.feed(progress.ControllerAbsent(placement(), "there was none for 30 s"))
    assert rig.state.step is Step.HELD


def test_it_belongs_to_no_instance_so_that_a_controller_without_memory_may_take_it_in() -> None:
    rig = rig_at(Step.HELD)
    assert rig.state.instance_id == 0
    assert not rig.state.ever_started


def test_it_takes_over_the_hold_of_one_rank() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Held("ana"))
    assert rig.refused(prepare(2, "run-2")) is ErrorCode.HELD
    rig.accepted(hold(2, "run-2"))
    rig.stopped()
    rig.accepted(prepare(3, "run-3", start=told_anew(rig, 3)))


def test_a_late_death_and_a_late_abort_change_nothing() -> None:
    rig = rig_at(Step.HELD)
    before = rig.state
    rig.died()
    assert rig.state == before
    assert rig.accepted(abort("run-2")).will_exit is False
    assert judge(rig.state, READY, rig.now) == PAUSED


def test_aborted_while_it_stops_it_is_aborted() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(hold(2, "run-2"))
    rig.accepted(abort("run-2"))
    rig.stopped()
    assert rig.state.step is Step.ABORTED


def test_an_engine_that_cannot_be_stopped_is_a_failure() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(hold(2, "run-2"))
    rig.broke("pid 4711 survives")
    assert rig.state.step is Step.FAILED
    assert judge(rig.state, READY, rig.now).counted == "pid 4711 survives"


def test_a_held_supervisor_can_be_told_to_leave() -> None:
    rig = rig_at(Step.HELD)
    assert rig.accepted(stop(instance_id=12, epoch=5)).will_exit is True


# --- one endpoint of several, held here alone -----------------------------------------------------------------------


def two_endpoints() -> Rig:
    rig = Rig()
    (endpoint,) = placement().endpoints
    rig.accepted(placement(epoch=1, endpoints=(replace(endpoint, id=2), replace(endpoint, id=3)), node_rank=1))
    rig.stopped()
    rig.clean()
    rig.spawned()
    rig.loaded()
    return rig


def test_only_the_endpoint_that_was_stopped_is_paused() -> None:
    rig = two_endpoints()
    rig.feed(progress.Held("ana", number=1))
    judged = [judge(rig.state, EngineFacts(ready=True, endpoint_id=id_), rig.now).status for id_ in (2, 3)]
    assert judged == [EndpointStatus.NORMAL, EndpointStatus.PAUSED]
    rig.feed(progress.EngineDied("asked for", 3), progress.EngineDied("killed by SIGKILL", 2))
    assert rig.state.dead == {2}


def test_each_is_released_for_itself() -> None:
    rig = two_endpoints()
    rig.feed(progress.Held("ana", number=0), progress.Held("ben", number=1), progress.Released(number=1))
    assert (set(rig.state.held), set(rig.state.dead)) == ({0}, {3})
    assert rig.refused(prepare(2, "run-2")) is ErrorCode.HELD
    rig.feed(progress.Released(number=0))
    assert (rig.state.held_by, set(rig.state.dead)) == (None, {2, 3})
