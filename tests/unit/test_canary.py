"""When the canary is sent and what counts, as plain functions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.unit import canary as rules
from supervisor.unit.canary import Answer, Finding, Watch
from supervisor.unit.model import Canary, HttpCheck
from supervisor.unit.probing import Verdict

CANARY = Canary(check=HttpCheck("http://127.0.0.1:8000/v1/completions", "POST", body="{}"))
WORKS, STUCK = Answer(Finding.WORKS), Answer(Finding.STUCK, "no answer within 30 s")
BUSY, WRONG = Answer(Finding.BUSY, "HTTP 503"), Answer(Finding.MISCONFIGURED, "HTTP 401")


Reading = float | tuple[float, ...] | None
"""Of the only rank, or of each."""


def counters(reading: Reading) -> dict[str, float] | None:
    if reading is None:
        return None
    return {str(rank): tokens for rank, tokens in enumerate(reading if isinstance(reading, tuple) else (reading,))}


def sent(*readings: Reading, canary: Canary = CANARY) -> list[tuple[int, ...]]:
    """For each reading after the first, ten seconds apart: the ranks that are asked."""
    watch, asked = Watch(0.0, counters(readings[0])), []
    for number, reading in enumerate(readings[1:], 1):
        watch, ranks = rules.looked(canary, watch, counters(reading), 10.0 * number)
        asked.append(ranks)
        assert watch.looks_again_at(canary) == 10.0 * (number + 1)
    return asked


@pytest.mark.parametrize(
    "readings, expected",
    [
        ((5.0, 5.0, 5.0), "!!"),
        ((5.0, 6.0, 7.0, 7.0), "..!"),
        ((5.0, 0.0, 0.0), ".!"),  # it counts anew: somebody is at work
        ((None, None, None), "!!"),  # no counters: nothing that is seen says that it works
        ((None, 5.0, 5.0, 9.0), "!!."),
        ((5.0, None, 9.0), "!."),  # what was missed in between is seen in the end
    ],
)
def test_it_is_sent_when_nothing_was_seen_to_be_counted(readings: tuple[float | None, ...], expected: str) -> None:
    assert ["!" if ranks else "." for ranks in sent(*readings)] == list(expected)


BY_NAME = replace(CANARY, requests=3, rank_header="X-Rank")


@pytest.mark.parametrize(
    "readings, asked",
    [
        (((5.0, 5.0, 5.0), (5.0, 5.0, 5.0)), (0, 1, 2)),
        (((5.0, 5.0, 5.0), (6.0, 5.0, 7.0)), (1,)),  # who works for others is not asked, whoever else stands still
        (((5.0, 5.0, 5.0), (6.0, 6.0, 6.0)), ()),
        (((5.0, 5.0), (6.0, 6.0)), ()),  # of whom the numbers are cannot be told: their sum counts
        (((5.0, 5.0), (6.0, 5.0)), ()),
        (((5.0, 5.0), (5.0, 5.0)), (0, 1, 2)),
        ((None, (5.0, 5.0, 5.0)), (0, 1, 2)),
    ],
)
def test_each_rank_that_stands_still_is_asked_by_its_number(
    readings: tuple[Reading, ...], asked: tuple[int, ...]
) -> None:
    """A rank that hangs beside one that is busy is found too, and a server that chooses itself would avoid it."""
    assert sent(*readings, canary=BY_NAME) == [asked]


def test_without_a_way_to_name_a_rank_all_must_stand_still() -> None:
    chosen = replace(CANARY, requests=2)
    assert sent((5.0, 5.0), (6.0, 5.0), (6.0, 5.0), canary=chosen) == [(), (0, 1)]


def test_the_eleventh_rank_comes_after_the_tenth() -> None:
    many = replace(BY_NAME, requests=12)
    before = tuple(float(rank) for rank in range(12))
    assert sent(before, tuple(tokens + (rank != 10) for rank, tokens in enumerate(before)), canary=many) == [(10,)]


def test_a_question_names_its_rank_and_so_does_the_answer() -> None:
    check = BY_NAME.check
    assert check is not None
    assert rules.question(BY_NAME, check, 2) == replace(check, headers=(("X-Rank", "2"),))
    assert rules.question(CANARY, check, 0) is check
    assert rules.of_rank(BY_NAME, STUCK, 2).words == "rank 2: no answer within 30 s"
    assert rules.of_rank(BY_NAME, WORKS, 2) is WORKS
    assert rules.of_rank(CANARY, STUCK, 0) is STUCK


VLLM = b"""# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a}b"} 12.0
vllm:prompt_tokens_total{engine="1",model_name="a}b"} 30.0
vllm:generation_tokens_total{engine="0",model_name="a}b"} 1e3
vllm:iteration_tokens_total_sum{engine="0"} 77.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0"} 3.0
vllm:prompt_tokens_created{engine="0"} 1.7e9
vllm:num_requests_running{engine="0"} 4.0
"""


@pytest.mark.parametrize(
    "metrics, expected",
    [
        (VLLM, {"0": 1012.0, "1": 30.0}),
        (b'sglang:prompt_tokens_total{model_name="m"} 8.0e+06\nsglang:generation_tokens_total 2\n', {"": 8000002.0}),
        (b"llamacpp:prompt_tokens_total 7\nllamacpp:tokens_predicted_total 5\n", {"": 12.0}),
        (b"vllm:num_requests_running 4.0\nprocess_cpu_seconds_total 3\n", None),
        (b"<html>no metrics</html>", None),
        (b"vllm:prompt_tokens_total e.e\n", {"": 0.0}),
        (b"", None),
    ],
)
def test_the_token_counters_of_the_engines_are_found(metrics: bytes, expected: dict[str, float] | None) -> None:
    assert rules.tokens(metrics) == expected


def test_the_counters_are_asked_for_where_the_work_is_asked_for() -> None:
    check = HttpCheck("https://[::1]:8000/v1/completions?x=1", "POST", (("Authorization", "Bearer t"),), "{}")
    assert rules.metrics_of(check) == HttpCheck("https://[::1]:8000/metrics", headers=check.headers)


@pytest.mark.parametrize(
    "status, complaint, finding",
    [
        (200, None, Finding.WORKS),
        (200, "its body does not match", Finding.MISCONFIGURED),
        (401, "HTTP 401", Finding.MISCONFIGURED),
        (429, "HTTP 429", Finding.MISCONFIGURED),
        (404, "HTTP 404", Finding.MISCONFIGURED),
        (301, "HTTP 301", Finding.MISCONFIGURED),
        (500, "HTTP 500", Finding.STUCK),
        (504, None, Finding.STUCK),
        (503, "HTTP 503", Finding.BUSY),
    ],
)
def test_only_what_an_engine_cannot_help_counts_against_it(
    status: int, complaint: str | None, finding: Finding
) -> None:
    assert rules.judge_answer(status, complaint).finding is finding


@pytest.mark.parametrize(
    "answers, expected",
    [
        ([WORKS], WORKS),
        ([WORKS, WORKS], WORKS),
        ([STUCK], STUCK),
        ([WORKS, STUCK, WRONG], Answer(Finding.STUCK, "1 of 3 requests: no answer within 30 s")),
        ([WORKS, WRONG], Answer(Finding.MISCONFIGURED, "1 of 2 requests: HTTP 401")),
        ([BUSY, WORKS], Answer(Finding.BUSY, "1 of 2 requests: HTTP 503")),
    ],
)
def test_of_a_round_the_worst_counts(answers: list[Answer], expected: Answer) -> None:
    assert rules.judge_round(answers) == expected


def verdicts(*rounds: Answer) -> str:
    watch, told = Watch(0.0), ""
    for answer in rounds:
        watch, verdict = rules.answered(CANARY, watch, answer)
        told += "." if verdict is None else verdict.name[0]
    return told


@pytest.mark.parametrize(
    "rounds, expected",
    [
        ((STUCK,), "."),
        ((STUCK, STUCK, STUCK), ".F."),
        ((STUCK, WORKS, STUCK), "..."),
        ((STUCK, STUCK, WORKS), ".FP"),
        ((STUCK, WRONG, STUCK), "..."),  # not in a row
        ((STUCK, STUCK, WRONG, BUSY, WORKS), ".F..P"),  # what tells nothing takes nothing back
        ((WRONG,) * 20, "." * 20),
        ((BUSY,) * 20, "." * 20),
    ],
)
def test_verdicts(rounds: tuple[Answer, ...], expected: str) -> None:
    assert verdicts(*rounds) == expected


@given(st.lists(st.sampled_from([WORKS, STUCK, BUSY, WRONG])))
def test_it_fails_only_after_two_in_a_row_and_recovers_only_by_work(rounds: list[Answer]) -> None:
    watch, stands = Watch(0.0), Verdict.PASSED
    for before, answer in itertools.pairwise([WORKS, *rounds]):
        watch, verdict = rules.answered(CANARY, watch, answer)
        if verdict is Verdict.FAILED:
            assert before is answer is STUCK
        if verdict is Verdict.PASSED:
            assert stands is Verdict.FAILED
            assert answer is WORKS
        stands = verdict or stands
