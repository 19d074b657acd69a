"""Probe thresholds, suspension and periods."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.model import Probe, Probes, TcpCheck
from supervisor.unit.probing import ProbeKind, Tally, Verdict, count, gates, pause_before_next, runnable

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
        (READINESS, 1.0, Tally(), 1.0),
        (READINESS, 1.0, Tally(1, 0, Verdict.PASSED), 10.0),
        (READINESS, 30.0, Tally(1, 0, Verdict.PASSED), 30.0),
        (READINESS, 1.0, Tally(0, 1, Verdict.PASSED), 1.0),
        (READINESS, 1.0, Tally(0, 3, Verdict.FAILED), 1.0),
        (LIVENESS, 5.0, Tally(9, 0, Verdict.PASSED), 5.0),
    ],
)
def test_a_readiness_probe_slows_down_while_it_is_well(
    kind: ProbeKind, period: float, tally: Tally, expected: float
) -> None:
    assert pause_before_next(kind, Probe(CHECK, period_sec=period), tally) == expected
