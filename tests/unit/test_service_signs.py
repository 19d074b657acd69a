"""What is read from log lines, /proc, notifications and cgroup files, without any of them."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.service.conditions import unmet
from supervisor.service.notifications import Unreadable, event_of
from supervisor.service.oom import oom_kills
from supervisor.service.progress import PATTERNS_KEPT, NewLines, Usage, grown
from supervisor.unit.events import (
    ErrorReported,
    Event,
    KeptAlive,
    Progressed,
    StoppingByItself,
    TimeoutExtended,
    WatchdogChanged,
    WatchdogTriggered,
)
from supervisor.unit.model import Conditions
from supervisor.unit.start_clock import ProgressKind


@pytest.mark.parametrize(
    "lines, new",
    [
        (["loading shard 1", "loading shard 2", "capturing graphs"], [True, False, True]),
        (["a", "b", "a", "b"], [True, True, False, False]),
        (["Loading:  10% |#    | 1/10", "Loading:  90% |#### | 9/10"], [True, False]),
        (["at 0xdeadbeef", "at 0xcafe1234"], [True, False]),
        (["", "  ", "12:03:04"], [False, False, False]),
    ],
)
def test_a_line_says_something_new_by_its_words_alone(lines: list[str], new: list[bool]) -> None:
    seen = NewLines()
    assert [seen.is_new(line) for line in lines] == new


def test_only_the_last_shapes_are_remembered() -> None:
    seen = NewLines()
    words = ["".join(chr(ord("a") + int(digit)) for digit in str(number)) for number in range(PATTERNS_KEPT + 1)]
    assert all(seen.is_new(word) for word in words)
    assert seen.is_new(words[0])
    assert not seen.is_new(words[-1])


def test_what_a_tree_used_between_two_looks() -> None:
    a, b, c = (1, 10), (2, 20), (2, 99)
    before = {a: Usage(100, 5), b: Usage(1000, 50)}
    after = {a: Usage(150, 6), c: Usage(30, 3)}  # b ended, and its number was used again
    assert grown(before, after) == Usage(50 + 30, 1 + 3)


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("WATCHDOG", "1", KeptAlive()),
        ("WATCHDOG", "trigger", WatchdogTriggered()),
        ("WATCHDOG_USEC", "1500000", WatchdogChanged(1.5)),
        ("WATCHDOG_USEC", "0", WatchdogChanged(math.inf)),
        ("WATCHDOG_USEC", "18446744073709551615", WatchdogChanged(math.inf)),
        ("EXTEND_TIMEOUT_USEC", "5000000", TimeoutExtended(5.0)),
        ("STATUS", "loading", Progressed(ProgressKind.WORK)),
        ("STOPPING", "1", StoppingByItself()),
        ("STOPPING", "0", None),
        ("ERRNO", "2", ErrorReported("ENOENT (No such file or directory)")),
        ("BUSERROR", "org.x.\x1bFailed" + "!" * 300, ErrorReported("org.x.?Failed" + "!" * 187)),
        ("RELOADING", "1", None),
        ("BARRIER", "1", None),
        ("X_OTHER", "1", None),
    ],
)
def test_what_a_notification_means(name: str, value: str, expected: Event | None) -> None:
    assert event_of(name, value) == expected


@given(
    st.sampled_from(["WATCHDOG", "WATCHDOG_USEC", "EXTEND_TIMEOUT_USEC", "ERRNO", "BUSERROR", "STOPPING", "X"]),
    st.text() | st.integers().map(str),
)
def test_whatever_is_said_means_something_or_nothing_or_is_refused(name: str, value: str) -> None:
    with suppress(Unreadable):
        event_of(name, value)


@pytest.mark.parametrize("name", ["WATCHDOG_USEC", "EXTEND_TIMEOUT_USEC", "ERRNO"])
@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 4000, "9" * 5000])
def test_a_number_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(Unreadable, match="expected a whole number"):
        event_of(name, value)


def test_the_count_of_oom_kills_is_found_in_either_hierarchy(tmp_path: Path) -> None:
    v2, v1, nothing = tmp_path / "memory.events", tmp_path / "memory.oom_control", tmp_path / "none"
    v2.write_text("low 0\noom 3\noom_kill 2\n")
    v1.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert oom_kills((v2, v1)) == 2
    assert oom_kills((nothing, v1)) == 5
    assert oom_kills((nothing,)) is None


def test_conditions_say_which_does_not_hold() -> None:
    conditions = Conditions(node_rank=0, environment=("A=1", "!B"), path_exists=("/x",))
    assert unmet(conditions, {"NODE_RANK": "0", "A": "1"}, lambda path: True) is None
    assert unmet(conditions, {"A": "1"}, lambda path: True) == "ConditionNodeRank = 0, and the rank is not known yet"
    assert "A=1" in (unmet(conditions, {"NODE_RANK": "0", "A": "2"}, lambda path: True) or "")
    assert "!B" in (unmet(conditions, {"NODE_RANK": "0", "A": "1", "B": ""}, lambda path: True) or "")
    assert "/x" in (unmet(conditions, {"NODE_RANK": "0", "A": "1"}, lambda path: False) or "")
