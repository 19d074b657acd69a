"""Probe thresholds, suspension and periods."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.model import Probe, Probes, TcpCheck
from supervisor.unit.probing import (
    FIRST_PAUSE_SEC,
    ProbeKind,
    Tally,
    Verdict,
    count,
    first_tally,
    gates,
    pause_before_next,
    runnable,
)

CHECK = TcpCheck("127.0.0.1:1")
STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS


def verdicts(probe: Probe, answers: str) -> list[str]:
    """What each answer (+ or -) changes: P(assed), F(ailed) or nothing."""
    tally, told = Tally(), []
    for answer in answers:
        tally, verdict = count(probe, tally, answer == "+")
        told.append("." if verdict is None else verdict.name[0])
    return told


@pytest.mark.parametrize(
    "failure, success, answers, expected",
    [
        (3, 1, "+", "P"),
        (3, 1, "++", "P."),
        (3, 1, "--", ".."),
        (3, 1, "---", "..F"),
        (3, 1, "----+", "..F.P"),
        (3, 1, "+--+---", "P.....F"),
        (1, 3, "++-+++", "..F..P"),
        (2, 2, "+-+-+-", "......"),
    ],
)
def test_only_answers_in_a_row_count(failure: int, success: int, answers: str, expected: str) -> None:
    probe = Probe(CHECK, failure_threshold=failure, success_threshold=success)
    assert "".join(verdicts(probe, answers)) == expected


@given(st.lists(st.booleans()), st.integers(1, 5), st.integers(1, 5))
def test_verdicts_alternate_and_have_their_answers(answers: list[bool], failure: int, success: int) -> None:
    probe = Probe(CHECK, failure_threshold=failure, success_threshold=success)
    tally, told = Tally(), []
    for index, answer in enumerate(answers):
        tally, verdict = count(probe, tally, answer)
        if verdict is None:
            continue
        told.append(verdict)
        needed = success if verdict is Verdict.PASSED else failure
        assert answers[index + 1 - needed : index + 1] == [verdict is Verdict.PASSED] * needed
    assert all(one is not other for one, other in itertools.pairwise(told))


ALL = Probes(startup=Probe(CHECK), readiness=Probe(CHECK), liveness=Probe(CHECK))


@pytest.mark.seed("S16")
@pytest.mark.parametrize(
    "probes, passed, expected",
    [
        (ALL, set(), {STARTUP}),
        (ALL, {STARTUP}, {READINESS}),
        (ALL, {STARTUP, READINESS}, {READINESS, LIVENESS}),
        (Probes(readiness=Probe(CHECK), liveness=Probe(CHECK)), set(), {READINESS}),
        (Probes(startup=Probe(CHECK), liveness=Probe(CHECK)), set(), {STARTUP}),
        (Probes(startup=Probe(CHECK), liveness=Probe(CHECK)), {STARTUP}, {LIVENESS}),
        (Probes(liveness=Probe(CHECK)), set(), {LIVENESS}),
        (Probes(), set(), set()),
    ],
)
def test_liveness_is_suspended_until_the_others_have_passed(
    probes: Probes, passed: set[ProbeKind], expected: set[ProbeKind]
) -> None:
    assert runnable(probes, passed) == expected


def test_startup_and_readiness_decide_when_a_unit_is_active() -> None:
    assert gates(ALL) == {STARTUP, READINESS}
    assert gates(Probes(liveness=Probe(CHECK))) == frozenset()


@pytest.mark.parametrize(
    "kind, period, tally, expected",
    [
        (READINESS, 1.0, Tally(1, 0, Verdict.PASSED, True), 10.0),
        (READINESS, 30.0, Tally(1, 0, Verdict.PASSED, True), 30.0),
        (READINESS, 1.0, Tally(0, 1, Verdict.PASSED, True), 1.0),
        (READINESS, 1.0, Tally(0, 3, Verdict.FAILED, True), 1.0),
        (LIVENESS, 5.0, Tally(9, 0, Verdict.PASSED, True), 5.0),
    ],
)
def test_a_readiness_probe_slows_down_while_it_is_well(
    kind: ProbeKind, period: float, tally: Tally, expected: float
) -> None:
    assert pause_before_next(kind, Probe(CHECK, period_sec=period), tally) == expected


def pauses(kind: ProbeKind, probe: Probe, answers: str) -> list[float]:
    """After each answer (+ or -)."""
    tally, found = first_tally(kind), []
    for answer in answers:
        tally, _ = count(probe, tally, answer == "+")
        found.append(pause_before_next(kind, probe, tally))
    return found


@pytest.mark.parametrize("kind", [STARTUP, READINESS])
def test_the_first_tries_follow_each_other_quickly_and_then_slow_down_to_the_period(kind: ProbeKind) -> None:
    """An engine that loads in 30 ms is ready at once, one that loads for minutes is asked at its period."""
    found = pauses(kind, Probe(CHECK, period_sec=1.0), "-------")
    assert found == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_period_that_is_shorter_than_the_first_pause_stays_what_it_is() -> None:
    assert pauses(READINESS, Probe(CHECK, period_sec=0.01), "--") == [0.01, 0.01]


def test_successes_that_have_to_be_in_a_row_come_at_the_period() -> None:
    """Three answers within 150 ms would say little more than one."""
    assert pauses(READINESS, Probe(CHECK, period_sec=1.0, success_threshold=3), "-++") == [0.05, 1.0, 1.0]


def test_after_the_first_pass_nothing_is_quick_any_more() -> None:
    assert pauses(READINESS, Probe(CHECK, period_sec=1.0), "-+---+") == [0.05, 10.0, 1.0, 1.0, 1.0, 10.0]


def test_what_runs_counts_as_alive_until_it_was_seen_to_fail() -> None:
    assert pauses(LIVENESS, Probe(CHECK, period_sec=5.0), "---+") == [5.0] * 4


@given(st.sampled_from(ProbeKind), st.floats(0.001, 3600.0), st.integers(0, 100_000))
def test_a_pause_is_never_longer_than_the_period_of_a_probe_that_fails(
    kind: ProbeKind, period: float, failures: int
) -> None:
    tally = Tally(failures=failures, verdict=Verdict.FAILED)
    pause = pause_before_next(kind, Probe(CHECK, period_sec=period), tally)
    assert min(period, FIRST_PAUSE_SEC) <= pause <= period
