"""An engine that is alone in its instance and dies while nobody can be told (design 3, Arbiter)."""

from __future__ import annotations

import pytest

from supervisor.engine.model import progress
from supervisor.wire import Step
from tests.support.operations import SETTINGS, SWITCHED_OFF, Rig, placement, prepare, rig_at

LONG = SETTINGS.alone_after_sec


def dead_after(seconds: float, rig: Rig, **fields: object) -> Rig:
    rig.accepted(placement(epoch=1, **fields))
    rig.stopped()
    rig.clean()
    rig.spawned()
    rig.loaded()
    rig.wait(seconds)
    rig.died()
    rig.feed(progress.ReportUndelivered(epoch=1))
    return rig


def test_it_is_relaunched_here_in_a_new_epoch() -> None:
    rig = dead_after(LONG, Rig())
    assert (rig.state.step, rig.state.epoch, rig.state.run_id) == (Step.STOPPING, 2, None)
    rig.stopped()
    rig.clean()
    assert rig.starts[-1].relaunch == 1
    assert rig.starts[-1].placement.epoch == 2
    rig.spawned()
    rig.loaded()
    assert rig.state.step is Step.DONE
    assert rig.state.freeze is None


def test_the_report_that_fails_again_does_not_begin_another() -> None:
    rig = dead_after(LONG, Rig())
    begun = len(rig.prepares)
    rig.feed(progress.ReportUndelivered(epoch=1), progress.ReportUndelivered(epoch=2))
    assert len(rig.prepares) == begun


def test_an_engine_that_dies_again_at_once_is_left_to_the_container_s_restart() -> None:
    rig = dead_after(LONG, Rig())
    for effect in (rig.stopped, rig.clean, rig.spawned, rig.loaded, rig.died):
        effect()
    rig.feed(progress.ReportUndelivered(epoch=2))
    assert rig.state.step is Step.DONE
    assert rig.state.dead


@pytest.mark.parametrize(
    "rig",
    [
        pytest.param(dead_after(LONG - 1, Rig()), id="ready too short"),
        pytest.param(dead_after(LONG, Rig(), nnodes=2), id="a gang needs its controller"),
        pytest.param(dead_after(LONG, Rig(SWITCHED_OFF)), id="the switch is off (S20)"),
    ],
)
def test_it_is_not_relaunched_here(rig: Rig) -> None:
    assert rig.state.step is Step.DONE
    assert rig.state.dead
    assert rig.state.freeze is None


def test_the_controller_that_comes_back_overtakes_it() -> None:
    rig = dead_after(LONG, Rig())
    rig.accepted(prepare(5, "run-5", start=placement(epoch=5)))
    assert (rig.state.epoch, rig.state.run_id) == (5, "run-5")


# --- a start for which no controller has come (design 8, Controller absent) -------------------------------------------

ALONE = placement(instance_id=0)
ABSENT = progress.ControllerAbsent(ALONE, "there was none for 30 s")


def started_alone(rig: Rig) -> Rig:
    rig.feed(ABSENT)
    for effect in (rig.stopped, rig.clean, rig.spawned, rig.loaded):
        effect()
    return rig


def test_an_engine_that_waited_in_vain_is_started_in_the_next_epoch_without_a_banner() -> None:
    rig = started_alone(Rig())
    assert (rig.state.step, rig.state.epoch, rig.state.instance_id) == (Step.DONE, 1, 0)
    assert rig.starts[-1].relaunch is None
    assert rig.state.freeze is None


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.IDLE])
def test_what_was_started_or_prepared_before_is_not_started_alone(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.feed(ABSENT)
    assert rig.state == before


@pytest.mark.parametrize("event", [progress.Held("an operator"), progress.Leaving("SIGTERM")])
def test_who_is_held_or_leaves_is_not_started_alone(event: progress.Event) -> None:
    rig = Rig()
    rig.feed(event, ABSENT)
    assert rig.state.step is Step.IDLE


def test_a_controller_that_comes_while_it_waits_for_its_dependencies_starts_it_itself() -> None:
    rig = Rig()
    rig.feed(ABSENT)
    rig.stopped()
    late = rig.state.serial
    rig.feed(progress.ControllerFound(), progress.Clean(late))
    assert (rig.state.step, rig.state.placement, rig.state.freeze) == (Step.IDLE, None, None)
    rig.accepted(prepare(2, "run-1", start=placement(epoch=2)))
    assert rig.starts == []


@pytest.mark.parametrize("step", Step)
def test_a_controller_that_is_found_changes_nothing_else(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.feed(progress.ControllerFound())
    assert rig.state == before


def test_it_takes_the_number_of_the_instance_that_adopts_it() -> None:
    rig = started_alone(Rig())
    rig.feed(progress.ControllerFound(), progress.Adopted(9))
    assert (rig.state.step, rig.state.instance_id) == (Step.DONE, 9)
    rig.feed(progress.Adopted(10))
    assert rig.state.instance_id == 9
