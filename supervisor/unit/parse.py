"""Unit files -> units, with all problems of all files at once.

The way of a file: `sources` finds and reads it, `instances` lays the layers over each other, `tables` reads the
keys, `cross_checks` asks whether they go together, `graph` whether the units do. What depends on the machine
(programs, variables) is asked by `podvisor verify` alone, in `supervisor.cli.verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from supervisor.unit.cross_checks import PROBE_SECTIONS, probe_complaints, unit_complaints
from supervisor.unit.endpoints import endpoint_names, with_endpoints
from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.graph import Graph
from supervisor.unit.instances import assemble
from supervisor.unit.keys import CANARY_SECTION as CANARY
from supervisor.unit.keys import LIVENESS_ACTION, SECTIONS
from supervisor.unit.layers import Layered
from supervisor.unit.model import Canary, Engine, Probe, RestartWith, Service, ServiceType, Unit
from supervisor.unit.sources import read_sources
from supervisor.unit.structs import build
from supervisor.unit.suggest import nearest
from supervisor.unit.tables import Fields, TableReader

ENGINE_START_TIMEOUT_SEC = 3600.0
ENGINE_START_STALL_SEC = 300.0
ENGINE_RELAUNCH_STOP_SEC = 1.0
"""Engines that obey are gone after half of it, with requests in flight too; for the others it is all time lost."""


class LoadedUnit(msgspec.Struct, frozen=True):
    """A unit, and where each of its keys was written."""

    unit: Unit
    document: Layered


def load_units(directories: Sequence[Path]) -> tuple[Unit, ...]:
    """All units that run, by name. Raise ConfigurationError with every problem there is."""
    return with_endpoints([loaded.unit for loaded in load(directories)])


def load(directories: Sequence[Path]) -> tuple[LoadedUnit, ...]:
    """What the files declare, for those who have more to say about them; several endpoints are one unit here.

    Raise ConfigurationError with every problem there is.
    """
    units, problems = read(directories)
    if problems:
        raise ConfigurationError(problems)
    return units


def read(directories: Sequence[Path]) -> tuple[tuple[LoadedUnit, ...], list[Problem]]:
    """Those units in which nothing is wrong, and every problem there is."""
    sources, problems = read_sources(directories)
    documents, mistakes = assemble(sources)
    problems += mistakes
    units: list[LoadedUnit] = []
    whole: list[LoadedUnit] = []
    for name, document in documents.items():
        unit, mistakes = parse(name, document)
        problems += mistakes
        units.append(LoadedUnit(unit, document))
        if not mistakes:
            whole.append(units[-1])
    problems += _together(units, set(documents))
    if not (documents or problems):
        message = "no unit is declared here: expected files NAME.toml"
        problems += [Problem(directory, None, "", message) for directory in directories]
    return tuple(whole), sorted(problems, key=lambda problem: (problem.path, problem.line or 0))


def parse(name: str, document: Layered) -> tuple[Unit, list[Problem]]:
    """One unit from its document. With problems in its keys it is no more than what its [Unit] says."""
    reader = TableReader(document)
    sections = reader.sections()
    problems = [*reader.problems]
    problems += [document.problem(path, message) for path, message in probe_complaints(document.data)]
    fields: Fields = {"name": name, "source": document.source, **sections.get("Unit", {})}
    if problems:
        return build(Unit, fields), problems
    unit = build(Unit, fields | _parts(sections))
    return unit, [document.problem(path, message) for path, message in unit_complaints(unit, document.data)]


def _parts(sections: dict[str, Fields]) -> Fields:
    """The structs of the sections that describe more than the unit itself."""
    parts: Fields = {"service": build(Service, _service_defaults(sections) | sections.get("Service", {}))}
    if "Engine" in sections:
        parts["engine"] = build(Engine, sections["Engine"])
    for section in PROBE_SECTIONS:
        if section not in sections:
            continue
        probe = dict(sections[section])
        if LIVENESS_ACTION in probe:
            parts["probes.liveness_action"] = probe.pop(LIVENESS_ACTION)
        parts[SECTIONS[section].target] = build(Probe, probe)
    if CANARY in sections:
        parts[SECTIONS[CANARY].target] = build(Canary, sections[CANARY])
    return parts


def _service_defaults(sections: dict[str, Fields]) -> Fields:
    """What a key means when nobody wrote it depends on what kind of unit it is."""
    if "Engine" in sections:
        return {
            "start.timeout_sec": ENGINE_START_TIMEOUT_SEC,
            "start.stall_sec": ENGINE_START_STALL_SEC,
            "stop.relaunch_timeout_sec": ENGINE_RELAUNCH_STOP_SEC,
        }
    if sections.get("Service", {}).get("type") is ServiceType.ONESHOT:
        return {"start.timeout_sec": float("inf")}
    return {}


def _together(units: Sequence[LoadedUnit], known: set[str]) -> Iterator[Problem]:
    graph = Graph.of([loaded.unit for loaded in units])
    documents = {loaded.unit.name: loaded.document for loaded in units}
    by_name = {loaded.unit.name: loaded.unit for loaded in units}
    for name, missing in graph.missing_requirements(known):
        key = "Requires" if missing in by_name[name].dependencies.requires else "BindsTo"
        guess = nearest(missing, known - {name})
        hint = f"did you mean {guess!r}?" if guess else "write its file, or use Wants if it may be absent"
        yield documents[name].problem(("Unit", key), f"there is no unit {missing!r}; {hint}")
    if cycle := graph.cycle():
        message = f"cannot order the units: {' after '.join((*cycle, cycle[0]))}; take one of these out"
        yield documents[cycle[0]].problem(("Unit", _ordering_key(by_name, cycle[0])), message)
    if circle := graph.following_circle():
        rounds = " follows ".join((*circle, circle[0]))
        message = (
            f"a change of one would go round for ever: {rounds}; take one BindsTo, PartOf or OnDependencyRestart out"
        )
        yield documents[circle[0]].problem(("Unit",), message)
    for name, other in _torn_gangs(graph, by_name):
        message = (
            f"{other} may be one rank of a gang, which is never stopped alone: "
            'give it RestartWith = "local", or do without Conflicts'
        )
        yield documents[name].problem(("Unit", "Conflicts"), message)
    for loaded in units:
        for name in sorted((set(endpoint_names(loaded.unit)) - {loaded.unit.name}) & known):
            message = f"its endpoints are units of their own, and there is a unit {name!r} already"
            yield loaded.document.problem(("Engine", "Endpoints"), message)
    gang = [loaded for loaded in units if _may_be_coordinated(loaded.unit)]
    for loaded in gang[1:]:
        message = (
            f"a second engine in one pod, beside {gang[0].unit.name!r}: one engine may belong to a gang, "
            'give the others RestartWith = "local"'
        )
        yield loaded.document.problem(("Engine",), message)


def _ordering_key(units: Mapping[str, Unit], name: str) -> str:
    """Where this unit says that it waits, if it says so itself and not the other one."""
    return "After" if units[name].dependencies.after else "Before"


def _torn_gangs(graph: Graph, units: Mapping[str, Unit]) -> Iterator[tuple[str, str]]:
    """(who says so, the engine that would be stopped)."""
    for name, unit in units.items():
        for other in sorted(graph.conflicts[name] & set(unit.dependencies.conflicts)):
            for each in (name, other):
                if _may_be_coordinated(units[each]):
                    yield name, each


def _may_be_coordinated(unit: Unit) -> bool:
    return unit.engine is not None and unit.engine.restart_with is not RestartWith.LOCAL
