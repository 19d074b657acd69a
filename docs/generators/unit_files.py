"""unit-files.md: every section and key, from the tables by which unit files are read.

A default is not looked up in the structs but in units: files that do not set the key are parsed, one for each kind of
unit, and what they came to hold is written down.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from generators import markdown
from generators.markdown import code
from generators.written import NOT_SET, as_written
from supervisor.unit.cross_checks import PROBE_SECTIONS
from supervisor.unit.differences import Takes, takes, target_of
from supervisor.unit.keys import LIVENESS_ACTION, SECTIONS, Key, Table
from supervisor.unit.layers import Layered, layer
from supervisor.unit.model import Canary, Unit
from supervisor.unit.parse import parse
from supervisor.unit.toml_lines import read_toml

SOURCES = tuple(f"supervisor/unit/{name}.py" for name in ("keys", "model", "parse", "differences"))
INTRODUCTION = f"""
How files become units, and what the keys have to do with each other, is in [unit files](../unit-files.md).
`{NOT_SET}` means "not set". What a change takes is what [a reload](../operations.md#reloading) does to the unit.
"""
HEADER = ("key", "expected", "default", "a change takes", "meaning")

_PROBES = "\n".join(f"[{section}]\nTcp = 'localhost:1'" for section in PROBE_SECTIONS)
_KINDS = {
    "": f"[Service]\nExecStart = ['true']\n{_PROBES}",
    "oneshots": "[Service]\nExecStart = ['true']\nType = 'oneshot'",
    "engines": f"[Service]\nExecStart = ['true']\n[Engine]\n{_PROBES}",
}
"""Files that set next to nothing, by the kind of unit they make; the plain one first."""
_NO_FIELD_ALONE = frozenset({LIVENESS_ACTION, "check"})
"""Targets that several keys share, or that parse.py moves elsewhere: nothing is in their place by default."""


class Holder(msgspec.Struct, frozen=True):
    """What one table of one file has become."""

    struct: msgspec.Struct
    written: Container[str] = ()
    """Keys that the file does set."""


Holders = Mapping[str, Holder]
"""By the kind of unit."""


def page() -> str:
    units = {kind: _parsed(kind, text) for kind, text in _KINDS.items()}
    sections = [_section(f"[{name}]", name, table, _holders(units, table)) for name, table in SECTIONS.items()]
    tables = [_section(title, title, table, {"": Holder(_smallest(table))}) for title, table in _inner_tables().items()]
    return markdown.page("Keys of unit files", SOURCES, INTRODUCTION, *sections, *tables)


def _parsed(kind: str, text: str) -> tuple[Unit, Layered]:
    path = Path("reference.toml")
    document = layer(path, read_toml(text, path))
    unit, problems = parse("reference", document)
    assert not problems, (kind, problems)
    return unit, document


def _holders(units: Mapping[str, tuple[Unit, Layered]], table: Table) -> Holders:
    """Without the kinds of unit that have no such section."""
    found = {}
    for kind, (unit, document) in units.items():
        struct = attrgetter(table.target)(unit) if table.target else unit
        written = document.data.get(table.name, {})
        if struct is not None and isinstance(written, dict):
            found[kind] = Holder(struct, written)
    return found or {"": Holder(Canary())}  # the one section that no file needs: nothing but its own defaults


def _inner_tables() -> dict[str, Table]:
    """Tables inside sections, once for all places in which they may stand, by the keys that they are values of."""
    places: dict[int, list[str]] = {}
    tables: dict[int, Table] = {}
    for section in SECTIONS.values():
        for entry in section.entries.values():
            if isinstance(entry, Table):
                tables.setdefault(id(entry.entries), entry)
                places.setdefault(id(entry.entries), []).append(f"[{section.name}] {entry.name}")
    return {", ".join(names): tables[number] for number, names in places.items()}


def _smallest(table: Table) -> msgspec.Struct:
    """From what is required alone; what that is plays no part."""
    return table.struct(**{entry.target: "" for name, entry in table.entries.items() if name in table.required})


def _section(title: str, path: str, table: Table, holders: Holders) -> str:
    rows = [_row(entry, f"{path}.{name}", table, holders) for name, entry in table.entries.items()]
    doc = f"{table.doc[0].upper()}{table.doc[1:]}."
    return "\n\n".join((f"## {title}", doc, markdown.table(HEADER, rows)))


def _row(entry: Key | Table, path: str, table: Table, holders: Holders) -> tuple[str, ...]:
    if isinstance(entry, Key):
        expected, default = entry.convert.expected, _default(entry, holders)
    else:
        expected, default = f"a table of {markdown.codes(entry.entries)}", NOT_SET
        if entry.shorthand is not None:
            expected += f", or its {code(entry.shorthand)} alone"
    if entry.name in table.required:
        default = "**required**"
    return code(entry.name), expected, default, _takes(path, entry), entry.doc


def _default(key: Key, holders: Holders) -> str:
    if key.default:
        return key.default
    if key.target in _NO_FIELD_ALONE:
        return NOT_SET
    found = {
        kind: as_written(key.convert, attrgetter(key.target)(holder.struct))
        for kind, holder in holders.items()
        if key.name not in holder.written
    }
    usual = next(iter(found.values()), NOT_SET)
    return "; ".join((usual, *(f"{value} for {kind}" for kind, value in found.items() if value != usual)))


def _takes(path: str, entry: Key | Table) -> Takes:
    """Of the keys of inner tables, whatever the key takes whose value they make."""
    section = SECTIONS.get(path.partition(".")[0])
    return Takes.RESTART if section is None else takes(target_of(section, entry))
