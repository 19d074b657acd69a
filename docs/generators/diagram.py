"""State diagrams in Mermaid."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from generators import markdown
from generators.explore import Edge

ANY = "any step"


def diagram(edges: Iterable[Edge], start: str | None = None) -> str:
    """One arrow from place to place, with all its labels; in the order of the edges."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        labels = arrows.setdefault((edge.source, edge.target), [])
        if edge.label and edge.label not in labels:
            labels.append(edge.label)
    return markdown.mermaid("stateDiagram-v2", _lines(arrows, start))


def _lines(arrows: dict[tuple[str, str], list[str]], start: str | None) -> Iterator[str]:
    for place in dict.fromkeys(place for arrow in arrows for place in arrow):
        if _name(place) != place:
            yield f'state "{place}" as {_name(place)}'
    if start is not None:
        yield f"[*] --> {_name(start)}"
    for (source, target), labels in arrows.items():
        yield f"{_name(source)} --> {_name(target)}" + (f" : {', '.join(labels)}" if labels else "")


def _name(place: str) -> str:
    return re.sub(r"\W+", "_", place)


def from_any(edges: Iterable[Edge], steps: Collection[str]) -> Iterator[Edge]:
    """What leads to the same place from everywhere (at least from everywhere else) is one edge, from `ANY`."""
    listed = list(edges)
    sources: dict[tuple[str, str], set[str]] = {}
    for edge in listed:
        sources.setdefault((edge.target, edge.label), set()).add(edge.source)
    everywhere = {way for way, found in sources.items() if found >= set(steps) - {way[0]}}
    for edge in listed:
        if (edge.target, edge.label) not in everywhere:
            yield edge
        elif edge.source in steps:
            yield replace(edge, source=ANY)
