"""How an engine parts from its requests, move by move; and what pause, drain and leave make of its status."""

from __future__ import annotations

import pytest

from supervisor.engine.model import progress
from supervisor.engine.model.draining import Draining, DrainSettings, Over, StopEngine, Wait, next_move
from supervisor.engine.model.status import EngineFacts, judge
from supervisor.wire import EndpointStatus, Step
from tests.support.operations import Rig, prepare, rig_at

SETTINGS = DrainSettings(delay_sec=5.0, drain_sec=30.0)
BEGAN = 100.0
FIRST = Draining(began=BEGAN, running=True, takes_requests=True, released=False)
OTHER = Draining(began=BEGAN, running=True, takes_requests=False, released=False)
RELEASED = Draining(began=BEGAN, running=True, takes_requests=False, released=True)
ENDED = Draining(began=BEGAN, running=False, takes_requests=True, released=False)


@pytest.mark.parametrize(
    "draining, after_sec, kind, detail",
    [
        (FIRST, 0.0, Wait, BEGAN + 5),
        (FIRST, 4.9, Wait, BEGAN + 5),
        (FIRST, 5.0, StopEngine, 30.0),
        (FIRST, 99.0, StopEngine, 30.0),
        (OTHER, 0.0, Wait, BEGAN + 35),
        (OTHER, 34.9, Wait, BEGAN + 35),
        (OTHER, 35.0, Over, None),
        (RELEASED, 0.0, Over, None),
        (ENDED, 0.0, Over, None),
    ],
)
def test_moves(draining: Draining, after_sec: float, kind: type, detail: float | None) -> None:
    move = next_move(draining, SETTINGS, BEGAN + after_sec)
    assert type(move) is kind
    assert move.reason
    match move:
        case Wait(until, _):
            assert until == detail
        case StopEngine(grace_sec, _):
            assert grace_sec == detail


def test_without_delay_and_drain_nothing_is_waited_for() -> None:
    at_once = DrainSettings(delay_sec=0.0, drain_sec=0.0)
    assert isinstance(next_move(FIRST, at_once, BEGAN), StopEngine)
    assert isinstance(next_move(OTHER, at_once, BEGAN), Over)


READY, GONE = EngineFacts(ready=True), EngineFacts(ready=False)


def status(rig: Rig, facts: EngineFacts) -> tuple[EndpointStatus, str | None]:
    judged = judge(rig.state, facts, rig.now)
    return judged.status, judged.counted


def test_paused_is_out_of_routing_and_not_counted_and_resumes() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("preStop"))
    assert status(rig, READY) == (EndpointStatus.PAUSED, None)
    rig.feed(progress.Resumed())
    assert status(rig, READY) == (EndpointStatus.NORMAL, None)


def test_while_a_paused_engine_ends_it_is_paused() -> None:
    """Were it `initial`, nobody would wait for the requests that it still finishes."""
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("draining"))
    assert status(rig, GONE) == (EndpointStatus.PAUSED, None)


def test_a_paused_engine_that_dies_is_dead() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("preStop"))
    rig.died()
    assert status(rig, GONE)[0] is EndpointStatus.ABNORMAL


def test_a_drained_engine_is_missed_by_nobody_until_somebody_wants_it_back() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("draining: a member leaves"), progress.Drained())
    assert status(rig, GONE) == (EndpointStatus.PAUSED, None)
    rig.feed(progress.Resumed())
    assert rig.state.dead, "reported like a death, and so relaunched with its gang"


def test_who_leaves_does_not_resume() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("draining"), progress.Leaving("SIGTERM"), progress.Resumed())
    assert rig.state.paused == "draining"
    assert status(rig, READY) == (EndpointStatus.PAUSED, None)


def test_a_relaunch_ends_a_pause_and_a_drain() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Paused("preStop"), progress.Drained())
    rig.accepted(prepare(2, "run-2"))
    assert (rig.state.paused, rig.state.drained) == (None, False)
    rig.feed(progress.Abandoned("deleted"))
    assert rig.state.paused is None
