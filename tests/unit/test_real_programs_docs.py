"""Every scenario that docs/real-programs.md tells of is a test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \|.*\| `(test_\w+)` \|$", re.MULTILINE)
ROWS = ROW.findall((TESTS.parent / "docs" / "real-programs.md").read_text())


def test_the_scenarios_are_numbered_without_a_gap() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) >= 7


def test_every_scenario_names_a_test_that_there_is() -> None:
    written = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    assert [name for _, name in ROWS if f"def {name}(" not in written] == []
