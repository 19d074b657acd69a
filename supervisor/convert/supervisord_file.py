"""The text of a supervisord.conf -> its sections, by the rules of Python's RawConfigParser, which supervisord uses.

Values are as they stand there; what they mean is `supervisord.py`'s. Facts: supervisord's documentation of its
configuration file, and `UnhosedConfigParser` in its options.py (inline comments begin with `;` or `#` after a blank).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from supervisor.convert.remarks import Place
from supervisor.unit.errors import Problem

_SECTION = re.compile(r"\[(?P<name>.+)\]")
_SETTING = re.compile(r"(?P<key>.*?)\s*[=:]\s*(?P<value>.*)")


class Setting(msgspec.Struct, frozen=True):
    value: str
    place: Place


@dataclass
class Section:
    """Filled while the files are read; a later file adds to it, and its keys win."""

    name: str
    place: Place
    settings: dict[str, Setting] = field(default_factory=dict)


def parse_sections(text: str, path: Path, into: dict[str, Section]) -> Iterator[Problem]:
    """Add the sections of one file."""
    section: Section | None = None
    key: str | None = None
    indentation = 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = _without_comment(raw)
        content = line.strip()
        if not content:
            continue
        deeper = len(line) - len(line.lstrip())
        if section is not None and key is not None and deeper > indentation:
            before = section.settings[key]
            section.settings[key] = Setting(f"{before.value}\n{content}", before.place)
            continue
        indentation = deeper
        if found := _SECTION.match(content):
            section, key = (
                into.setdefault(found["name"], Section(found["name"], Place(path, number, found["name"]))),
                None,
            )
            continue
        found = _SETTING.fullmatch(content)
        if section is None or found is None or not found["key"]:
            expected = "expected [section] first" if section is None else "expected key=value"
            yield Problem(path, number, "", f"found {content!r}, {expected}")
            key = None
            continue
        key = found["key"].lower()
        section.settings[key] = Setting(found["value"], Place(path, number, f"{section.name}.{key}"))


def _without_comment(line: str) -> str:
    if line.strip().startswith(("#", ";")):
        return ""
    comment = re.search(r"(?<=\s)[;#]", line)
    return line[: comment.start()] if comment else line
