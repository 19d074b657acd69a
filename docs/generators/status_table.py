"""The status table (states.md): `judge` asked for every combination, written down in as few rows as say the same.

A row names only what matters: where no other answer about a fact changes the judgement, the fact is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import msgspec

from supervisor.engine.model.freeze import FreezeLimits, begin
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.status import EngineFacts, Judgement, judge
from supervisor.wire import Step

SOURCE = "supervisor/engine/model/status.py"
NOW = 1.0
FREEZE = begin(FreezeLimits(duration_sec=720.0, silence_sec=60.0), None, NOW)

Case = Mapping[str, object]
QUESTIONS: Mapping[str, Sequence[object]] = {
    "held": (True, False),
    "leaving": (True, False),
    "step": tuple(Step),
    "frozen": (True, False),
    "ever started": (True, False),
    "dead": (True, False),
    "unhealthy": (True, False),
    "in grace": (True, False),
    "ready": (True, False),
}
"""In the order in which a person would ask; each with its answers."""


class Row(msgspec.Struct, frozen=True):
    answers: Mapping[str, tuple[object, ...]]
    judgement: Judgement


def rows() -> list[Row]:
    cases = [dict(zip(QUESTIONS, answers, strict=True)) for answers in product(*QUESTIONS.values())]
    judged = [(case, judge(*_asked(case), NOW)) for case in cases]
    return list(_split(judged, tuple(QUESTIONS), {}))


def _asked(case: Case) -> tuple[Operation, EngineFacts]:
    step = case["step"]
    assert isinstance(step, Step)
    operation = Operation(
        boot_id="boot",
        booted_at=0.0,
        step=step,
        ever_started=bool(case["ever started"]),
        dead=frozenset({0}) if case["dead"] else frozenset(),
        freeze=FREEZE if case["frozen"] else None,
        held_by="an operator" if case["held"] else None,
        held=frozenset({0}) if case["held"] else frozenset(),
        leaving="why" if case["leaving"] else None,
        error="WHY",
    )
    unhealthy = "WHY" if case["unhealthy"] else None
    return operation, EngineFacts(bool(case["ready"]), unhealthy, bool(case["in grace"]))


Judged = Sequence[tuple[Case, Judgement]]


def _split(judged: Judged, questions: Sequence[str], answers: Mapping[str, tuple[object, ...]]) -> Iterator[Row]:
    """One row if all are judged alike; else the first question whose answer matters tells them apart."""
    judgements = {str(judgement): judgement for _, judgement in judged}
    if len(judgements) == 1:
        yield Row(answers, *judgements.values())
        return
    question, *later = questions
    groups = _groups(judged, question)
    for alike, group in groups:
        asked = answers if len(groups) == 1 else {**answers, question: alike}
        yield from _split(group, later, asked)


def _groups(judged: Judged, question: str) -> list[tuple[tuple[object, ...], Judged]]:
    """The answers that lead to the same judgements whatever else is asked, with their cases."""
    by_answer: dict[object, list[tuple[Case, Judgement]]] = {}
    for case, judgement in judged:
        by_answer.setdefault(case[question], []).append((case, judgement))
    alike: dict[str, list[object]] = {}
    for answer, group in by_answer.items():
        alike.setdefault(str([judgement for _, judgement in group]), []).append(answer)
    return [(tuple(those), [pair for answer in those for pair in by_answer[answer]]) for those in alike.values()]
