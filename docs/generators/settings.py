"""settings.md: the sections and keys of podvisor.toml that each of the two programs reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller import sections as of_the_controller
from generators import markdown
from generators.markdown import code
from generators.written import as_written
from supervisor import settings as of_the_supervisor
from supervisor.settings_file import PREFIX, Key, keys_of
from supervisor.unit.values import Converter

SOURCES = ("supervisor/settings.py", "controller/sections.py")
INTRODUCTION = """
One file may serve both programs, as TOML or as `.json`; each ignores what only the other reads.
A variable overrides the file: it is read as a TOML value if it is one, else as text.
What does not fit is an error with file and line, exit code 78.
"""
HEADER = ("key", "expected", "default", "read by", "variable", "meaning")


class Program(msgspec.Struct, frozen=True):
    name: str
    sections: Mapping[str, type]


PROGRAMS = (
    Program("supervisor", of_the_supervisor.SECTIONS),
    Program("controller", of_the_controller.SECTIONS),
)


def page() -> str:
    names = dict.fromkeys(name for program in PROGRAMS for name in program.sections)
    return markdown.page("Settings", SOURCES, INTRODUCTION, *(_section(name) for name in names))


def _section(name: str) -> str:
    """A key that both programs read in the same way has one row, else one for each."""
    readers: dict[tuple[str, ...], list[str]] = {}
    for program in PROGRAMS:
        for key in keys_of(program.sections[name]).values() if name in program.sections else ():
            readers.setdefault(_described(key), []).append(program.name)
    order = {key: place for place, key in enumerate(dict.fromkeys(key for key, *_ in readers))}
    rows = [
        (code(key), expected, default, " and ".join(programs), code(f"{PREFIX}{name}__{key}".upper()), doc)
        for (key, expected, default, doc), programs in readers.items()
    ]
    return f"## [{name}]\n\n" + markdown.table(HEADER, sorted(rows, key=lambda row: order[row[0].strip("`")]))


def _described(key: Key) -> tuple[str, str, str, str]:
    return key.name, expected(key), as_written(key.convert, key.default), key.doc


def expected(key: Key) -> str:
    assert isinstance(key.convert, Converter), key.convert
    return key.convert.expected
