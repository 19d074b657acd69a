"""The text of a .service file and its drop-ins -> sections of assignments in order, by systemd.syntax(7).

Values are as they stand there; what they mean is `systemd.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from supervisor.convert.remarks import Place
from supervisor.unit.errors import Problem


class Assignment(msgspec.Struct, frozen=True):
    section: str
    key: str
    value: str
    place: Place


def parse_assignments(text: str, path: Path) -> tuple[list[Assignment], list[Problem]]:
    """In the order in which they are written: later ones add to earlier ones, or replace them."""
    found: list[Assignment] = []
    problems: list[Problem] = []
    section = ""
    for number, line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip() or not section:
            expected = "expected Key=Value" if section else "expected [Section] first"
            problems.append(Problem(path, number, section, f"found {line!r}, {expected}"))
            continue
        place = Place(path, number, f"{section}.{key.strip()}")
        found.append(Assignment(section, key.strip(), value.strip(), place))
    return found, problems


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """A backslash at the end of a line becomes a blank, comments between the parts of a line vanish."""
    pending, began = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip(" \t\r")
        if line.startswith(("#", ";")):
            continue
        if pending:
            line = pending + line
        elif not line:
            continue
        else:
            began = number
        if line.endswith("\\"):
            pending = line[:-1] + " "
            continue
        pending = ""
        if line.strip():
            yield began, line.strip()
    if pending.strip():
        yield began, pending.strip()


def effective(assignments: Sequence[Assignment]) -> list[Assignment]:
    """Without those that an empty assignment to the same key, `ExecStart=`, has taken back."""
    kept: list[Assignment] = []
    for each in assignments:
        if each.value:
            kept.append(each)
        else:
            kept = [other for other in kept if (other.section, other.key) != (each.section, each.key)]
    return kept
