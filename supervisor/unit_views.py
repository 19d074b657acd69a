"""Declared units, their problems and what a reload makes of them, as the API and the CLI show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from supervisor import wire
from supervisor.unit.errors import Problem
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit

if TYPE_CHECKING:
    from supervisor.reload import Outcome


def type_of(unit: Unit) -> str:
    return "engine" if unit.engine is not None else unit.service.type.value


def problem_view(problem: Problem) -> wire.ProblemView:
    return wire.ProblemView(path=str(problem.path), line=problem.line, key=problem.key, message=problem.message)


def problems_body(problems: Sequence[Problem]) -> wire.ProblemsBody:
    return wire.ProblemsBody(
        error=wire.ErrorCode.MALFORMED,
        message="\n".join((*map(str, problems), "nothing was changed")),
        problems=tuple(map(problem_view, problems)),
    )


def reload_view(outcome: Outcome, *, dry_run: bool) -> wire.ReloadView:
    return wire.ReloadView(
        dry_run=dry_run,
        units=tuple(
            wire.UnitReloadView(
                name=verdict.name,
                change=verdict.change,
                action=verdict.deed,
                keys=tuple(wire.KeyChangeView(key=change.key, takes=change.takes) for change in verdict.keys),
                reason=verdict.reason,
            )
            for verdict in outcome.verdicts
        ),
        settings=outcome.settings,
        survivors=tuple(f"{name}: {'; '.join(report.survivors)}" for name, report in outcome.left.items()),
    )


def graph_view(units: Sequence[Unit], states: Mapping[str, str]) -> wire.GraphView:
    """`states` may be empty: then it is drawn from files."""
    graph, by_name = Graph.of(units), {unit.name: unit for unit in units}
    order = graph.start_order()
    kinds = {
        "binds-to": graph.binds_to,
        "requires": {name: others - graph.binds_to[name] for name, others in graph.requires.items()},
        "part-of": graph.part_of,
        "on-dependency-restart": graph.restarts_with,
        "after": graph.after,
        "wants": graph.wants,
        "conflicts": {unit.name: frozenset(unit.dependencies.conflicts) for unit in units},
    }
    return wire.GraphView(
        units=tuple(wire.NodeView(name=name, type=type_of(by_name[name]), state=states.get(name)) for name in order),
        edges=tuple(
            wire.EdgeView(source=name, target=other, kind=kind)
            for name in order
            for kind, edges in kinds.items()
            for other in sorted(edges[name])
        ),
    )
