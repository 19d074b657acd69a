"""What is being waited for, in one line: which units are on their way, and behind whom. A plain function."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from supervisor import wire
from supervisor.shared.words import duration

SHOWN = 4
"""More units in one line are no longer read."""
_MOVING = ("activating", "deactivating")


def in_motion(units: wire.UnitsView, graph: wire.GraphView, name: str | None, now: datetime) -> str:
    """Of those that have to do with unit `name`, or of all; empty when everything is where it stays."""
    concerned = {unit.name for unit in units.units} if name is None else _connected(graph, name)
    words = [*_words(units, graph, concerned, now)]
    more = f"; and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return "; ".join(words[:SHOWN]) + more


def _words(units: wire.UnitsView, graph: wire.GraphView, concerned: set[str], now: datetime) -> Iterator[str]:
    states = {unit.name: unit.state for unit in units.units}
    for unit in units.units:
        if unit.name not in concerned or unit.state not in _MOVING:
            continue
        if unit.sub_state == "waiting":
            before = _before(graph, unit.name)
            names = ", ".join(other for other in before if states.get(other) != "active") or "its dependencies"
            yield f"{unit.name} waits for {names}"
            continue
        age = (now - datetime.fromisoformat(unit.since)).total_seconds()
        yield f"{unit.name} is {unit.state} ({unit.sub_state}) for {duration(max(0.0, age))}"


def _before(graph: wire.GraphView, name: str) -> list[str]:
    return [edge.target for edge in graph.edges if edge.source == name and edge.kind == "after"]


def _connected(graph: wire.GraphView, name: str) -> set[str]:
    """The unit, and all that it can have to wait for when it starts or stops."""
    found, waiting = {name}, [name]
    while waiting:
        one = waiting.pop()
        others = {edge.target for edge in graph.edges if edge.source == one}
        others |= {edge.source for edge in graph.edges if edge.target == one}
        waiting += others - found
        found |= others
    return found
