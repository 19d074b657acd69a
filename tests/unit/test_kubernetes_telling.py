"""What is told of an instance on its pods, as the difference of two looks; and how it becomes Events with counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.instance import Hold, Holder, hold, strand
from controller.model.kubernetes import series, telling
from controller.model.kubernetes.patience import LONGEST_SEC, pause
from controller.model.kubernetes.pods import Owner, Pod, PodRef, pod_of, pods_of, ref_of
from controller.model.kubernetes.series import GAP_SEC, SERIES_SEC, Involved, Series
from controller.model.kubernetes.telling import Look, News, Reason, RunLook, look, news
from controller.model.relaunch.run import Outcome, RunReason, RunStep
from tests.unit.controller_gang import FAULT, REJOIN, SETTINGS, Drive, registration, serving
from tests.unit.controller_gang import joined as join

INSTANCE = serving()
NOBODY = Look()


def reasons(told: tuple[News, ...]) -> list[Reason]:
    return [each.reason for each in told]


BEGUN = RunLook(
    id="run-1",
    reason=RunReason.FAULT,
    text="engine 1 is dead",
    epoch=5,
    step=RunStep.PROBE,
    phase=1,
    attempt="",
    error="",
    is_rejoin_over=False,
    outcome=None,
    message="",
)
DONE = replace(BEGUN, step=RunStep.CLOSED, outcome=Outcome.DONE, message="all is well", attempt="attempt 2 of 3")
REJOINING = replace(BEGUN, step=RunStep.REJOIN, error="10.0.0.2 is lost")
PHASE2 = replace(BEGUN, step=RunStep.PHASE2, phase=2, message="phase 2: why")
TIMED_OUT = replace(PHASE2, is_rejoin_over=True)
ENDED = replace(BEGUN, step=RunStep.CLOSED, phase=2, outcome=Outcome.PHASE2, message="over")
OTHER = replace(BEGUN, id="run-2", reason=RunReason.ASSEMBLE)
SUSPENDED = replace(BEGUN, outcome=Outcome.SUSPENDED)


@pytest.mark.parametrize(
    ("before", "now", "ended", "expected"),
    [
        (None, BEGUN, None, [Reason.RELAUNCH_BEGUN]),
        (None, OTHER, None, [Reason.ASSEMBLE_BEGUN]),
        (BEGUN, BEGUN, None, []),
        (BEGUN, DONE, None, [Reason.RELAUNCH_DONE]),
        (BEGUN, None, DONE, [Reason.RELAUNCH_DONE]),
        (DONE, None, DONE, []),
        (None, None, DONE, [Reason.RELAUNCH_BEGUN, Reason.RELAUNCH_DONE]),
        (BEGUN, REJOINING, None, [Reason.MEMBER_LOST]),
        (REJOINING, REJOINING, None, []),
        (REJOINING, replace(REJOINING, epoch=6), None, [Reason.MEMBER_LOST]),
        (REJOINING, TIMED_OUT, None, [Reason.REJOIN_TIMED_OUT]),
        (BEGUN, PHASE2, None, [Reason.CONTAINERS_RESTART]),
        (PHASE2, ENDED, None, [Reason.RUN_ENDED]),
        (BEGUN, OTHER, ENDED, [Reason.CONTAINERS_RESTART, Reason.RUN_ENDED, Reason.ASSEMBLE_BEGUN]),
        (BEGUN, SUSPENDED, None, []),
        (None, None, None, []),
    ],
)
def test_what_is_told_of_a_run(
    before: RunLook | None, now: RunLook | None, ended: RunLook | None, expected: list[Reason]
) -> None:
    assert reasons(news(Look(before), Look(now), ended)) == expected


def test_the_words_say_the_seconds_and_the_attempt() -> None:
    (done,) = news(Look(BEGUN), Look(DONE), None)
    assert done == News(Reason.RELAUNCH_DONE, "all is well (attempt 2 of 3)", is_warning=False)


def test_what_somebody_asked_for_is_no_warning() -> None:
    warned = {reason: news(NOBODY, Look(replace(BEGUN, reason=reason)), None)[0].is_warning for reason in RunReason}
    assert {reason for reason, is_warning in warned.items() if is_warning} == {
        RunReason.FAULT,
        RunReason.REJOIN,
        RunReason.ESCALATION,
    }


def test_holding_releasing_and_stranding_are_told_once() -> None:
    held = hold(INSTANCE, Hold(Holder.BUDGET, "three times"))
    first = INSTANCE.members[0].key
    stranded = strand(INSTANCE, {first})
    here = look(INSTANCE, None)
    assert reasons(news(here, look(held, None), None)) == [Reason.HELD]
    assert reasons(news(look(held, None), look(held, None), None)) == []
    assert reasons(news(look(held, None), here, None)) == [Reason.RELEASED]
    (told,) = news(here, look(stranded, None), None)
    assert (told.reason, told.member) == (Reason.STRANDED, first)
    assert news(look(stranded, None), look(stranded, None), None) == ()


def test_a_look_at_a_real_run_that_waits_for_a_lost_member_in_vain() -> None:
    drive = Drive.open(serving(), settings=REJOIN)
    drive.to(RunStep.PREPARE)
    drive.new_boot(1)
    waiting = look(INSTANCE, drive.run)
    assert waiting.run is not None
    assert (waiting.run.step, waiting.run.is_rejoin_over) == (RunStep.REJOIN, False)
    assert "10.0.0.2" in waiting.run.error
    while drive.run.phase == 1:
        drive.tick()
    over = look(INSTANCE, drive.run)
    assert reasons(news(waiting, over, None)) == [Reason.REJOIN_TIMED_OUT]


def test_an_attempt_is_told_only_of_runs_that_count() -> None:
    counted = Drive.open(serving(), FAULT, settings=SETTINGS).to(RunStep.AWAIT)
    seen_run = look(INSTANCE, counted.run).run
    assert seen_run is not None
    assert seen_run.attempt == "attempt 1 of 3"


LOOKS = st.sampled_from([None, BEGUN, DONE, REJOINING, PHASE2, TIMED_OUT, ENDED, OTHER, SUSPENDED])


@given(st.lists(LOOKS, max_size=12))
def test_looking_again_tells_nothing_new(looks: list[RunLook | None]) -> None:
    seen = [Look(each) for each in looks]
    for one in seen:
        assert news(one, one, None) == ()


# --- series -------------------------------------------------------------------------------------------------

OWNER = Owner("apps/v1", "StatefulSet", "llama", "uid-owner")
PODS = tuple(Pod(PodRef("ml", f"llama-{index}", f"uid-{index}"), "7", OWNER) for index in range(2))
ABOUT = Involved("ml", "v1", "Pod", "llama-0", "uid-0")
TOLD = News(Reason.RELAUNCH_DONE, "well", is_warning=False)


def test_pods_and_their_owner_are_told_each_once() -> None:
    assert [each.name for each in series.involved(PODS)] == ["llama-0", "llama-1", "llama"]
    assert [each.kind for each in series.involved(PODS)] == ["Pod", "Pod", "StatefulSet"]


@given(st.lists(st.floats(0, SERIES_SEC - 1), min_size=1, max_size=20))
def test_every_telling_is_counted_in_one_series(gaps: list[float]) -> None:
    now, known = 0.0, None
    for number, gap in enumerate(gaps):
        now += gap
        known = series.told(known, ABOUT, replace(TOLD, message=f"no {number}"), now, f"name-{number}")
    assert known is not None
    assert (known.count, known.name, known.message) == (len(gaps), "name-0", f"no {len(gaps) - 1}")


def test_after_a_long_silence_it_is_another_series() -> None:
    first = series.told(None, ABOUT, TOLD, 0.0, "one")
    second = series.told(first, ABOUT, TOLD, SERIES_SEC + 1, "two")
    assert (second.count, second.name, second.written_at) == (1, "two", None)
    assert series.written(second, first, 700.0) == second, "what was written was another's"


def test_an_event_is_written_at_once_and_then_seldom() -> None:
    first = series.told(None, ABOUT, TOLD, 5.0, "one")
    assert first.due_at == 5.0
    written = series.written(first, first, 6.0)
    assert series.told(written, ABOUT, TOLD, 7.0, "").due_at == 6.0 + GAP_SEC
    assert series.told(written, ABOUT, TOLD, 100.0, "").due_at == 100.0


def test_a_message_is_never_longer_than_the_api_takes() -> None:
    long: Series = series.told(None, ABOUT, replace(TOLD, message="x" * 5000), 0.0, "one")
    assert len(long.message) == 1024


# --- which pod ----------------------------------------------------------------------------------------------


def test_a_member_is_its_own_pod_and_not_the_next_of_that_name() -> None:
    (member,) = join(None, registration(0, 1, pod_name="llama-0", pod_uid="uid-0", namespace="ml")).members
    there = {("ml", "llama-0"): PODS[0]}
    assert ref_of(member) == PODS[0].ref
    assert pod_of(member, there) == PODS[0]
    replaced = replace(PODS[0], ref=replace(PODS[0].ref, uid="uid-9"))
    assert pod_of(member, {("ml", "llama-0"): replaced}) is None
    assert pod_of(member, {}) is None
    assert ref_of(INSTANCE.members[0]) is None, "it runs in no pod"
    assert pods_of(INSTANCE, there) == ()


# --- patience -----------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.none() | st.floats(0, 1e6), st.floats(0, 1))
def test_no_pause_is_too_short_or_too_long(failures: int, asked: float | None, chance: float) -> None:
    seconds = pause(failures, asked, chance)
    assert 0.25 <= seconds <= LONGEST_SEC
    assert seconds >= min(asked or 0.0, LONGEST_SEC)


def test_pauses_grow_to_the_longest() -> None:
    assert [pause(failures, None, 1.0) for failures in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, LONGEST_SEC]


def test_reasons_are_words_that_the_api_takes() -> None:
    for reason in telling.Reason:
        assert reason.isalnum()
        assert reason[0].isupper()
