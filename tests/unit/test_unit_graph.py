"""Requirement and order of units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.graph import Graph, start_order
from supervisor.unit.model import Dependencies, Unit


def _unit(
    name: str,
    *,
    after: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
    wants: tuple[str, ...] = (),
) -> Unit:
    dependencies = Dependencies(after=after, before=before, requires=requires, wants=wants)
    return Unit(name, Path(f"{name}.toml"), dependencies=dependencies)


UNITS = [
    _unit("engine", after=("kv", "gone"), requires=("kv", "gone"), wants=("exporter",)),
    _unit("exporter", after=("engine",)),
    _unit("kv", requires=("disk",)),
    _unit("disk", before=("kv", "gone")),
    _unit("alone"),
]


def test_order() -> None:
    assert start_order(UNITS) == ("alone", "disk", "kv", "engine", "exporter")
    graph = Graph.of(UNITS)
    assert graph.order_after("engine") == {"kv"}
    assert graph.order_after("kv") == {"disk"}


def test_requirements() -> None:
    graph = Graph.of(UNITS)
    assert graph.requirements_of("engine") == {"kv", "gone"}
    assert graph.required_by("kv") == {"engine"}
    assert graph.pulled_in_by("engine") == {"engine", "kv", "disk", "exporter"}
    assert list(graph.missing_requirements()) == [("engine", "gone")]
    assert list(graph.missing_requirements({"gone"})) == []


def test_a_circle_is_spelled_out() -> None:
    units = [_unit("a", after=("b",)), _unit("b"), _unit("c", before=("b",), after=("a",)), _unit("d")]
    assert Graph.of(units).cycle() == ("a", "b", "c")
    with pytest.raises(ValueError, match="in a circle: a after b after c"):
        start_order(units)


def test_a_unit_cannot_wait_for_itself() -> None:
    assert Graph.of([_unit("a", after=("a",))]).cycle() == ("a",)


def test_the_longest_chain_adds_up_what_waits() -> None:
    durations = {"engine": 30.0, "exporter": 5.0, "kv": 10.0, "disk": 1.0, "alone": 40.0}
    assert Graph.of(UNITS).longest_chain(durations) == 46.0
    assert Graph.of([]).longest_chain({}) == 0.0


NAMES = [f"u{number}" for number in range(7)]
EDGES = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)))


def _units(edges: set[tuple[str, str]], *, reverse: bool) -> list[Unit]:
    """Each edge (a, b): b after a, said by either of them."""
    if reverse:
        return [_unit(name, before=tuple(b for a, b in edges if a == name)) for name in NAMES]
    return [_unit(name, after=tuple(a for a, b in edges if b == name)) for name in NAMES]


@given(EDGES, st.permutations(NAMES), st.booleans())
def test_the_order_respects_every_edge(pairs: set[tuple[str, str]], ranking: list[str], reverse: bool) -> None:
    acyclic = {(a, b) for a, b in pairs if ranking.index(a) < ranking.index(b)}
    order = start_order(_units(acyclic, reverse=reverse))
    assert sorted(order) == NAMES
    assert all(order.index(a) < order.index(b) for a, b in acyclic)


@given(EDGES, st.booleans())
def test_either_there_is_an_order_or_a_circle(edges: set[tuple[str, str]], reverse: bool) -> None:
    graph = Graph.of(_units(edges, reverse=reverse))
    cycle = graph.cycle()
    if not cycle:
        assert sorted(graph.start_order()) == NAMES
        return
    for unit, earlier in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        assert earlier in graph.order_after(unit)
    with pytest.raises(ValueError, match="in a circle"):
        graph.start_order()
