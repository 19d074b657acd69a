"""`Endpoints = N`: one engine's file is N engine processes in this pod, each a unit of its own (design 2).

`engine` becomes `engine@0`, `engine@1`, …; who names `engine` in a dependency means all of them. Ports and device
slices follow from the number where an engine is placed (`supervisor.engine.model.placement`, `devices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from supervisor.unit.model import Dependencies, Engine, Unit

PORTS_APART = 2
"""An endpoint has a service port and may have a management port beside it."""


def endpoint_names(unit: Unit) -> tuple[str, ...]:
    """The names of the units that this one's file makes; its own, unless it is an engine with several endpoints."""
    if unit.engine is None or unit.engine.endpoints == 1:
        return (unit.name,)
    # An instance of a template has an @ already, and a name has only one.
    mark = "-" if "@" in unit.name else "@"
    return tuple(f"{unit.name}{mark}{number}" for number in range(unit.engine.endpoints))


def with_endpoints(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Every unit that is to run, by name."""
    names = {unit.name: endpoint_names(unit) for unit in units}
    several = {name: made for name, made in names.items() if made != (name,)}
    made = [each for unit in units for each in _made_by(unit, names[unit.name])]
    if several:
        made = [replace(unit, dependencies=_renamed(unit.dependencies, several)) for unit in made]
    return tuple(sorted(made, key=lambda unit: unit.name))


def _made_by(unit: Unit, names: tuple[str, ...]) -> list[Unit]:
    if unit.engine is None:
        return [unit]
    engine = replace(unit.engine, declared_by=unit.name)
    return [
        replace(unit, name=name, engine=replace(engine, endpoint_number=number)) for number, name in enumerate(names)
    ]


def _renamed(dependencies: Dependencies, several: Mapping[str, tuple[str, ...]]) -> Dependencies:
    def meant(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for name in names for each in several.get(name, (name,)))

    return replace(
        dependencies,
        after=meant(dependencies.after),
        before=meant(dependencies.before),
        requires=meant(dependencies.requires),
        wants=meant(dependencies.wants),
        binds_to=meant(dependencies.binds_to),
        part_of=meant(dependencies.part_of),
        conflicts=meant(dependencies.conflicts),
        on_restart=tuple(
            (each, action) for name, action in dependencies.on_restart for each in several.get(name, (name,))
        ),
    )


def service_port(engine: Engine, number: int) -> int:
    return engine.base_port + PORTS_APART * number


def management_port(engine: Engine, number: int) -> int:
    """Native engines have no other than the service port."""
    return service_port(engine, number) if engine.mgmt_port is None else engine.mgmt_port + PORTS_APART * number


def bootstrap_port(engine: Engine, number: int) -> int:
    return engine.bootstrap_port + number
