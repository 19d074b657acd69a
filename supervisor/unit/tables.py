"""Reads the sections of one unit file by the tables of `keys.py`, and finds all mistakes that lie in one key."""

from __future__ import annotations

from collections.abc import Collection

from supervisor.unit.errors import Problem
from supervisor.unit.keys import SECTIONS, Key, Table
from supervisor.unit.layers import Layered
from supervisor.unit.structs import build
from supervisor.unit.suggest import SURELY_MEANT, nearest, unknown
from supervisor.unit.toml_lines import KeyPath
from supervisor.unit.values import UnexpectedValue, shown

Fields = dict[str, object]
"""Field -> value, for `structs.build`; only what the file says and the table's own defaults."""


class TableReader:
    """Reads one document; `problems` fills up as it goes."""

    def __init__(self, document: Layered) -> None:
        self.problems: list[Problem] = []
        self._document = document

    def sections(self) -> dict[str, Fields]:
        """The fields of every section that is present."""
        found = {}
        for name, content in self._document.data.items():
            if name in SECTIONS:
                found[name] = self._fields(SECTIONS[name], content, (name,))
            else:
                self._complain((name,), _unknown("section", name, SECTIONS, f"{name}."))
        return found

    def _fields(self, table: Table, content: object, path: KeyPath) -> Fields:
        fields = dict(table.defaults)
        if not isinstance(content, dict):
            if table.shorthand is None:
                self._complain(path, f"found {shown(content)}, expected a table")
                return fields
            content = {table.shorthand: content}
        for name, found in content.items():
            entry, place = table.entries.get(name), (*path, name)
            if entry is None:
                self._complain(place, _unknown("key", name, table.entries, ".".join(map(str, place))))
            elif isinstance(entry, Table):
                self._read_table(entry, found, place, fields)
            else:
                self._read_key(entry, found, place, fields)
        for name in table.required:
            if name not in content:
                self._complain(path, f"the key {name} is missing: {table.entries[name].doc}")
        return fields

    def _read_table(self, table: Table, content: object, path: KeyPath, fields: Fields) -> None:
        before = len(self.problems)
        inner = self._fields(table, content, path)
        if len(self.problems) == before:
            fields[table.target] = build(table.struct, inner)

    def _read_key(self, key: Key, found: object, path: KeyPath, fields: Fields) -> None:
        try:
            value = key.convert(found)
        except UnexpectedValue as error:
            self._complain(path, str(error))
            return
        if key.appends:
            before = fields.get(key.target, ())
            value = (*(before if isinstance(before, tuple) else ()), value)
        fields[key.target] = value

    def _complain(self, path: KeyPath, message: str) -> None:
        self.problems.append(self._document.problem(path, message))


def _unknown(kind: str, name: str, known: Collection[str], in_systemd: str) -> str:
    """Why systemd's is not here is worth more than a name that is only somewhat like it."""
    # Only a mistake pays for the import: `podvisor run` starts without it.
    from supervisor.unit.systemd_losses import why_lost

    why = why_lost(in_systemd)
    if why is None or nearest(name, known, SURELY_MEANT) is not None:
        return unknown(kind, name, known)
    return f"unknown {kind} {name!r}, which is systemd's: {why}"
