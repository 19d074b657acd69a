"""When the supervisor ends itself: the arbiter's one function (seed S15)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.model.arbiter import GO_ON, Arbiter, ArbiterSettings, GivenUp, Situation, Verdict, at_once, tick

SETTINGS = ArbiterSettings(interval_sec=3.0, threshold=5)

WELL = Situation(counted=(), generation=1, frozen=False)
ABNORMAL = Situation(counted=("endpoint 0: dead",), generation=1, frozen=False)
FROZEN = Situation(counted=("endpoint 0: dead",), generation=1, frozen=True)
NEW_GENERATION = Situation(counted=("endpoint 0: dead",), generation=2, frozen=False)


def run(situations: list[Situation], settings: ArbiterSettings = SETTINGS) -> tuple[Arbiter, Verdict]:
    """Ticks on time, beginning with an arbiter that has seen generation 1."""
    arbiter, verdict = tick(Arbiter(), WELL, settings, 0.0)
    for number, situation in enumerate(situations, start=1):
        arbiter, verdict = tick(arbiter, situation, settings, number * settings.interval_sec)
    return arbiter, verdict


@pytest.mark.seed("S15")
@pytest.mark.parametrize(
    "situations, count, ends",
    [
        pytest.param([WELL] * 100, 0, False, id="well"),
        pytest.param([ABNORMAL] * 4, 4, False, id="one below the threshold"),
        pytest.param([ABNORMAL] * 5, 5, True, id="at the threshold"),
        pytest.param([ABNORMAL] * 4 + [WELL] + [ABNORMAL] * 4, 4, False, id="reset when all is well"),
        pytest.param([ABNORMAL] * 4 + [NEW_GENERATION], 0, False, id="reset by a spawn, whose tick is not counted"),
        pytest.param([ABNORMAL] * 4 + [NEW_GENERATION] * 6, 5, True, id="the new engine is counted from zero"),
        pytest.param([FROZEN] * 1000, 0, False, id="frozen ticks do not count"),
        pytest.param([ABNORMAL] * 4 + [FROZEN] + [ABNORMAL] * 4, 4, False, id="reset by a freeze"),
        pytest.param([ABNORMAL] * 4 + [FROZEN] + [ABNORMAL] * 5, 5, True, id="and counted again after it"),
    ],
)
def test_the_arbiter_counts_consecutive_abnormal_ticks(situations: list[Situation], count: int, ends: bool) -> None:
    arbiter, verdict = run(situations)
    assert arbiter.count == count
    assert verdict.end_supervisor is ends


@pytest.mark.seed("S15")
@pytest.mark.parametrize(
    "gap, count",
    [
        (3.0, 5),
        pytest.param(6.0, 5, id="two intervals are not late"),
        pytest.param(6.001, 0, id="late: SIGSTOP, a paused machine"),
        pytest.param(0.5, 5, id="early ticks count"),
    ],
)
def test_a_late_tick_starts_from_zero_instead_of_counting(gap: float, count: int) -> None:
    arbiter, _ = run([ABNORMAL] * 4)
    arbiter, verdict = tick(arbiter, ABNORMAL, SETTINGS, 12.0 + gap)
    assert arbiter.count == count
    assert verdict.end_supervisor is (count == 5)


@pytest.mark.seed("S15")
def test_a_thawed_supervisor_has_the_whole_threshold_again() -> None:
    arbiter, _ = run([ABNORMAL] * 4)
    verdicts = []
    for number in range(6):
        arbiter, verdict = tick(arbiter, ABNORMAL, SETTINGS, 5000.0 + 3 * number)
        verdicts.append(verdict.end_supervisor)
    assert verdicts == [False] * 5 + [True]


@pytest.mark.seed("S15")
def test_lateness_follows_the_interval() -> None:
    slow = ArbiterSettings(interval_sec=10.0, threshold=2)
    _, verdict = run([ABNORMAL] * 2, slow)
    assert verdict.end_supervisor
    assert "2 x 10 s" in verdict.reason


def test_the_reason_names_everything_that_was_counted() -> None:
    both = Situation(counted=("endpoint 0: dead", "start limit of exporter"), generation=1, frozen=False)
    _, verdict = run([both] * 5)
    assert verdict.reason == "abnormal for 5 x 3 s: endpoint 0: dead; start limit of exporter"


def test_the_verdict_is_given_again_until_it_is_carried_out() -> None:
    _, verdict = run([ABNORMAL] * 7)
    assert verdict.end_supervisor


def test_a_first_tick_is_never_late() -> None:
    arbiter, verdict = tick(Arbiter(generation=1), ABNORMAL, SETTINGS, 9999.0)
    assert (arbiter.count, verdict) == (1, GO_ON)


ticks = st.lists(
    st.tuples(st.sampled_from([WELL, ABNORMAL, FROZEN, NEW_GENERATION]), st.sampled_from([0.1, 3.0, 6.0, 7.0, 900.0])),
    max_size=60,
)


@given(ticks)
def test_the_end_comes_only_after_a_whole_threshold_of_plain_abnormal_ticks(
    steps: list[tuple[Situation, float]],
) -> None:
    arbiter, now, plain = Arbiter(generation=1), 0.0, 0
    generation = 1
    for situation, gap in steps:
        now += gap
        late = arbiter.last_tick is not None and gap > 6.0
        counts = situation.counted and not situation.frozen and situation.generation == generation and not late
        plain = plain + 1 if counts else 0
        generation = situation.generation
        arbiter, verdict = tick(arbiter, situation, SETTINGS, now)
        assert verdict.end_supervisor is (plain >= SETTINGS.threshold)


# --- a unit that has given up -----------------------------------------------------------------------------------------

BROKEN = GivenUp("StartLimitAction of store: 5 starts", success=False)
FINISHED = GivenUp("StartLimitAction of job: 5 starts", success=True)


def test_a_unit_that_has_given_up_is_not_counted_but_decided_at_once() -> None:
    verdict = at_once(Situation(given_up=(BROKEN,)))
    assert verdict == Verdict(end_supervisor=True, reason=BROKEN.reason)
    assert tick(Arbiter(), Situation(given_up=(BROKEN,)), SETTINGS, 3.0)[1] == verdict


def test_a_freeze_holds_it_back_and_the_tick_after_it_does_not() -> None:
    """While the engines are relaunched the supervisor does not end itself over the monitor."""
    frozen = Situation(given_up=(BROKEN,), frozen=True)
    assert at_once(frozen) == GO_ON
    arbiter, verdict = run([frozen] * 100)
    assert verdict == GO_ON
    assert tick(arbiter, Situation(given_up=(BROKEN,), generation=1), SETTINGS, 303.0)[1].end_supervisor


def test_a_reason_to_restart_the_container_outweighs_work_that_is_done() -> None:
    assert at_once(Situation(given_up=(FINISHED,))) == Verdict(True, FINISHED.reason, success=True)
    for given_up in ((FINISHED, BROKEN), (BROKEN, FINISHED)):
        assert at_once(Situation(given_up=given_up)) == Verdict(True, BROKEN.reason)


def test_when_nobody_has_given_up_only_ticks_decide() -> None:
    assert at_once(ABNORMAL) == GO_ON
