"""What effects, deaths and the clock do to the operation, in every step; "nothing" is written down too."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from supervisor.engine.model import progress
from supervisor.engine.model.operation import OUT_OF_SERVICE_STEPS, AnnounceRelaunch
from supervisor.wire import Recovery, StartCmdMsg, Step
from tests.support.operations import (
    BUSY,
    STEPS,
    Rig,
    abort,
    placement,
    prepare,
    restart,
    rig_at,
    start,
)

EFFECTS = (progress.Stopped, progress.Clean, progress.Spawned, progress.Loaded)

Effect = Callable[[int], progress.Event]
AFTER: dict[tuple[Step, Effect], Step] = {
    (Step.STOPPING, progress.Stopped): Step.CLEANING,
    (Step.CLEANING, progress.Clean): Step.PREPARED,
    (Step.STARTING, progress.Spawned): Step.LOADING,
    (Step.STARTING, progress.Loaded): Step.DONE,
    (Step.LOADING, progress.Loaded): Step.DONE,
}
"""Everything else is no news."""

BROKEN_BY = (Step.STOPPING, Step.CLEANING, Step.STARTING, Step.LOADING)


@pytest.mark.parametrize("step, effect", list(itertools.product(STEPS, EFFECTS)))
def test_an_effect_moves_the_step_it_belongs_to_and_no_other(step: Step, effect: Effect) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.now += 5
    rig.feed(effect(rig.state.serial))
    expected = AFTER.get((step, effect))
    if expected is None:
        assert rig.state == before
    else:
        assert rig.state.step is expected
        assert rig.state.since == rig.now


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("effect", [*EFFECTS, lambda serial: progress.Broke(serial, "overtaken")])
@pytest.mark.parametrize("off", [-1, 1])
def test_what_another_operation_s_effects_say_is_ignored(step: Step, effect: Effect, off: int) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.feed(effect(rig.state.serial + off))
    assert rig.state == before


@pytest.mark.parametrize("step", STEPS)
def test_effects_that_break_fail_the_operation_they_belong_to(step: Step) -> None:
    """Left in any other step, an effect's scope has nothing to say; in PREPARED none runs."""
    rig = rig_at(step)
    before = rig.state
    rig.broke("pid 4711 survived SIGKILL")
    if step not in BROKEN_BY:
        assert rig.state == before
        return
    assert rig.state.step is Step.FAILED
    assert rig.state.error == "pid 4711 survived SIGKILL"
    assert rig.state.freeze is None
    assert not rig.state.start_when_prepared
    assert rig.reports[-1].level == "error"
    assert rig.reports[-1].message == f"relaunch failed while {step}: pid 4711 survived SIGKILL; unfrozen"


def test_the_first_start_of_a_container_that_fails_is_called_no_relaunch() -> None:
    rig = rig_at(Step.IDLE)
    rig.accepted(placement(epoch=1))
    rig.stopped()
    rig.broke("the gate is shut")
    assert rig.reports[-1].message == "start failed while cleaning: the gate is shut; unfrozen"
    rig = rig_at(Step.IDLE)
    rig.accepted(placement(epoch=1))
    rig.stopped()
    rig.clean()
    rig.spawned()
    rig.state = replace(rig.state, freeze=None)
    rig.broke("killed by SIGILL")
    assert rig.reports[-1].message == "start failed while loading: killed by SIGILL"


def test_effects_that_break_after_an_abort_fail_all_the_same() -> None:
    rig = rig_at(Step.STOPPING)
    rig.accepted(abort("run-2"))
    rig.broke()
    assert rig.state.step is Step.FAILED
    assert not rig.state.aborting


def test_the_end_of_the_stop_s_scope_does_not_fail_the_start_that_has_overtaken_it() -> None:
    """Every effect's scope says that it was left; a restart's start has begun by then."""
    rig = rig_at(Step.DONE)
    rig.accepted(restart())
    rig.stopped()
    stop_serial = rig.state.serial
    rig.clean()
    assert rig.state.step is Step.STARTING
    rig.feed(progress.Broke(stop_serial, "left"))
    assert rig.state.step is Step.STARTING


# --- death ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_death_by_step(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.died()
    if step in (*OUT_OF_SERVICE_STEPS, Step.HELD):
        assert rig.state == before, "it was to be stopped anyway (S14)"
    elif step in (Step.STARTING, Step.LOADING):
        assert rig.state.step is Step.FAILED
        assert rig.state.dead
        assert rig.state.freeze is None
        assert rig.state.error == "the engine died while loading: killed by SIGKILL"
    else:
        assert rig.state == replace(before, dead=frozenset({0}))


@pytest.mark.parametrize("event", [progress.Held("an operator"), progress.Leaving("SIGTERM")])
@pytest.mark.parametrize("step", STEPS)
def test_a_death_that_was_asked_for_is_none(event: progress.Event, step: Step) -> None:
    rig = rig_at(step)
    rig.feed(event)
    before = rig.state
    rig.died()
    assert rig.state == before


@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING, Step.STARTING, Step.LOADING])
@pytest.mark.parametrize("leaves", [False, True])
def test_an_engine_that_its_leaving_pod_does_not_let_load_is_no_error(step: Step, leaves: bool) -> None:
    """What cannot be stopped or cleaned is one all the same."""
    rig = rig_at(step)
    if leaves:
        rig.feed(progress.Leaving("SIGTERM"))
    rig.broke()
    assert rig.state.step is Step.FAILED
    expected = "info" if leaves and step in (Step.STARTING, Step.LOADING) else "error"
    assert rig.reports[-1].level == expected


@pytest.mark.parametrize("death_first", [True, False])
def test_a_death_while_loading_and_the_broken_wait_for_it_in_either_order(death_first: bool) -> None:
    rig = rig_at(Step.LOADING)
    for go in (rig.died, rig.broke) if death_first else (rig.broke, rig.died):
        go()
    assert rig.state.step is Step.FAILED
    assert rig.state.dead, "so that it is reported (F15)"


def test_a_death_is_answered_by_the_next_operation() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.accepted(restart())
    assert not rig.state.dead


@pytest.mark.parametrize("step", [Step.STARTING, Step.LOADING])
def test_a_handshake_after_the_failure_comes_too_late(step: Step) -> None:
    rig = rig_at(step)
    rig.died()
    rig.loaded()
    assert rig.state.step is Step.FAILED


# --- hold, release, leave, abandon ------------------------------------------------------------------------------------


def test_hold_and_release() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.report_accepted()
    rig.feed(progress.Held("an operator"))
    assert (rig.state.held_by, set(rig.state.dead), rig.state.freeze) == ("an operator", set(), None)
    rig.feed(progress.Released())
    assert rig.state.held_by is None
    assert rig.state.dead, "its gang runs without it: reported, and relaunched (F23)"


def test_releasing_what_nobody_held_does_nothing() -> None:
    rig = rig_at(Step.DONE)
    before = rig.state
    rig.feed(progress.Released())
    assert rig.state == before


def test_the_first_reason_to_leave_is_kept() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Leaving("SIGTERM"), progress.Leaving("again"))
    assert rig.state.leaving == "SIGTERM"


@pytest.mark.parametrize("step", STEPS)
def test_abandoned_engines_are_as_if_never_started(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.feed(progress.Abandoned("the instance was deleted"))
    after = rig.state
    assert after.step is Step.IDLE
    assert after.freeze is None
    assert not after.ever_started
    assert after.instance_id == 0
    assert (after.epoch, after.term, after.aborted_runs) == (before.epoch, before.term, before.aborted_runs)
    for effect in EFFECTS:
        rig.feed(effect(before.serial))
    rig.broke()
    assert rig.state == after, "nothing in flight for the old engines counts"


def test_an_abandoned_pod_starts_cold_in_a_newer_epoch() -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.Abandoned("the instance was deleted"))
    rig.accepted(placement(instance_id=8))
    rig.stopped()
    rig.clean()
    assert rig.state.epoch == 2
    assert rig.starts[-1].relaunch is None


# --- local starts -----------------------------------------------------------------------------------------------------


def test_a_local_start_counts_as_a_relaunch_from_the_second_on() -> None:
    rig = Rig()
    for epoch in (1, 2, 3):
        rig.feed(progress.StartedLocally(placement(instance_id=0, epoch=epoch), epoch, again=epoch > 1))
        assert rig.state.step is Step.LOADING
        assert rig.state.relaunch_count == epoch - 1
        rig.loaded()
    assert rig.state.epoch == 3
    assert not rig.prepares
    assert not rig.starts


def started_locally(rig: Rig, *endpoints: int, reason: str = "") -> list[int]:
    """One after the other, by a unit that had run before; the numbers of the banners."""
    before = len(rig.actions)
    for endpoint in endpoints:
        epoch = rig.state.epoch + 1
        rig.feed(progress.StartedLocally(two_endpoints(epoch), epoch, endpoint, again=True, reason=reason))
    return [action.relaunch for action in rig.actions[before:] if isinstance(action, AnnounceRelaunch)]


def two_endpoints(epoch: int) -> StartCmdMsg:
    alone = placement(instance_id=0, epoch=epoch)
    return replace(alone, endpoints=tuple(replace(alone.endpoints[0], id=id_) for id_ in (0, 1)))


def standalone_with_two_endpoints() -> Rig:
    rig = Rig()
    for endpoint in (0, 1):
        rig.feed(progress.StartedLocally(two_endpoints(endpoint + 1), endpoint + 1, endpoint))
    rig.loaded()
    return rig


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ready_between", [False, True])
def test_endpoints_that_are_relaunched_as_one_have_one_banner(order: tuple[int, int], ready_between: bool) -> None:
    rig = standalone_with_two_endpoints()
    for number in (1, 2):
        rig.feed(progress.RelaunchedLocally())
        assert started_locally(rig, order[0]) == [number]
        if ready_between:
            rig.loaded()
        assert started_locally(rig, order[1]) == []
    assert rig.state.relaunch_count == 2
    assert started_locally(rig, 0, 1) == [3, 4], "two that die for themselves are two"


def test_one_that_dies_while_the_other_is_yet_to_be_relaunched_is_a_relaunch_of_its_own() -> None:
    rig = standalone_with_two_endpoints()
    rig.feed(progress.RelaunchedLocally())
    assert started_locally(rig, 0) == [1]
    assert started_locally(rig, 0, reason="the engine died in relaunch 1") == [2]
    assert started_locally(rig, 1) == []


def test_the_handshake_of_an_earlier_local_start_is_ignored() -> None:
    rig = Rig()
    rig.feed(progress.StartedLocally(placement(epoch=1), 1))
    old = rig.state.serial
    rig.feed(progress.StartedLocally(placement(epoch=2), 2))
    rig.feed(progress.Loaded(old))
    assert rig.state.step is Step.LOADING


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_tick_before_the_end_changes_nothing(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.wait(59)
    assert rig.state == before


@pytest.mark.parametrize("step", BUSY)
def test_time_alone_ends_the_freeze_and_nothing_else(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.wait(60)
    assert rig.state == replace(before, freeze=None)


# --- whole lives ------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S01")
@pytest.mark.seed("S02")
def test_two_members_relaunch_together_after_the_barrier() -> None:
    """The protocol as one supervisor sees it, on both sides at once."""
    sick, healthy = rig_at(Step.DONE), rig_at(Step.DONE)
    sick.died()
    sick.report_accepted(Recovery.ENGINE_RELAUNCH, "run-2")
    for member in (sick, healthy):
        member.accepted(prepare(2, "run-2"))
    for member in (sick, healthy):
        member.stopped()
        member.clean()
        assert member.state.step is Step.PREPARED
    for member in (sick, healthy):
        member.accepted(start(2, "run-2"))
        member.spawned()
        member.loaded()
        assert member.state.step is Step.DONE
        assert member.state.freeze is None
        assert member.starts[-1].relaunch == 1


@pytest.mark.seed("S01")
def test_a_failed_relaunch_can_be_tried_again() -> None:
    rig = rig_at(Step.FAILED)
    rig.accepted(prepare(3, "run-3"))
    assert (rig.state.step, rig.state.epoch) == (Step.STOPPING, 3), "what the failure left is stopped first"
    rig.stopped()
    rig.clean()
    rig.accepted(start(3, "run-3"))
    rig.spawned()
    rig.loaded()
    assert rig.state.step is Step.DONE
    assert rig.state.error is None
