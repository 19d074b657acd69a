"""A graph of units as text: for people, for Graphviz, for Mermaid. Plain functions of what `GET /v1/graph` answers.

Every arrow goes from a unit to one that it names. Requirement and order are told apart: who requires a unit fails
with it, who is part of it or is restarted with it follows it, who comes after it waits for it, and who wants it does
none of these. Two units in conflict have one line between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from supervisor import wire

STATE_COLOURS: Mapping[str | None, str] = {
    "active": "green",
    "activating": "yellow",
    "deactivating": "yellow",
    "failed": "red",
}


class Arrow(NamedTuple):
    text: str
    dot_style: str
    mermaid: str


_REQUIRES = Arrow("==>", "bold", "==>")
_FOLLOWS = Arrow("~~>", "dashed", "-->")
_ARROWS: Mapping[str, Arrow] = {
    "binds-to": _REQUIRES,
    "requires": _REQUIRES,
    "part-of": _FOLLOWS,
    "on-dependency-restart": _FOLLOWS,
    "after": Arrow("-->", "solid", "-->"),
    "wants": Arrow("..>", "dotted", "-.->"),
    "conflicts": Arrow("x-x", "solid, dir = both, arrowhead = tee, arrowtail = tee", "x--x"),
}
"""The strongest first: an arrow is drawn as the strongest thing that it says."""


def ascii_lines(view: wire.GraphView) -> Iterator[str]:
    """One unit after the other in the order of their start, each with what it depends on.

    The number says in which turn a unit can start at the earliest: those with the same number start together.
    """
    turns = _turns(view)
    digits = len(str(max(turns.values(), default=0)))
    width = max((len(edge.target) for edge in view.edges), default=0)
    for unit in sorted(view.units, key=lambda unit: turns[unit.name]):
        state = f": {unit.state}" if unit.state is not None else ""
        words = click.style(f"{unit.name} ({unit.type}){state}", fg=STATE_COLOURS.get(unit.state))
        yield f"{turns[unit.name]:>{digits}}. {words}"
        for target, kinds in _merged(view, unit.name).items():
            yield f"{'':{digits + 2}}{_ARROWS[kinds[0]].text} {target:{width}}  {', '.join(kinds)}"


def dot_lines(view: wire.GraphView) -> Iterator[str]:
    """For `dot -Tsvg`."""
    yield "digraph units {"
    yield "    rankdir = LR"
    yield "    node [shape = box]"
    for name, label in _labels(view).items():
        yield f"    {_quoted(name)} [label = {_quoted(label)}]"
    for source, target, kinds in _arrows(view):
        style, label = _ARROWS[kinds[0]].dot_style, ", ".join(kinds)
        yield f"    {_quoted(source)} -> {_quoted(target)} [style = {style}, label = {_quoted(label)}]"
    yield "}"


def mermaid_lines(view: wire.GraphView) -> Iterator[str]:
    """For a fenced block of Markdown."""
    labels = _labels(view)
    ids = {name: f"{re.sub(r'[^A-Za-z0-9]', '_', name)}_{number}" for number, name in enumerate(labels)}
    yield "graph LR"
    for name, label in labels.items():
        yield f'    {ids[name]}["{label}"]'
    for source, target, kinds in _arrows(view):
        yield f"    {ids[source]} {_ARROWS[kinds[0]].mermaid}|{', '.join(kinds)}| {ids[target]}"


def _labels(view: wire.GraphView) -> dict[str, str]:
    """Of the units, and of what is named and is none."""
    labels = {
        unit.name: f"{unit.name} ({unit.type}{'' if unit.state is None else f', {unit.state}'})" for unit in view.units
    }
    return labels | {edge.target: f"{edge.target} (no unit)" for edge in view.edges if edge.target not in labels}


def _arrows(view: wire.GraphView) -> Iterator[tuple[str, str, list[str]]]:
    for unit in view.units:
        for target, kinds in _merged(view, unit.name).items():
            yield unit.name, target, kinds


def _merged(view: wire.GraphView, source: str) -> dict[str, list[str]]:
    """Everything that one unit has to do with each of the others, the strongest first."""
    found: dict[str, list[str]] = {}
    for kind in _ARROWS:
        for edge in view.edges:
            if edge.source == source and edge.kind == kind:
                found.setdefault(edge.target, []).append(kind)
    return found


def _turns(view: wire.GraphView) -> dict[str, int]:
    """The units come in the order of their start, so those that a unit comes after are numbered before it."""
    turns: dict[str, int] = {}
    for unit in view.units:
        earlier = (edge.target for edge in view.edges if edge.source == unit.name and edge.kind == "after")
        turns[unit.name] = 1 + max((turns[name] for name in earlier), default=0)
    return turns


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
