"""When the canary is sent and what its answers mean: a probe with real work, for an engine that answers and does none.

It is sent only while the engine works for nobody. The engine's token counters tell: they never fall, so two equal
readings IdleSec apart prove that in between nothing was done. Where ranks are counted apart and a request can name one,
each is watched for itself: a server that chooses would lead every request around the rank that hangs.

Only growth that was *seen* counts as work: without counters (no metrics, or none of tokens) a canary is sent every
IdleSec, whatever the engine does meanwhile.

Carrying it out lives in `supervisor.service.canary`; what a verdict does to a unit lives in `machine.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from supervisor.unit import probing
from supervisor.unit.model import Canary, HttpCheck, Probe
from supervisor.unit.probing import Tally, Verdict

NAME = "canary"
"""Of the complaint, and so of the report `unhealthy:canary`."""
METRICS_PATH = "/metrics"

_TOKEN_COUNTER = re.compile(rb"^[^\s#{]*tokens[^\s{]*_total(\{.*\})?[ \t]+([0-9.eE+]+)", re.MULTILINE)
"""vllm:prompt_tokens_total and vllm:generation_tokens_total; the same of sglang:, with --enable-metrics;
llamacpp:prompt_tokens_total and llamacpp:tokens_predicted_total, with --metrics."""
_RANK = re.compile(rb'[{,]engine="(\d+)"')
"""vLLM's label for a data-parallel rank (v1/metrics/loggers.py)."""

Counters = Mapping[str, float]
"""Tokens by rank, as the engine numbers it; empty name: no rank was told."""


class Finding(Enum):
    """What one answer, or a whole round, says of the engine."""

    WORKS = auto()
    STUCK = auto()
    """No answer in time, a broken connection, a 5xx other than 503."""
    BUSY = auto()
    """503: it says itself that it takes nothing now."""
    MISCONFIGURED = auto()
    """It answered, but not as expected (4xx, 429): the request is wrong, and of the engine it tells nothing."""


class Answer(msgspec.Struct, frozen=True):
    finding: Finding
    words: str = ""


class Watch(msgspec.Struct, frozen=True):
    """What is known of an engine that is watched for silence."""

    since: float
    """When the counters were last read for comparison."""
    counted: Counters | None = None
    """Tokens then; None: never seen."""
    tally: Tally = Tally(verdict=Verdict.PASSED, passed_once=True)

    def looks_again_at(self, canary: Canary) -> float:
        return self.since + canary.idle_sec


def tokens(metrics: bytes) -> Counters | None:
    """The sums of all token counters in a Prometheus exposition; None if there are none."""
    found: dict[str, float] = {}
    for labels, value in _TOKEN_COUNTER.findall(metrics):
        rank = _RANK.search(labels)
        name = rank[1].decode() if rank else ""
        found[name] = found.get(name, 0.0) + _number(value)
    return found or None


def metrics_of(check: HttpCheck) -> HttpCheck:
    """Where the engine that is asked by `check` tells its counters."""
    url = urlsplit(check.url)
    return HttpCheck(urlunsplit((url.scheme, url.netloc, METRICS_PATH, "", "")), headers=check.headers)


def looked(canary: Canary, watch: Watch, counted: Counters | None, now: float) -> tuple[Watch, tuple[int, ...]]:
    """The counters were read (None: they could not be); the ranks behind the port that are to be asked now, from 0."""
    seen = replace(watch, since=now, counted=watch.counted if counted is None else counted)
    everyone = tuple(range(canary.requests or 1))
    if counted is None or watch.counted is None:
        return seen, everyone
    ranks = sorted(counted, key=lambda name: (len(name), name))
    still = tuple(number for number, name in enumerate(ranks) if counted[name] == watch.counted.get(name))
    if canary.rank_header is not None and len(ranks) == len(everyone):
        return seen, still
    return seen, everyone if len(still) == len(ranks) else ()


def question(canary: Canary, check: HttpCheck, rank: int) -> HttpCheck:
    if canary.rank_header is None:
        return check
    return replace(check, headers=(*check.headers, (canary.rank_header, str(rank))))


def of_rank(canary: Canary, answer: Answer, rank: int) -> Answer:
    """For people, where it is known who has answered."""
    if canary.rank_header is None or not answer.words:
        return answer
    return replace(answer, words=f"rank {rank}: {answer.words}")


def judge_answer(status: int, complaint: str | None) -> Answer:
    """`complaint`: what the check's expectations say of the answer."""
    words = complaint or f"HTTP {status}"
    if status == 503:
        return Answer(Finding.BUSY, words)
    if status >= 500:
        return Answer(Finding.STUCK, words)
    return Answer(Finding.WORKS) if complaint is None else Answer(Finding.MISCONFIGURED, words)


def judge_round(answers: Sequence[Answer]) -> Answer:
    """Behind one port there may be several ranks, so that one good answer proves nothing: the worst counts."""
    for finding in (Finding.STUCK, Finding.MISCONFIGURED, Finding.BUSY):
        found = [answer for answer in answers if answer.finding is finding]
        if found:
            share = f"{len(found)} of {len(answers)} requests: " if len(answers) > 1 else ""
            return Answer(finding, share + found[0].words)
    return Answer(Finding.WORKS)


def answered(canary: Canary, watch: Watch, answer: Answer) -> tuple[Watch, Verdict | None]:
    """A round is over; the second value is the verdict if this one changed it.

    An answer that tells nothing breaks a row of failures and leaves a verdict that stands.
    """
    match answer.finding:
        case Finding.WORKS | Finding.STUCK:
            tally, verdict = probing.count(_thresholds(canary), watch.tally, answer.finding is Finding.WORKS)
            return replace(watch, tally=tally), verdict
        case Finding.BUSY | Finding.MISCONFIGURED:
            return replace(watch, tally=replace(watch.tally, failures=0, successes=0)), None


def _thresholds(canary: Canary) -> Probe:
    assert canary.check is not None, "a canary without a request is never sent"
    return Probe(canary.check, failure_threshold=canary.failure_threshold)


def _number(written: bytes) -> float:
    try:
        return float(written)
    except ValueError:
        return 0.0
