"""What the demo tells of log lines, in which order, and that it keeps no trouble to itself."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from controller.demo.log_book import LogBook
from controller.demo.log_lines import Line, parse
from controller.demo.narrator import ASSEMBLY, EVENTS, OPERATOR, RELAUNCH, SERVICE, Narrator, Rule, Told, Tone

RUN_ID = "44cd9ee2-916d-4148-8186-f39fd43f62f1"


def line(logger: str, message: str, *, millisecond: int = 0, **fields: object) -> Line:
    time = f"2026-11-29T21:14:39.{millisecond:03d}Z"
    text = json.dumps({"time": time, "level": "INFO", "logger": logger, "message": message, **fields})
    return parse("pod0", 0, text, 0.0)


def told(rules: Sequence[Rule], *lines: Line) -> list[Told]:
    narrator, found = Narrator(rules), []
    for one in lines:
        narrator, words = narrator.tell(one)
        found.append(words)
    return [words for words in found if words is not None]


@pytest.mark.parametrize(
    "rules, heard, words",
    [
        (ASSEMBLY, line(SERVICE, "redis: loading -> ready: ready"), "redis is ready"),
        (ASSEMBLY, line(SERVICE, "engine: start -> ready: started as pid 33"), "engine started, pid 33"),
        (RELAUNCH, line(OPERATOR, "engine of epoch 1 died: killed by SIGKILL", level="ERROR"),
         "engine of epoch 1 died: killed by SIGKILL"),
        (RELAUNCH, line(OPERATOR, "engine stopping -> cleaning", lasted_sec=0.02),
         "process tree is gone (20 ms); hygiene gate begins"),
        (RELAUNCH, line(OPERATOR, "engine loading -> done", lasted_sec=2.3), "new engine is ready (loaded in 2.30 s)"),
        (RELAUNCH, line(EVENTS, f"run {RUN_ID} opened: why", kind="run", epoch=2), "relaunch run opened, epoch 2"),
        (RELAUNCH, line("somebody", f"abort of run {RUN_ID}", level="WARNING"), "abort of run 44cd9ee2"),
        (RELAUNCH, parse("pod0", 0, "[ENGINE RELAUNCH #1] 2026-11-29T21:14:39.000Z epoch=2 x", 0.0),
         "banner [ENGINE RELAUNCH #1]"),
    ],
)  # fmt: skip
def test_a_line_worth_telling_is_told(rules: Sequence[Rule], heard: Line, words: str) -> None:
    assert [one.text for one in told(rules, heard)] == [words]


@pytest.mark.parametrize(
    "heard",
    [
        line("somebody", "nothing special"),
        parse("pod0", 0, "[redis] 21:M * Ready to accept connections", 0.0),
        parse("pod0", 0, '{"not": "ours"}', 0.0),
        line(OPERATOR, "engine starting -> loading"),
    ],
)
def test_the_rest_is_passed_over(heard: Line) -> None:
    assert told(RELAUNCH, heard) == []


def test_the_steps_of_a_run_are_told_with_their_durations() -> None:
    heard = [
        line(EVENTS, "probe: why", kind="run", step="probe", millisecond=0),
        line(EVENTS, "prepare: why", kind="run", step="prepare", millisecond=33),
        line(EVENTS, "all endpoints are normal", kind="run", step="closed", millisecond=53),
    ]
    assert [one.text for one in told(RELAUNCH, *heard)] == [
        "probe: does every supervisor answer?",
        "probe took 33 ms; prepare: every pod stops its engine and cleans up",
        "prepare took 20 ms",
    ]


def test_a_run_that_failed_says_why() -> None:
    heard = [
        line(EVENTS, "probe: why", kind="run", step="probe"),
        line(EVENTS, "pod1 does not answer", kind="run", step="closed", level="ERROR", millisecond=53),
    ]
    last = told(RELAUNCH, *heard)[-1]
    assert (last.text, last.tone) == ("probe took 53 ms; pod1 does not answer", Tone.BAD)


def test_lines_of_several_pods_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("pod0", "pod1")}

    def write(pod: str, message: str, second: int) -> None:
        with logs[pod].open("a") as log:
            log.write(json.dumps({"time": f"2026-11-29T21:14:{second:02d}Z", "logger": "x", "message": message}) + "\n")

    for log in logs.values():
        log.touch()
    book = LogBook({name: partial(list, [log]) for name, log in logs.items()})
    write("pod0", "second", 2)
    assert book.read(before=0.0) == []  # held back: it is younger
    write("pod1", "first", 1)
    write("pod1", "third", 3)
    with logs["pod1"].open("a") as file:
        file.write("unfinished")
    assert [one.record.message for one in book.read(before=float("inf")) if one.record] == ["first", "second", "third"]
    assert [one.number for one in book.of("pod1")] == [0, 1]
