"""The JSON Schema of a unit file, made from the table of keys: for editors, and for whoever checks files elsewhere.

What keys have to do with each other and with the machine is more than a schema can say: `podvisor verify` has the
last word. Whatever `verify` takes, the schema takes too; a test holds it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

import msgspec

from supervisor.unit.keys import LIVENESS_ACTION, SECTIONS, Key, Table
from supervisor.unit.quantities import format_duration
from supervisor.unit.values import UnexpectedValue

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, object]


def schema() -> Schema:
    """Of a unit file, and of a drop-in."""
    return {
        "$schema": DRAFT,
        "title": "podvisor unit file",
        "description": "One unit; the file's name is the unit's name.",
        "type": "object",
        "properties": {name: _table(table) for name, table in SECTIONS.items()},
        "additionalProperties": False,
    }


def _entry(entry: Key | Table, defaults: Mapping[str, object]) -> Schema:
    return _table(entry) if isinstance(entry, Table) else _key(entry, defaults)


def _key(key: Key, defaults: Mapping[str, object]) -> Schema:
    words = f"{_sentence(key.doc)} Expected: {key.convert.expected}."
    if key.default:
        words += f" Default: {key.default}."
    made: Schema = {"description": words, **key.convert.schema}
    if not key.default and key.target in defaults:
        made |= {"default": spelled for spelled in _spelled(key, defaults[key.target])}  # noqa: B035  # one, or none
    return made


def _table(table: Table) -> Schema:
    defaults = _defaults(table)
    made: Schema = {
        "type": "object",
        "properties": {name: _entry(entry, defaults) for name, entry in table.entries.items()},
        "additionalProperties": False,
    }
    if table.required:
        made["required"] = [*table.required]
    sharing = [name for name, entry in table.entries.items() if entry.target == "check"]
    if len(sharing) > 1:
        made["oneOf"] = [{"required": [name]} for name in sharing]
    if table.shorthand is not None:
        short = table.entries[table.shorthand]
        assert isinstance(short, Key), f"{table.name}.{table.shorthand} stands for its table: it is a value"
        made = {"anyOf": [short.convert.schema, made]}
    return {"description": _sentence(table.doc), **made}


def _defaults(table: Table) -> dict[str, object]:
    """By the target of the key; without what nothing stands for."""
    plainest = _plainest(table)
    targets = {entry.target for entry in table.entries.values() if isinstance(entry, Key)}
    found = {target: attrgetter(target)(plainest) for target in targets - {"check", LIVENESS_ACTION}}
    return {target: value for target, value in (found | dict(table.defaults)).items() if value not in (None, (), "")}


def _plainest(table: Table) -> msgspec.Struct:
    """With nothing set but what has to be, and that is of no matter here."""
    if isinstance(table.struct, type):
        needed = (field.name for field in msgspec.structs.fields(table.struct) if field.required)
    else:
        needed = (table.entries[name].target for name in table.required)
    return table.struct(**dict.fromkeys(needed, ""))


def _spelled(key: Key, value: object) -> Iterator[object]:
    """As a file would have it, if a spelling is known that the key reads back as this value."""
    candidates: list[object] = [value]
    if isinstance(value, float):
        candidates.insert(0, format_duration(value))
    if isinstance(value, tuple):
        candidates = [[*value], ["-".join(map(str, item)) if isinstance(item, tuple) else item for item in value]]
    for candidate in candidates:
        try:
            if key.convert(candidate) == value:
                yield candidate
                return
        except UnexpectedValue:
            continue


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
