"""Which log lines tell the story of a relaunch, and in which words. Pure; printing is the command's.

A line without a rule is passed over, unless it is a warning or an error: trouble is always told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from controller.demo.log_lines import ENGINE_BANNER, Line, Record

SERVICE = "supervisor.service.transition_log"
OPERATOR = "supervisor.engine.operator"
HEARTBEAT = "supervisor.engine.heartbeat"
REPORTER = "supervisor.engine.fault_reporter"
EVENTS = "controller.events"
TROUBLE = ("WARNING", "ERROR", "CRITICAL")

_RUN_ID = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class Tone(Enum):
    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    LOUD = "loud"


@dataclass(frozen=True, slots=True)
class Told:
    at: float
    pod: str
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Rule:
    """`words` get the match and the record; None: not worth a word."""

    logger: str
    pattern: re.Pattern[str]
    words: Callable[[re.Match[str], Record], str] | None
    tone: Tone = Tone.PLAIN


def _rule(
    logger: str, pattern: str, words: str | Callable[[re.Match[str], Record], str] | None, tone: Tone = Tone.PLAIN
) -> Rule:
    if isinstance(words, str):
        return Rule(logger, re.compile(pattern), lambda match, _, text=words: match.expand(text), tone)  # type: ignore[misc]
    return Rule(logger, re.compile(pattern), words, tone)


def _lasted(text: str) -> Callable[[re.Match[str], Record], str]:
    """`{}` stands for how long the step before took."""
    return lambda match, record: match.expand(text).replace("{}", milliseconds(record.lasted_sec or 0.0))


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


SILENCE = (
    _rule("controller.app", r"everybody who reaches this controller", None),
    _rule("supervisor.daemon", r"cannot write .*: socket and state are in", None),
    # A supervisor looks for its dependencies before it has started them.
    _rule("supervisor.engine.supervision", r"the engine cannot be prepared: dependency \S+ is (dead|waiting)", None),
)

ASSEMBLY = (
    *SILENCE,
    _rule("controller.app", r"the controller serves", "the controller serves"),
    _rule(SERVICE, r"(?!engine:)(\S+): loading -> ready", r"\1 is ready"),
    _rule(SERVICE, r"(?!engine:)(\S+): start -> exited", r"\1 is done"),
    _rule(HEARTBEAT, r"the controller does not answer", "the controller is not up yet; units start, asking again"),
    _rule(HEARTBEAT, r"registered with", "registered with the controller"),
    _rule(EVENTS, r"run \S+ opened: (all .*)", r"\1: an instance; its engines are started together"),
    _rule(SERVICE, r"engine: start -> (?:loading|ready): started as (.*)", r"engine started, \1"),
    _rule(OPERATOR, r"engine loading -> done", _lasted("engine is ready (loaded in {})")),
    _rule(EVENTS, r"initial -> active", "instance is ACTIVE", Tone.GOOD),
)
"""How the instance comes together, in a few words."""

RELAUNCH = (
    *SILENCE,
    _rule(OPERATOR, r"engine of epoch (\d+) died: (.*)", r"engine of epoch \1 died: \2", Tone.BAD),
    _rule(SERVICE, r"engine: ready -> cleaning", None),
    _rule("supervisor.engine.arbiter", r"abnormal: 1 of \d+ ticks", None),
    _rule(EVENTS, r"(active|initial) -> inactive", "instance is INACTIVE", Tone.BAD),
    _rule(EVENTS, r"run \S+ opened: (.*)", lambda _, record: f"relaunch run opened, epoch {record.epoch}"),
    _rule(EVENTS, r"engine (\d+) on .*; answered (\w+)", r"death report of engine \1 taken; answer: \2"),
    _rule(OPERATOR, r"death report accepted .*: frozen for at most (.*)", r"report accepted: frozen, for at most \1"),
    _rule(OPERATOR, r"engine \w+ -> stopping", "prepare: stopping the engine's whole process tree"),
    _rule(OPERATOR, r"engine stopping -> cleaning", _lasted("process tree is gone ({}); hygiene gate begins")),
    _rule(OPERATOR, r"engine cleaning -> prepared", _lasted("hygiene gate passed ({}): prepared")),
    _rule(OPERATOR, r"engine prepared -> starting", _lasted("start: waited {} at the barrier")),
    _rule(SERVICE, r"engine: start -> (?:loading|ready): started as (.*)", r"new engine started, \1"),
    _rule(OPERATOR, r"engine loading -> done", _lasted("new engine is ready (loaded in {})"), Tone.GOOD),
    _rule(EVENTS, r"inactive -> active", lambda _, record: f"instance is ACTIVE in epoch {record.epoch}", Tone.GOOD),
)
"""Every step, in every pod."""

_STEPS = {
    "probe": "probe: does every supervisor answer?",
    "prepare": "prepare: every pod stops its engine and cleans up",
    "start": "all are prepared, the barrier opens; start: every pod",
    "await": "await: until every engine is ready",
}


@dataclass(frozen=True, slots=True)
class Narrator:
    """A fold over lines: which step of the run is on, and since when."""

    rules: Sequence[Rule]
    step: str = ""
    step_since: float = 0.0

    def tell(self, line: Line) -> tuple[Narrator, Told | None]:
        record = line.record
        if record is None:
            banner = ENGINE_BANNER.match(line.text)
            return self, Told(line.at, line.pod, f"banner [ENGINE RELAUNCH #{banner['number']}]") if banner else None
        for rule in self.rules:
            match = rule.pattern.match(record.message) if rule.logger == record.logger else None
            if match is not None:
                return self, _told(line, rule.words(match, record), rule.tone) if rule.words is not None else None
        if self.rules is RELAUNCH and record.kind == "run" and record.step in (*_STEPS, "closed"):
            return self._next_step(line, record)
        if record.level in TROUBLE:
            return self, _told(line, record.message, Tone.BAD)
        return self, None

    def _next_step(self, line: Line, record: Record) -> tuple[Narrator, Told | None]:
        step = record.step or ""
        is_over = step == "closed"
        if step == self.step or (is_over and not self.step):
            return self, None
        after = replace(self, step="" if is_over else step, step_since=line.at)
        parts = [f"{self.step} took {milliseconds(line.at - self.step_since)}"] if self.step else []
        parts += [_STEPS[step]] if not is_over else []
        is_trouble = record.level in TROUBLE
        parts += [record.message] if is_over and is_trouble else []
        return after, _told(line, "; ".join(parts), Tone.BAD if is_over and is_trouble else Tone.LOUD)


def _told(line: Line, text: str, tone: Tone) -> Told:
    return Told(line.at, line.pod, _RUN_ID.sub(r"\1", text), tone)
