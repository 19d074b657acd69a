"""The freeze: what begins it, what moves it, and that it ends by itself (seed S11, S12, S13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.model import freeze, progress
from supervisor.engine.model.commands import Command
from supervisor.engine.model.condition import DeviceLost
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.wire import FaultCategory, Recovery, Step
from tests.support.operations import (
    BUSY,
    SETTINGS,
    SWITCHED_OFF,
    Rig,
    abort,
    placement,
    prepare,
    restart,
    rig_at,
    start,
)

LIMITS = FreezeLimits(duration_sec=720.0, silence_sec=60.0)


def dead_rig() -> Rig:
    rig = rig_at(Step.DONE)
    rig.died()
    return rig


def frozen_rig(run_id: str | None = "run-2") -> Rig:
    rig = dead_rig()
    rig.report_accepted(run_id=run_id)
    assert rig.is_frozen()
    return rig


# --- the value ----------------------------------------------------------------------------------------------------


@pytest.mark.seed("S11")
def test_a_freeze_ends_by_silence_first_and_by_its_deadline_at_the_latest() -> None:
    begun = freeze.begin(LIMITS, "run", 100.0)
    assert begun.ends_at() == 160.0
    assert not begun.is_over(159.9)
    assert begun.is_over(160.0)
    assert begun.remaining(150.0) == 10.0
    assert begun.remaining(500.0) == 0.0
    assert begun.why_over(160.0) == "the controller was silent for 60 s"


@pytest.mark.seed("S11")
def test_however_much_the_controller_talks_the_deadline_stands() -> None:
    current = freeze.begin(LIMITS, "run", 0.0)
    for second in range(0, 720, 5):
        current = freeze.hear(current, "run", float(second))
    assert current.ends_at() == 720.0
    assert current.why_over(720.0) == "its time is up"


@pytest.mark.parametrize(
    "owner, heard, restarts",
    [
        ("run", "run", True),
        ("run", "another", False),
        pytest.param("run", None, False, id="a controller that names runs, but not this one"),
        pytest.param(None, None, True, id="a peer that names no runs"),
        pytest.param(None, "run", True, id="the run that a report without one has led to"),
    ],
)
def test_only_its_own_run_restarts_the_silence_clock(owner: str | None, heard: str | None, restarts: bool) -> None:
    begun = freeze.begin(LIMITS, owner, 0.0)
    assert (freeze.hear(begun, heard, 30.0).ends_at() == 90.0) is restarts


@given(
    owner=st.sampled_from([None, "a", "b"]),
    heard=st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.floats(0, 100)), max_size=30),
)
def test_hearing_never_shortens_and_never_passes_the_deadline(
    owner: str | None, heard: list[tuple[str | None, float]]
) -> None:
    current, now = freeze.begin(LIMITS, owner, 0.0), 0.0
    for run_id, gap in heard:
        now += gap
        moved = freeze.hear(current, run_id, now)
        assert current.ends_at() <= moved.ends_at() <= 720.0
        current = moved


# --- what begins it: the answer to a death report -----------------------------------------------------------------


@pytest.mark.seed("S12")
def test_death_alone_does_not_freeze() -> None:
    rig = dead_rig()
    assert not rig.is_frozen()
    assert rig.state.freeze is None


@pytest.mark.seed("S12")
@pytest.mark.parametrize(
    "recovery, frozen",
    [(Recovery.ENGINE_RELAUNCH, True), (Recovery.PENDING, True), (Recovery.NONE, False)],
)
def test_an_accepted_report_freezes_if_a_recovery_will_be_tried(recovery: Recovery, frozen: bool) -> None:
    rig = dead_rig()
    rig.report_accepted(recovery, "run-2")
    assert rig.is_frozen() is frozen
    assert rig.state.step is Step.DONE
    assert rig.reports[-1].level == ("info" if frozen else "warning")


@pytest.mark.seed("S11")
def test_a_freeze_is_longer_by_the_time_in_which_others_go_first_and_no_less_bound_to_be_spoken_of() -> None:
    rig = dead_rig()
    rig.feed(progress.ReportAccepted(rig.state.epoch, Recovery.ENGINE_RELAUNCH, "run-2", wait_sec=900.0))
    limits = SETTINGS.freeze
    assert rig.state.freeze is not None
    assert rig.state.freeze.deadline == rig.now + 900.0 + limits.duration_sec
    assert rig.state.freeze_remaining(rig.now) == limits.silence_sec
    assert rig.reports[-1].message.endswith(
        f"frozen for at most {limits.silence_sec:g} s without a word of it; others go first for 900 s"
    )


@pytest.mark.seed("S13")
@pytest.mark.seed("S20")
@pytest.mark.parametrize("recovery", list(Recovery))
def test_with_the_switch_off_nothing_freezes(recovery: Recovery) -> None:
    rig = rig_at(Step.DONE, SWITCHED_OFF)
    rig.died()
    rig.report_accepted(recovery, "run-2")
    assert rig.state.freeze is None


@pytest.mark.seed("S12")
def test_an_answer_about_an_older_epoch_does_not_freeze() -> None:
    """F15: a second engine's report of the old epoch is answered after this pod has gone on."""
    rig = rig_at(Step.DONE)
    before = rig.state
    rig.feed(progress.ReportAccepted(rig.state.epoch - 1, Recovery.ENGINE_RELAUNCH, "run-2"))
    assert rig.state == before


@pytest.mark.seed("S14")
@pytest.mark.parametrize("step", BUSY)
def test_an_answer_that_comes_during_the_operation_leaves_its_freeze_alone(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    rig.now += 10
    rig.report_accepted(run_id="run-2")
    rig.report_accepted(Recovery.NONE)
    assert rig.state == before


def test_an_answer_that_an_abort_has_overtaken_does_not_freeze() -> None:
    rig = dead_rig()
    rig.accepted(abort("run-2"))
    rig.report_accepted(run_id="run-2")
    assert not rig.is_frozen()


def test_an_engine_that_died_while_loading_is_reported_and_freezes_like_any_other() -> None:
    rig = rig_at(Step.LOADING)
    rig.died()
    assert rig.state.step is Step.FAILED
    assert not rig.is_frozen()
    rig.report_accepted(run_id="run-3")
    assert rig.is_frozen()


@pytest.mark.parametrize("event", [progress.Leaving("SIGTERM"), progress.Held("an operator")])
def test_who_leaves_or_is_held_does_not_freeze(event: progress.Event) -> None:
    rig = dead_rig()
    rig.feed(event)
    rig.report_accepted(run_id="run-2")
    assert rig.state.freeze is None


@pytest.mark.seed("S11")
@pytest.mark.parametrize("run_id", ["run-2", None])
@pytest.mark.parametrize("recovery", [Recovery.PENDING, Recovery.ENGINE_RELAUNCH])
def test_a_report_that_is_asked_again_does_not_move_the_deadline(recovery: Recovery, run_id: str | None) -> None:
    rig = frozen_rig(run_id)
    for _ in range(6):
        rig.wait(5)
        rig.report_accepted(recovery, run_id)
    assert rig.state.freeze is not None
    assert rig.state.freeze.deadline == rig.now - 30 + 720
    assert rig.state.freeze.silent_at == rig.now + 60, "an answer is a sign of life"


@pytest.mark.seed("S11")
def test_a_recovery_that_stays_pending_does_not_freeze_for_ever() -> None:
    rig = dead_rig()
    frozen_sec = 0
    for _ in range(1000):
        rig.report_accepted(Recovery.PENDING)
        frozen_sec += 5 if rig.is_frozen() else 0
        rig.wait(5)
    assert frozen_sec == SETTINGS.freeze.duration_sec


def test_a_pending_recovery_that_becomes_a_run_gets_the_run_s_whole_freeze() -> None:
    rig = dead_rig()
    rig.report_accepted(Recovery.PENDING)
    rig.wait(50)
    rig.report_accepted(run_id="run-2")
    assert rig.state.freeze == freeze.begin(LIMITS, "run-2", rig.now)


# --- what ends it -------------------------------------------------------------------------------------------------


@pytest.mark.seed("S11")
def test_a_lost_abort_and_a_silent_controller_cost_one_minute() -> None:
    rig = frozen_rig()
    rig.wait(59)
    assert rig.is_frozen()
    rig.wait(1)
    assert rig.state.freeze is None
    assert "silent for 60 s" in rig.reports[-1].message


@pytest.mark.seed("S11")
def test_a_talking_controller_keeps_it_until_the_deadline_only() -> None:
    rig = frozen_rig()
    for _ in range(719):
        rig.feed(progress.ControllerHeard("run-2", 0))
        rig.wait(1)
        assert rig.is_frozen()
    rig.wait(1)
    assert rig.state.freeze is None
    assert "time is up" in rig.reports[-1].message


@pytest.mark.seed("S11")
def test_a_freeze_that_is_over_protects_nobody_even_before_anyone_looked_at_the_clock() -> None:
    rig = frozen_rig()
    rig.now += 60
    assert rig.state.freeze is not None
    assert not rig.is_frozen()
    assert rig.state.freeze_remaining(rig.now) == 0.0


def test_a_deposed_leader_does_not_keep_a_freeze_alive() -> None:
    rig = frozen_rig()
    rig.feed(progress.ControllerHeard("run-2", 5))
    rig.now += 30
    rig.feed(progress.ControllerHeard("run-2", 4))
    assert rig.state.freeze_remaining(rig.now) == 30.0
    assert rig.state.term == 5


def test_a_poll_carries_no_term_and_counts() -> None:
    rig = frozen_rig()
    rig.feed(progress.ControllerHeard("run-2", 5))
    rig.now += 30
    rig.feed(progress.ControllerHeard("run-2", 0))
    assert rig.state.freeze_remaining(rig.now) == 60.0


def test_hearing_begins_no_freeze() -> None:
    rig = dead_rig()
    rig.feed(progress.ControllerHeard("run-2", 3))
    assert rig.state.freeze is None
    assert rig.state.term == 3


@pytest.mark.parametrize("step", [Step.DONE, *BUSY])
def test_abort_ends_it_in_every_step(step: Step) -> None:
    rig = frozen_rig() if step is Step.DONE else rig_at(step)
    assert rig.is_frozen()
    rig.accepted(abort("run-2"))
    assert rig.state.freeze is None


@pytest.mark.seed("S10")
@pytest.mark.parametrize("step", [step for step in BUSY if step is not Step.PREPARED])
def test_failure_ends_it_at_once(step: Step) -> None:
    rig = rig_at(step)
    rig.broke()
    assert rig.state.step is Step.FAILED
    assert rig.state.freeze is None


def test_success_ends_it() -> None:
    rig = rig_at(Step.LOADING)
    assert rig.is_frozen()
    rig.loaded()
    assert rig.state.freeze is None


def test_hold_ends_it() -> None:
    rig = frozen_rig()
    rig.feed(progress.Held("an operator"))
    assert rig.state.freeze is None


# --- what moves it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [prepare(2, "run-2"), restart(2, "run-2"), restart(), placement(epoch=2)])
def test_an_accepted_prepare_or_restart_extends_it(command: Command) -> None:
    rig = frozen_rig()
    rig.wait(40)
    rig.accepted(command)
    assert rig.state.freeze is not None
    assert rig.state.freeze.deadline == rig.now + 720
    assert rig.state.freeze.silent_at == rig.now + 60


def test_a_repeated_prepare_is_a_sign_of_life_and_no_extension() -> None:
    """F11: the slow member's prepare is repeated for 80 s; its own freeze must not go silent meanwhile."""
    rig = frozen_rig()
    rig.accepted(prepare(2, "run-2"))
    begun = rig.now
    for _ in range(8):
        rig.wait(10)
        rig.accepted(prepare(2, "run-2"))
    assert rig.is_frozen()
    assert rig.state.freeze is not None
    assert rig.state.freeze.deadline == begun + 720


def test_polls_keep_the_member_that_waits_at_the_barrier() -> None:
    """F11, F12: prepared in 0.3 s, the other takes 80 s, or the run is in its back-off."""
    rig = rig_at(Step.PREPARED)
    for _ in range(100):
        rig.wait(5)
        rig.feed(progress.ControllerHeard("run-2", 0))
    assert rig.is_frozen()


@pytest.mark.seed("S11")
def test_a_member_that_is_forgotten_at_the_barrier_thaws() -> None:
    rig = rig_at(Step.PREPARED)
    rig.wait(60)
    assert rig.state.freeze is None
    assert rig.state.step is Step.PREPARED


def test_a_start_is_a_sign_of_life() -> None:
    rig = rig_at(Step.PREPARED)
    rig.now += 50
    rig.accepted(start(2, "run-2"))
    assert rig.state.freeze_remaining(rig.now) == 60.0


def test_a_refused_command_moves_nothing() -> None:
    rig = frozen_rig()
    before = rig.state.freeze
    rig.now += 30
    rig.refused(prepare(1, "run-1"))
    rig.refused(start(1, "run-1"))
    assert rig.state.freeze == before
    rig = rig_at(Step.CLEANING)
    before = rig.state.freeze
    rig.now += 30
    rig.refused(start(2, "run-2"))
    assert rig.state.freeze == before


# --- a device is gone ---------------------------------------------------------------------------------------------


def lost(rig: Rig) -> DeviceLost:
    return DeviceLost(0, rig.state.epoch, "hardware: engine: DeviceHealthProbe nvidia-smi: exit status 9")


def test_a_device_that_is_gone_ends_the_freeze_and_no_answer_begins_another() -> None:
    rig = Rig()
    rig.start_cold()
    rig.died()
    rig.report_accepted(run_id="run-2")
    assert rig.is_frozen()
    rig.feed(lost(rig))
    assert not rig.is_frozen()
    rig.report_accepted(run_id="run-3")
    assert not rig.is_frozen()
    rig.wait(600)
    rig.feed(progress.ReportUndelivered(1))
    assert rig.state.step is Step.DONE  # alone it is not relaunched either


def test_an_operation_that_has_begun_meanwhile_asks_for_the_device_itself() -> None:
    rig = Rig()
    rig.start_cold()
    rig.died()
    late = lost(rig)
    rig.accepted(prepare(2, "run-2"))
    rig.feed(late)
    assert rig.state.device_fault is None
    assert rig.is_frozen()
    rig.stopped()
    rig.feed(progress.Broke(rig.state.serial, "hardware: gone", FaultCategory.HARDWARE))
    assert (rig.state.step, rig.state.category) == (Step.FAILED, FaultCategory.HARDWARE)
    assert not rig.is_frozen()
    rig.accepted(prepare(3, "run-3"))
    assert (rig.state.category, rig.state.device_fault) == (None, None)


def test_a_device_probe_that_outlives_its_engine_says_nothing() -> None:
    rig = Rig()
    rig.start_cold()
    rig.feed(lost(rig))
    assert rig.state.device_fault is None  # nobody died
