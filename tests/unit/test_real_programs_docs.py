"""Every scenario that docs/real-programs.md tells of is a test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \|.*\| (`test_[^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((TESTS.parent / "docs" / "real-programs.md").read_text())


def test_the_scenarios_are_numbered_without_a_gap() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) == 14


def test_every_scenario_names_a_test_that_there_is() -> None:
    written = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = [name for _, cell in ROWS for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in named if f"def {name}(" not in written] == []
