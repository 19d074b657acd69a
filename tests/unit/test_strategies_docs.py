"""docs/strategies.md says what the table of selection says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.model.classification import LEVELS
from controller.model.fault import FaultLevel
from controller.model.selection import GRAVE, SICK, Choices, Rule
from controller.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
RULES = Choices(frozenset()).rules
HEADER = "| fault | level | role | strategy | switch | default | if it fails |"


def rows() -> list[list[str]]:
    lines = PAGE.partition(HEADER)[2].strip().splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]


def levels(rule: Rule) -> str:
    if rule.levels == SICK:
        return "any"
    lowest, highest = min(rule.levels), max(rule.levels)
    return lowest.name if lowest == highest else f"{lowest.name}–{highest.name}"


def shown(rule: Rule) -> list[str]:
    role = ", ".join(sorted(rule.roles)) or "any"
    strategy = f"`{rule.strategy}`" if rule.strategy else "none"
    if not rule.switch:
        return [levels(rule), role, strategy, "", ""]
    is_on = getattr(Settings().fault_tolerance_config, rule.switch)
    return [levels(rule), role, strategy, f"`{rule.switch}`", "on" if is_on else "off"]


def test_the_page_has_the_rules_in_their_order() -> None:
    written = [row for row in rows() if not row[0].startswith(("*", "everything"))]
    assert [row[1:6] for row in written] == [shown(rule) for rule in RULES]
    for row, rule in zip(written, RULES, strict=True):
        assert {int(code, 16) for code in re.findall(r"0x[0-9A-Fa-f]+", row[0])} == rule.codes


@pytest.mark.parametrize("name", [name for name in LEVELS if name not in FaultLevel.__members__])
def test_the_page_has_the_foreign_names_of_levels(name: str) -> None:
    assert name in PAGE


def test_what_the_table_says_of_levels_can_be_wrong() -> None:
    assert levels(Rule(None, levels=GRAVE)) == "L4–L6"
