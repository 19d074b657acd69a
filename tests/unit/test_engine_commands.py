"""Commands of the node-manager API: accepted, joined or refused, in every step (seed S10; design 4, Answers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from supervisor.engine.model import progress
from supervisor.engine.model.commands import PREPARED_STEPS, SPAWNED_STEPS, Accepted, Command
from supervisor.engine.model.condition import Recovered, Restoring
from supervisor.engine.model.operation import ABORTED_RUNS_KEPT, EndSupervisor, OperationSettings, RecoverEngine
from supervisor.wire import Action, EngineRestartMsg, ErrorCode, RecoveryState, Step, StopMsg
from tests.support.operations import (
    BOOT,
    BUSY,
    INSTANCE,
    SETTINGS,
    STEPS,
    SWITCHED_OFF,
    Rig,
    abort,
    placement,
    prepare,
    restart,
    rig_at,
    start,
    stop,
)

NEWER: list[Command] = [prepare(3, "run-3"), restart(3, "run-3"), restart(3), placement(epoch=3)]
"""Each begins an operation of its own in a newer epoch."""

DEAD_OR_DOWN = (Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.FAILED, Step.ABORTED)


def unchanged(rig: Rig, command: Command) -> ErrorCode:
    """Sends a command that must be refused without any effect."""
    before, done = rig.state, len(rig.actions)
    code = rig.refused(command)
    assert rig.state == before
    assert len(rig.actions) == done
    return code


# --- prepare, restart, start with a placement: a newer epoch begins ---------------------------------------------------


@pytest.mark.seed("S10")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("command", NEWER)
def test_a_newer_epoch_is_accepted_in_every_step_and_overtakes_what_is_in_progress(
    step: Step, command: Command
) -> None:
    rig = rig_at(step)
    if step in (Step.IDLE, Step.HELD) and isinstance(command, EngineRestartMsg):
        command = msgspec.structs.replace(command, start=placement(epoch=3))
    serial, before = rig.state.serial, len(rig.prepares)
    accepted = rig.accepted(command)
    assert accepted.epoch == rig.state.epoch == 3
    assert rig.state.step is Step.STOPPING
    assert rig.state.serial == serial + 1
    assert not rig.state.dead
    assert rig.state.error is None
    assert rig.is_frozen()
    assert len(rig.prepares) == before + 1
    assert rig.prepares[-1].serial == rig.state.serial


@pytest.mark.parametrize(
    "command, until",
    [
        (prepare(3, "run-3"), PREPARED_STEPS),
        (restart(3, "run-3"), SPAWNED_STEPS),
        (restart(), SPAWNED_STEPS),
        (placement(epoch=3), SPAWNED_STEPS),
    ],
)
def test_prepare_is_answered_when_prepared_and_the_others_when_spawned(command: Command, until: object) -> None:
    assert rig_at(Step.DONE).accepted(command).until == until


@pytest.mark.seed("S10")
def test_prepare_waits_for_the_barrier() -> None:
    rig = rig_at(Step.PREPARED)
    assert len(rig.starts) == 1, "the cold start of epoch 1 only"
    assert rig.state.step is Step.PREPARED


@pytest.mark.seed("S10")
@pytest.mark.parametrize("command", [restart(3, "run-3"), restart(), placement(epoch=3)])
def test_the_seed_s_restart_starts_as_soon_as_it_is_clean(command: Command) -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(command)
    rig.stopped()
    rig.clean()
    assert rig.state.step is Step.STARTING
    assert rig.starts[-1].serial == rig.state.serial
    assert not rig.state.start_when_prepared


@pytest.mark.seed("S10")
def test_a_restart_without_an_epoch_takes_the_next_one() -> None:
    rig = rig_at(Step.DONE)
    assert rig.accepted(restart(instance_id=INSTANCE)).epoch == 2


@pytest.mark.seed("S10")
def test_never_started_and_no_placement_given() -> None:
    assert unchanged(rig_at(Step.IDLE), restart()) is ErrorCode.NOT_STARTED
    assert unchanged(rig_at(Step.IDLE), prepare(1, "run-1")) is ErrorCode.NOT_STARTED


@pytest.mark.seed("S10")
@pytest.mark.parametrize("command", [restart(instance_id=8), prepare(3, "run-3", instance_id=8)])
def test_another_instance(command: Command) -> None:
    assert unchanged(rig_at(Step.DONE), command) is ErrorCode.WRONG_INSTANCE


def test_a_placement_may_move_the_pod_to_another_instance() -> None:
    """Reassembly: the placement says where this pod belongs from now on."""
    rig = rig_at(Step.DONE)
    rig.accepted(prepare(3, "run-3", instance_id=8, start=placement(instance_id=8, epoch=3)))
    assert rig.state.instance_id == 8


@pytest.mark.seed("S10")
@pytest.mark.parametrize("command", [restart(), *NEWER])
def test_while_a_snapshot_is_restored_no_relaunch_begins_and_afterwards_it_does(command: Command) -> None:
    rig = rig_at(Step.LOADING)
    rig.feed(Restoring(0, under_way=True))
    rig.feed(Restoring(1, under_way=True))
    rig.feed(Restoring(0, under_way=False))
    assert unchanged(rig, command) is ErrorCode.RESTORING
    rig.feed(Restoring(1, under_way=False))
    if command == restart():
        rig.loaded()  # it names no epoch, and so waits for its turn
    rig.accepted(command)


@pytest.mark.seed("S10")
def test_a_snapshot_being_restored_stands_in_the_way_of_nothing_else() -> None:
    rig = rig_at(Step.LOADING)
    rig.feed(Restoring(0, under_way=True))
    rig.accepted(start(2, "run-2"))  # the same again joins
    rig.accepted(abort("run-2"))
    rig.wait(60)
    rig.accepted(stop())


@pytest.mark.seed("S10")
@pytest.mark.parametrize("step", BUSY)
def test_a_restart_without_an_epoch_cannot_be_ordered_and_waits_its_turn(step: Step) -> None:
    """F14: busy is only for callers without an epoch; the controller's newer epoch overtakes."""
    assert unchanged(rig_at(step), restart()) is ErrorCode.BUSY
    rig_at(step).accepted(prepare(3, "run-3"))


@pytest.mark.parametrize("step", [Step.DONE, Step.FAILED, Step.ABORTED])
def test_a_restart_without_an_epoch_is_welcome_when_nothing_is_in_progress(step: Step) -> None:
    rig_at(step).accepted(restart())


@pytest.mark.seed("S10")
@pytest.mark.seed("S13")
@pytest.mark.parametrize("command", [prepare(2, "run-2"), restart(), placement(epoch=2)])
def test_with_the_switch_off_there_is_no_relaunch(command: Command) -> None:
    assert unchanged(rig_at(Step.DONE, SWITCHED_OFF), command) is ErrorCode.DISABLED


def test_with_the_switch_off_there_is_a_cold_start() -> None:
    rig = rig_at(Step.DONE, SWITCHED_OFF)
    assert rig.starts[-1].relaunch is None


@pytest.mark.parametrize("command", [prepare(3, "run-3"), restart(), placement(epoch=3)])
def test_held_by_an_operator(command: Command) -> None:
    """F23: an operator stopped one rank, another one dies."""
    rig = rig_at(Step.DONE)
    rig.feed(progress.Held("an operator"))
    assert unchanged(rig, command) is ErrorCode.HELD
    rig.feed(progress.Released())
    rig.accepted(command)


def test_a_hold_at_the_barrier_keeps_the_engine_down() -> None:
    rig = rig_at(Step.PREPARED)
    rig.feed(progress.Held("an operator"))
    assert unchanged(rig, start(2, "run-2")) is ErrorCode.HELD


@pytest.mark.parametrize("event", [progress.Held("an operator"), progress.Leaving("SIGTERM")])
@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING])
def test_a_restart_in_progress_starts_nothing_once_held_or_leaving(event: progress.Event, step: Step) -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(restart(2, "run-2"))
    if step is Step.CLEANING:
        rig.stopped()
    rig.feed(event)
    rig.stopped()
    rig.clean()
    assert rig.state.step is Step.PREPARED
    assert len(rig.starts) == 1


@pytest.mark.parametrize("command", [prepare(3, "run-3"), start(2, "run-2"), restart(), placement(epoch=3)])
def test_leaving(command: Command) -> None:
    rig = rig_at(Step.PREPARED)
    rig.feed(progress.Leaving("SIGTERM"))
    assert unchanged(rig, command) is ErrorCode.LEAVING


@pytest.mark.parametrize("build", [prepare, restart, start])
def test_the_epochs_of_a_message_must_agree(build: Callable[..., EngineRestartMsg]) -> None:
    command = build(2, "run-2", start=placement(epoch=9))
    rig = rig_at(Step.PREPARED) if build is start else rig_at(Step.DONE)
    assert unchanged(rig, command) is ErrorCode.MALFORMED


# --- the same message again joins -------------------------------------------------------------------------------------


@pytest.mark.seed("S10")
@pytest.mark.parametrize("step", [step for step in STEPS if step not in (Step.IDLE, Step.DONE, Step.ABORTED)])
def test_the_same_prepare_again_joins(step: Step) -> None:
    rig = rig_at(step)
    before, done = rig.state, len(rig.actions)
    assert rig.accepted(prepare(2, "run-2")) == Accepted(2, PREPARED_STEPS)
    assert rig.state == before
    assert len(rig.actions) == done


@pytest.mark.seed("S10")
def test_the_same_restart_again_never_restarts_twice() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(restart(2, "run-2"))
    for go in (rig.stopped, rig.clean, rig.spawned, rig.loaded):
        go()
        rig.accepted(restart(2, "run-2"))
    assert rig.state.step is Step.DONE
    assert [action.placement.epoch for action in rig.starts] == [1, 2]


def test_the_same_epoch_of_another_run_is_no_repeat() -> None:
    assert unchanged(rig_at(Step.PREPARED), prepare(2, "other")) is ErrorCode.STALE_EPOCH
    assert unchanged(rig_at(Step.PREPARED), restart(2)) is ErrorCode.STALE_EPOCH


@pytest.mark.parametrize("epoch", [1, None])
@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING, Step.STARTING, Step.LOADING, Step.DONE])
def test_a_repeated_start_of_the_same_instance_joins_the_first(step: Step, epoch: int | None) -> None:
    """Idempotent per (instance, epoch), also for a peer that knows neither epochs nor runs."""
    rig = Rig()
    rig.accepted(placement(epoch=epoch))
    for reached, go in zip(
        (Step.CLEANING, Step.STARTING, Step.LOADING, Step.DONE),
        (rig.stopped, rig.clean, rig.spawned, rig.loaded),
        strict=True,
    ):
        if rig.state.step is step:
            break
        go()
        assert rig.state.step is reached
    before = rig.state
    assert rig.accepted(placement(epoch=epoch)) == Accepted(1, SPAWNED_STEPS)
    assert rig.state == before
    assert len(rig.prepares) == 1


@pytest.mark.parametrize("step", [Step.FAILED, Step.ABORTED])
def test_a_start_without_an_epoch_after_a_failure_is_a_new_attempt(step: Step) -> None:
    assert rig_at(step).accepted(placement()).epoch == 3


def test_a_start_without_an_epoch_for_another_instance_moves_the_pod() -> None:
    rig = rig_at(Step.DONE)
    assert rig.accepted(placement(instance_id=8)).epoch == 2
    assert rig.state.instance_id == 8


@pytest.mark.parametrize("epoch", [1, 0])
def test_a_start_of_an_older_epoch(epoch: int) -> None:
    assert unchanged(rig_at(Step.PREPARED), placement(epoch=epoch)) is ErrorCode.STALE_EPOCH


def test_a_repeated_start_is_fenced_like_any_command() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(placement(epoch=1, term=5))
    assert rig.state.term == 5
    assert unchanged(rig, placement(epoch=1, term=4)) is ErrorCode.STALE_TERM
    rig.feed(progress.Leaving("SIGTERM"))
    assert unchanged(rig, placement(epoch=1, term=5)) is ErrorCode.LEAVING


# --- what is launched: the placement ----------------------------------------------------------------------------------


@pytest.mark.seed("S18")
def test_a_restart_without_a_placement_uses_the_recorded_one_in_the_new_epoch() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(restart())
    rig.stopped()
    rig.clean()
    assert rig.starts[-1].placement == placement(epoch=2)
    assert rig.prepares[-1].placement == placement(epoch=2)


def test_a_placement_without_an_epoch_gets_the_operation_s() -> None:
    rig = Rig()
    rig.accepted(placement())
    assert rig.prepares[-1].placement.epoch == rig.state.epoch == 1


@pytest.mark.parametrize("given", [None, placement(epoch=2, master_port=29501), placement(master_port=29501)])
def test_start_may_bring_the_last_word_on_addresses_and_ports(given: object) -> None:
    rig = rig_at(Step.PREPARED)
    rig.accepted(start(2, "run-2", start=given))
    launched = rig.starts[-1].placement
    assert launched.epoch == 2
    assert launched.master_port == (29501 if given is not None else None)
    assert rig.state.placement == launched


# --- start: the second phase ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step, expected",
    [
        (Step.STOPPING, ErrorCode.NOT_PREPARED),
        (Step.CLEANING, ErrorCode.NOT_PREPARED),
        (Step.PREPARED, Step.STARTING),
        (Step.STARTING, Step.STARTING),
        (Step.LOADING, Step.LOADING),
        (Step.FAILED, ErrorCode.FAILED),
        (Step.ABORTED, ErrorCode.ABORTED),
    ],
)
def test_start_of_the_prepared_run_by_step(step: Step, expected: Step | ErrorCode) -> None:
    rig = rig_at(step)
    if isinstance(expected, ErrorCode):
        assert unchanged(rig, start(2, "run-2")) is expected
        return
    already = len(rig.starts)
    assert rig.accepted(start(2, "run-2")) == Accepted(2, SPAWNED_STEPS)
    assert rig.state.step is expected
    assert len(rig.starts) == (already + 1 if step is Step.PREPARED else already)


def test_start_again_after_success() -> None:
    rig = rig_at(Step.LOADING)
    rig.loaded()
    assert rig.accepted(start(2, "run-2")) == Accepted(2, SPAWNED_STEPS)
    assert rig.state.step is Step.DONE


@pytest.mark.parametrize(
    "epoch, run_id, code",
    [
        pytest.param(2, "other", ErrorCode.NOT_PREPARED, id="another run"),
        pytest.param(3, "run-2", ErrorCode.NOT_PREPARED, id="another epoch of the run"),
        pytest.param(None, "run-2", ErrorCode.NOT_PREPARED, id="no epoch"),
        pytest.param(2, None, ErrorCode.NOT_PREPARED, id="no run"),
        pytest.param(None, None, ErrorCode.NOT_PREPARED, id="neither"),
        pytest.param(1, "run-2", ErrorCode.STALE_EPOCH, id="an older epoch"),
    ],
)
def test_only_what_was_prepared_in_this_run_and_epoch_starts(
    epoch: int | None, run_id: str | None, code: ErrorCode
) -> None:
    """C2 as this side sees it."""
    assert unchanged(rig_at(Step.PREPARED), start(epoch, run_id)) is code


def test_start_is_taken_even_if_the_freeze_is_over() -> None:
    """F10: a thawed member is still prepared in that run; the arbiter starts counting anew anyway."""
    rig = rig_at(Step.PREPARED)
    rig.wait(3600)
    rig.accepted(start(2, "run-2"))
    assert rig.state.step is Step.STARTING


def test_start_after_an_unnamed_abort_while_stopping() -> None:
    rig = rig_at(Step.STOPPING)
    rig.accepted(abort("run-2"))
    rig.stopped()
    rig.clean()
    assert unchanged(rig, start(2, "run-2")) is ErrorCode.ABORTED


# --- fencing ----------------------------------------------------------------------------------------------------------


def fenced(**fields: object) -> list[Command]:
    return [
        prepare(3, "run-3", **fields),
        start(2, "run-2", **fields),
        restart(3, "run-3", **fields),
        abort("run-2", **fields),
        stop(**{"boot_id": BOOT} | fields),
    ]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("command", fenced(boot_id="another boot", term=9))
def test_another_boot_s_command_has_no_effect_at_all(step: Step, command: Command) -> None:
    """I5; the term of a message that was not meant for this life is not learned either."""
    assert unchanged(rig_at(step), command) is ErrorCode.WRONG_BOOT


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("term", [4, pytest.param(0, id="no term")])
def test_an_older_term_s_command_has_no_effect(step: Step, term: int) -> None:
    """I5. Once a term was seen in this boot, commands without one are refused."""
    for command in [*fenced(term=term), placement(epoch=3, term=term)]:
        rig = rig_at(step)
        rig.feed(progress.ControllerHeard(None, 5))
        assert unchanged(rig, command) is ErrorCode.STALE_TERM


def test_the_highest_term_is_remembered() -> None:
    rig = rig_at(Step.PREPARED)
    rig.accepted(start(2, "run-2", term=3))
    assert rig.state.term == 3
    rig.accepted(prepare(3, "run-3", term=5))
    assert rig.state.term == 5
    rig.accepted(abort("run-3", term=6))
    assert rig.state.term == 6


def test_a_command_that_is_refused_for_its_epoch_still_tells_the_term() -> None:
    rig = rig_at(Step.PREPARED)
    assert rig.refused(prepare(1, "run-1", term=8)) is ErrorCode.STALE_EPOCH
    assert rig.state.term == 8


@pytest.mark.parametrize("step", [step for step in STEPS if step is not Step.IDLE])
def test_an_older_epoch_s_command_has_no_effect(step: Step) -> None:
    for command in (prepare(0, "run-0"), restart(0, "run-0"), start(0, "run-0"), placement(epoch=0)):
        assert unchanged(rig_at(step), command) is ErrorCode.STALE_EPOCH
    assert unchanged(rig_at(step), stop(epoch=0, boot_id=BOOT)) is ErrorCode.STALE_EPOCH


def test_an_abort_of_an_older_epoch_leaves_the_newer_operation_alone() -> None:
    """The pod has gone on by an operator's restart, which belongs to no run."""
    rig = rig_at(Step.PREPARED)
    rig.accepted(prepare(3, None))
    before = rig.state
    assert rig.refused(abort("run-2", epoch=2)) is ErrorCode.STALE_EPOCH
    assert rig.state == replace(before, aborted_runs=("run-2",))


# --- abort ------------------------------------------------------------------------------------------------------------


def test_aborted_runs_are_remembered_but_not_without_limit() -> None:
    rig = rig_at(Step.DONE)
    for number in range(ABORTED_RUNS_KEPT + 1):
        rig.accepted(abort(f"late-{number}"))
    assert len(rig.state.aborted_runs) == ABORTED_RUNS_KEPT
    assert rig.refused(prepare(3, f"late-{ABORTED_RUNS_KEPT}")) is ErrorCode.ABORTED
    assert rig.refused(prepare(3, "late-1")) is ErrorCode.ABORTED
    rig.accepted(prepare(3, "late-0"))  # the oldest is forgotten


@pytest.mark.seed("S10")
@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize(
    "step, after, will_exit",
    [
        (Step.IDLE, Step.IDLE, False),
        (Step.STOPPING, Step.STOPPING, True),
        (Step.CLEANING, Step.CLEANING, True),
        (Step.PREPARED, Step.ABORTED, True),
        (Step.STARTING, Step.STARTING, False),
        (Step.LOADING, Step.LOADING, False),
        (Step.DONE, Step.DONE, False),
        (Step.FAILED, Step.FAILED, True),
        pytest.param(Step.ABORTED, Step.ABORTED, True, id="the answer to the first abort was lost"),
    ],
)
def test_abort_by_step(step: Step, after: Step, will_exit: bool, unnamed: bool) -> None:
    rig = rig_at(step)
    accepted = rig.accepted(abort(None if unnamed else "run-2"))
    assert rig.state.step is after
    assert not rig.is_frozen()
    assert accepted == Accepted(rig.state.epoch, frozenset(Step), will_exit=will_exit)
    assert rig.reports[-1].level == "warning"


@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING])
def test_an_abort_while_stopping_lets_the_stop_finish(step: Step) -> None:
    rig = rig_at(step)
    rig.accepted(abort("run-2"))
    if step is Step.STOPPING:
        rig.stopped()
    rig.clean()
    assert rig.state.step is Step.ABORTED
    assert rig.state.error == "aborted while stopping"
    assert not rig.state.aborting
    assert len(rig.starts) == 1


def test_an_abort_takes_back_a_restart_that_has_not_started_yet() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(restart())
    rig.accepted(abort("run-2"))
    rig.stopped()
    rig.clean()
    assert rig.state.step is Step.ABORTED
    assert len(rig.starts) == 1


def test_a_dead_engine_s_abort_promises_the_exit() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.report_accepted(run_id="run-2")
    assert rig.accepted(abort("run-2")).will_exit is True
    assert not rig.is_frozen()


def test_a_held_engine_is_not_counted_so_its_abort_promises_nothing() -> None:
    rig = rig_at(Step.PREPARED)
    rig.feed(progress.Held("an operator"))
    assert rig.accepted(abort("run-2")).will_exit is False


@pytest.mark.parametrize("step", STEPS)
def test_who_is_leaving_promises_the_exit(step: Step) -> None:
    rig = rig_at(step)
    rig.feed(progress.Leaving("SIGTERM"))
    assert rig.accepted(abort("run-2")).will_exit is True


@pytest.mark.parametrize("build", [prepare, restart, start])
def test_abort_overtakes_prepare(build: Callable[..., EngineRestartMsg]) -> None:
    """F9: the abort of a run that is unknown here is remembered for this boot."""
    rig = rig_at(Step.DONE)
    rig.accepted(abort("run-2"))
    assert unchanged(rig, build(2, "run-2")) is ErrorCode.ABORTED
    assert unchanged(rig, placement(epoch=2, run_id="run-2")) is ErrorCode.ABORTED
    rig.accepted(prepare(2, "run-3"))


@pytest.mark.parametrize("abort_first", [True, False])
def test_start_and_abort_queued_while_the_process_was_stopped(abort_first: bool) -> None:
    """F10: a SIGSTOPped member thaws and finds both; either order ends in a named state."""
    rig = rig_at(Step.PREPARED)
    rig.now += 600
    if abort_first:
        rig.accepted(abort("run-2"))
        assert unchanged(rig, start(2, "run-2")) is ErrorCode.ABORTED
        assert rig.state.step is Step.ABORTED
    else:
        rig.accepted(start(2, "run-2"))
        rig.accepted(abort("run-2"))
        assert rig.state.step is Step.STARTING
    assert rig.state.freeze is None


@pytest.mark.parametrize("step", BUSY)
def test_an_abort_of_another_run_is_only_remembered(step: Step) -> None:
    rig = rig_at(step)
    before = rig.state
    assert rig.accepted(abort("run-3")) == Accepted(2, frozenset(Step), will_exit=False)
    assert rig.state == replace(before, aborted_runs=("run-3",))


def test_an_abort_of_another_run_leaves_this_one_s_freeze() -> None:
    rig = rig_at(Step.DONE)
    rig.died()
    rig.report_accepted(run_id="run-2")
    rig.accepted(abort("run-3"))
    assert rig.is_frozen()


def test_an_abort_lifts_the_freeze_that_a_pending_recovery_began() -> None:
    """The report was answered before there was a run; C3."""
    rig = rig_at(Step.DONE)
    rig.died()
    rig.report_accepted(run_id=None)
    assert rig.accepted(abort("run-2")).will_exit is True
    assert not rig.is_frozen()


@pytest.mark.seed("S07")
def test_an_abort_lifts_the_freeze_that_followed_a_failed_relaunch() -> None:
    """The engine of run-2 died while loading; its report was answered with run-3, which is then aborted."""
    rig = rig_at(Step.LOADING)
    rig.died()
    rig.report_accepted(run_id="run-3")
    assert rig.is_frozen()
    assert rig.accepted(abort("run-3")).will_exit is True
    assert not rig.is_frozen()


@pytest.mark.seed("S10")
def test_the_seed_s_abort_for_another_instance() -> None:
    rig = rig_at(Step.PREPARED)
    assert unchanged(rig, abort(instance_id=8)) is ErrorCode.WRONG_INSTANCE
    rig.accepted(abort(instance_id=INSTANCE))


def test_a_new_run_begins_after_an_abort() -> None:
    rig = rig_at(Step.STOPPING)
    rig.accepted(abort("run-2"))
    rig.accepted(prepare(3, "run-3"))
    rig.stopped()
    rig.clean()
    assert rig.state.step is Step.PREPARED
    rig.accepted(start(3, "run-3"))


# --- stop -------------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S23")
@pytest.mark.parametrize("step", STEPS)
def test_stop_ends_the_supervisor_from_every_step(step: Step) -> None:
    rig = rig_at(step)
    accepted = rig.accepted(stop(boot_id=BOOT, reason="phase 2"))
    assert accepted.will_exit is True
    assert [action for action in rig.actions if isinstance(action, EndSupervisor)] == [
        EndSupervisor("stop command: phase 2")
    ]
    assert rig.state.leaving == "stop command: phase 2"


@pytest.mark.seed("S23")
def test_a_second_stop_joins_the_first() -> None:
    rig = rig_at(Step.DONE)
    rig.accepted(stop(boot_id=BOOT))
    before = rig.state
    assert rig.accepted(stop(boot_id=BOOT)).will_exit is True
    assert rig.state == before
    assert sum(isinstance(action, EndSupervisor) for action in rig.actions) == 1


@pytest.mark.seed("S23")
@pytest.mark.parametrize("age, accepted", [(0.0, False), (29.9, False), (30.0, True), (9999.0, True)])
def test_a_stop_without_fields_is_refused_in_the_first_seconds_of_a_boot(age: float, accepted: bool) -> None:
    """F8: the answer to the stop was lost, its repeat meets the new container."""
    rig = rig_at(Step.DONE)
    rig.now = rig.state.booted_at + age
    if accepted:
        rig.accepted(StopMsg())
    else:
        assert unchanged(rig, StopMsg()) is ErrorCode.WRONG_BOOT


@pytest.mark.parametrize("fields", [{"reason": "x"}, {"run_id": "run-1"}, {"instance_id": INSTANCE}])
def test_fields_that_tell_no_life_from_another_do_not_count_as_fencing(fields: dict[str, object]) -> None:
    assert unchanged(rig_at(Step.DONE), stop(**fields)) is ErrorCode.WRONG_BOOT


def test_a_stop_for_this_boot_is_taken_at_once() -> None:
    rig_at(Step.IDLE).accepted(stop(boot_id=BOOT))


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"boot_id": "another boot"}, ErrorCode.WRONG_BOOT),
        ({"boot_id": BOOT, "term": 4}, ErrorCode.STALE_TERM),
        ({}, ErrorCode.STALE_TERM),
        ({"boot_id": BOOT, "term": 5, "epoch": 0}, ErrorCode.STALE_EPOCH),
        ({"boot_id": BOOT, "term": 5, "instance_id": 8}, ErrorCode.WRONG_INSTANCE),
    ],
)
def test_stop_is_fenced(fields: dict[str, object], code: ErrorCode) -> None:
    rig = rig_at(Step.DONE)
    rig.feed(progress.ControllerHeard(None, 5))
    rig.now += 100
    assert unchanged(rig, stop(**fields)) is code


def test_a_stop_of_the_aborted_run_is_taken() -> None:
    """Phase 2 sends abort and, where that leads to no exit, stop in the same run."""
    rig = rig_at(Step.LOADING)
    assert rig.accepted(abort("run-2", epoch=2)).will_exit is False
    rig.accepted(stop(boot_id=BOOT, run_id="run-2", epoch=2))


# --- the banner's number ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S21")
def test_only_relaunches_are_counted_and_announced() -> None:
    rig = Rig()
    rig.start_cold()
    assert [start.relaunch for start in rig.starts] == [None]
    for number in (1, 2, 3):
        rig.accepted(restart(reason="engine 0 was killed by SIGKILL"))
        assert rig.state.relaunch_count == number - 1, "not before the old engine is gone"
        rig.stopped()
        rig.clean()
        assert rig.starts[-1].relaunch == number
        assert rig.starts[-1].reason == "engine 0 was killed by SIGKILL"
        rig.spawned()
        rig.loaded()
    assert rig.state.relaunch_count == 3


@pytest.mark.seed("S21")
def test_a_relaunch_that_was_aborted_or_failed_before_its_start_has_no_number() -> None:
    rig = rig_at(Step.ABORTED)
    rig.accepted(prepare(3, "run-3"))
    rig.broke()
    rig.accepted(prepare(4, "run-4", reason="of the prepare"))
    rig.stopped()
    rig.clean()
    rig.accepted(start(4, "run-4"))
    assert rig.starts[-1].relaunch == 1
    assert rig.starts[-1].reason == "of the prepare"


def test_an_operation_without_a_reason_names_its_run() -> None:
    rig = rig_at(Step.PREPARED)
    rig.accepted(start(2, "run-2"))
    assert rig.starts[-1].reason == "run run-2"


# --- recover: the running engine is asked, and nothing is stopped -----------------------------------------------------

RECOVERS = OperationSettings(enabled=True, freeze=SETTINGS.freeze, recovers=True)


def recover(epoch: int | None = None, run_id: str | None = "recovery-1", **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Action.RECOVER, epoch=epoch, run_id=run_id, **fields)


def test_recover_asks_the_engine_and_touches_neither_step_nor_freeze() -> None:
    rig = rig_at(Step.DONE, RECOVERS)
    before = rig.state
    accepted = rig.accepted(recover(1, recovery="uce", fault_code=7, reason="run 9"))
    assert rig.actions[-1] == RecoverEngine(1, "uce", 7, "run 9")
    assert accepted.recovery == 1
    assert (rig.state.step, rig.state.serial, rig.state.freeze) == (before.step, before.serial, before.freeze)
    done = len(rig.actions)
    assert rig.accepted(recover(1)).recovery == 1  # the same again joins
    assert len(rig.actions) == done
    assert rig.refused(recover(1, "recovery-2")) is ErrorCode.BUSY
    rig.feed(Recovered(1, None))
    assert rig.accepted(recover(1, "recovery-2")).recovery == 2


@pytest.mark.parametrize("step", STEPS)
def test_only_a_running_engine_can_be_asked_to_recover(step: Step) -> None:
    rig = rig_at(step, RECOVERS)
    if step is Step.DONE:
        rig.accepted(recover())
        return
    assert unchanged(rig, recover()) is (ErrorCode.BUSY if step in BUSY else ErrorCode.CONFLICT)


def test_neither_the_dead_nor_the_held_nor_another_epoch_s_nor_a_unit_without_a_hook() -> None:
    assert unchanged(rig_at(Step.DONE), recover()) is ErrorCode.UNSUPPORTED
    rig = rig_at(Step.DONE, RECOVERS)
    for epoch in (0, 2):
        assert unchanged(rig, recover(epoch)) is ErrorCode.STALE_EPOCH
    assert unchanged(rig, recover(instance_id=8)) is ErrorCode.WRONG_INSTANCE
    assert unchanged(rig, recover(boot_id="another")) is ErrorCode.WRONG_BOOT
    rig.feed(progress.ControllerHeard(None, 5))
    assert unchanged(rig, recover(term=4)) is ErrorCode.STALE_TERM
    rig.died()
    assert unchanged(rig, recover(term=5)) is ErrorCode.CONFLICT
    rig.feed(progress.Held("operator"))
    assert unchanged(rig, recover(term=5)) is ErrorCode.HELD


def test_what_an_overtaken_recovery_reports_is_not_the_next_one_s() -> None:
    rig = rig_at(Step.DONE, RECOVERS)
    rig.accepted(recover(1))
    rig.accepted(prepare(2, "run-2"))
    assert (rig.state.step, rig.state.recovery) == (Step.STOPPING, None)
    rig.stopped()
    rig.clean()
    rig.accepted(start(2, "run-2"))
    rig.spawned()
    rig.loaded()
    assert rig.accepted(recover(2, "recovery-2")).recovery == 2
    rig.feed(Recovered(1, "broken off"))
    assert rig.state.recovery is not None
    assert rig.state.recovery.state is RecoveryState.RUNNING
