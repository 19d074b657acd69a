"""What a PromQL expression names: metrics, the labels that they are asked for, and those that are kept of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser as promql

OPERANDS = ("lhs", "rhs", "expr", "param")
GRAFANA = {"$__rate_interval": "5m"}


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator and value."""


@dataclass(frozen=True)
class Named:
    selectors: tuple[Selector, ...]
    labels: frozenset[str]
    """Of by, without, on, ignoring and group_left."""


def named_in(expression: str) -> Named:
    """Raises ValueError for what is no PromQL."""
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)
    nodes = list(_nodes(promql.parse(expression)))
    return Named(
        tuple(_selector(node) for node in nodes if isinstance(node, promql.VectorSelector)),
        frozenset(label for node in nodes for label in _grouping(node)),
    )


def _nodes(node: object) -> Iterator[object]:
    yield node
    if isinstance(node, promql.MatrixSelector):
        yield from _nodes(node.vector_selector)
    for below in (*(getattr(node, name, None) for name in OPERANDS), *getattr(node, "args", ())):
        if below is not None:
            yield from _nodes(below)


def _selector(node: promql.VectorSelector) -> Selector:
    matchers = ((one.name, str(one.op).removeprefix("MatchOp."), one.value) for one in node.matchers.matchers)
    assert node.name is not None, "found by its labels alone, a metric of any name would do"
    return Selector(node.name, tuple(matchers))


def _grouping(node: object) -> Iterator[str]:
    """An operator's own text is the one place where all of them stand."""
    modifier = getattr(node, "modifier", None)
    if modifier is not None:
        for labels in re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", str(modifier)):
            yield from (label.strip() for label in labels.split(",") if label.strip())
