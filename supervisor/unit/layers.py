"""A unit file and its drop-ins as one document that remembers where every key comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from supervisor.unit.errors import Problem
from supervisor.unit.toml_lines import Document, KeyPath


class Origin(msgspec.Struct, frozen=True):
    """Where a key was written."""

    path: Path
    line: int


class Layered(msgspec.Struct, frozen=True):
    """What several files say together."""

    source: Path
    """The lowest layer: stands for the whole where nothing nearer is known."""
    data: Mapping[str, object]
    origins: Mapping[KeyPath, Origin]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Located at that key, or at the nearest table around it."""
        key, nearest = ".".join(str(part) for part in path), path
        while nearest and nearest not in self.origins:
            nearest = nearest[:-1]
        if not nearest:
            return Problem(self.source, None, key, message)
        origin = self.origins[nearest]
        return Problem(origin.path, origin.line, key, message)


def layer(source: Path, document: Document) -> Layered:
    """One file, alone."""
    origins = {path: Origin(source, line) for path, line in document.lines.items()}
    return Layered(source, document.data, origins)


def merge(base: Layered, over: Layered) -> Layered:
    """Key by key: tables merge, everything else, arrays included, is replaced by `over`."""
    replaced: set[KeyPath] = set()
    data = _merge_tables(base.data, over.data, (), replaced)
    kept = {path: origin for path, origin in base.origins.items() if not _inside(path, replaced)}
    return Layered(base.source, data, {**over.origins, **kept})


def _merge_tables(
    base: Mapping[str, object], over: Mapping[str, object], path: KeyPath, replaced: set[KeyPath]
) -> dict[str, object]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            merged[key] = _merge_tables(inner, value, (*path, key), replaced)
        else:
            merged[key] = value
            replaced.add((*path, key))
    return merged


def _inside(path: KeyPath, replaced: set[KeyPath]) -> bool:
    return any(path[:length] in replaced for length in range(1, len(path) + 1))


def instantiate(template: Layered, instance: str) -> Layered:
    """`%i` in every string becomes the instance's name; `%%i` stays `%i`, as in systemd.unit(5)."""
    return replace(template, data={key: _filled(value, instance) for key, value in template.data.items()})


def _filled(value: object, instance: str) -> object:
    match value:
        case str():
            return re.sub(r"%(%?)i", lambda found: "%i" if found[1] else instance, value)
        case list():
            return [_filled(item, instance) for item in value]
        case dict():
            return {key: _filled(item, instance) for key, item in value.items()}
        case _:
            return value
