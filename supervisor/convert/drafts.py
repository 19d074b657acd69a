"""A unit file in the making, and the gate through which it leaves: only what our own parser takes comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from supervisor.convert.remarks import Place, Remark, lost
from supervisor.convert.toml_text import Value, document
from supervisor.unit.layers import Layered, instantiate, layer
from supervisor.unit.parse import parse
from supervisor.unit.toml_lines import KeyPath, read_toml

SAMPLE_INSTANCE = "0"
_SECTION_ORDER = ("Unit", "Service")


@dataclass
class Draft:
    """Written to by one conversion, key by key."""

    name: str
    place: Place
    """Where the foreign unit begins."""
    tables: dict[str, dict[str, Value]] = field(default_factory=dict)
    places: dict[tuple[str, str], Place] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    instances: tuple[str, ...] = ()
    """Of a template."""
    enabled: bool = True
    """Whether it was started by itself."""

    @property
    def template(self) -> bool:
        return self.name.endswith("@")

    def set(self, section: str, key: str, value: Value, place: Place | None = None) -> None:
        self.tables.setdefault(section, {})[key] = value
        self.places[section, key] = place or self.place

    def has(self, section: str, key: str) -> bool:
        return key in self.tables.get(section, {})


class UnitFile(msgspec.Struct, frozen=True):
    """What is written."""

    name: str
    """`web.toml`; `.toml.off` is a unit that was not started by itself, and is not read as it is."""
    text: str
    source: Place
    remarks: tuple[Remark, ...]


def finished(draft: Draft) -> tuple[tuple[UnitFile, ...], tuple[Remark, ...]]:
    """The files of one draft, and all that is to be said about it. No file if there is no unit left in it.

    Our parser's complaints take away the key that they are about, until there are none.
    """
    while complaint := _first_complaint(draft):
        path, message = complaint
        section, key = (str(part) for part in (*path, "", "")[:2])
        if key not in draft.tables.get(section, {}):
            draft.remarks.append(lost(draft.place, f"this is no unit here: {message}"))
            return (), tuple(draft.remarks)
        del draft.tables[section][key]
        draft.remarks.append(lost(draft.places[section, key], f"{section}.{key} of ours: {message}"))
    return tuple(_files(draft)), tuple(draft.remarks)


def _first_complaint(draft: Draft) -> tuple[KeyPath, str] | None:
    text = document((), _ordered(draft.tables))
    source = Path(f"{draft.name}.toml")
    layered = layer(source, read_toml(text, source))
    name = draft.name
    if draft.template:
        name, layered = name + SAMPLE_INSTANCE, instantiate(layered, SAMPLE_INSTANCE)
    elif "@" in name:
        layered = instantiate(layered, name.partition("@")[2])
    _, problems = parse(name, layered)
    return next(((_path(layered, problem.key), problem.message) for problem in problems), None)


def _path(layered: Layered, key: str) -> KeyPath:
    """Names of variables may hold no dot, so what is before the second one is section and key."""
    section, _, rest = key.partition(".")
    return section, rest.partition(".")[0]


def _files(draft: Draft) -> Iterator[UnitFile]:
    suffix = ".toml" if draft.enabled else ".toml.off"
    text = document(_header(draft), _ordered(draft.tables))
    yield UnitFile(draft.name + suffix, text, draft.place, tuple(draft.remarks))
    for instance in draft.instances:
        said = [f"An instance of {draft.name}.toml: everything is there."]
        yield UnitFile(f"{draft.name}{instance}{suffix}", document(said, {}), draft.place, ())


def _header(draft: Draft) -> Iterator[str]:
    where = f"{draft.place.path}" + (f":{draft.place.line}" if draft.place.line else "")
    yield f"Converted by `podvisor convert` from {where}"
    if not draft.enabled:
        yield "It was not started by itself, so it is not read under this name: rename it to .toml to have it started."
    if draft.template and not draft.instances:
        yield f"A template: an empty file {draft.name}NAME.toml makes a unit of it, or a unit that requires it."
    if draft.remarks:
        yield "Not carried over, or not quite:"
        yield from (f"  {remark}" for remark in draft.remarks)


def _ordered(tables: Mapping[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    known: Sequence[str] = [name for name in _SECTION_ORDER if tables.get(name)]
    return {name: tables[name] for name in known} | {
        name: keys for name, keys in tables.items() if keys and name not in known
    }
