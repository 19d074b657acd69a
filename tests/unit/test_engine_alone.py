"""An engine that is alone in its instance and dies while nobody can be told (design 3, Arbiter)."""

from __future__ import annotations

import pytest

from supervisor.engine.model import progress
from supervisor.wire import Step
from tests.support.operations import SETTINGS, SWITCHED_OFF, Rig, placement, prepare

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
