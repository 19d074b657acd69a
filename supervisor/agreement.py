"""Whether an engine's unit file and the pod's settings say the same; asked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor import wire
from supervisor.service.launch import LaunchError, expanded_unit
from supervisor.service.launch_files import declared_files, read_declared
from supervisor.settings import Settings
from supervisor.unit.engine_checks import Complaint, PodFacts, pod_complaints
from supervisor.unit.expand import ExpansionError, undefined_variables
from supervisor.unit.model import Engine, Unit
from supervisor.unit.parallel import Unreadable, has_one_server, ranks_of_gang, sizes_of


def disagreements(unit: Unit, settings: Settings, environment: Mapping[str, str]) -> list[Complaint]:
    """(path of the key, message); none for a unit that is no engine."""
    engine = known_engine(unit, settings, environment)
    if engine is None:
        return []
    first, last = settings.supervisor.rendezvous_ports
    pod = PodFacts(
        nnodes=settings.supervisor.nnodes,
        role=settings.supervisor.role,
        rendezvous_ports=(first, last),
        ports_per_epoch=wire.block_size(range(first, last + 1)),
        declared=_declared(settings),
    )
    return [(("Engine", *path), message) for path, message in pod_complaints(engine, pod)]


def parallel_config(unit: Unit, settings: Settings, environment: Mapping[str, str]) -> wire.ParallelConfig:
    """The gang's sizes, for the controller: the engine's own flags, else [parallel] of the settings."""
    nnodes = settings.supervisor.nnodes
    engine = known_engine(unit, settings, environment)
    try:
        sizes = None if engine is None else sizes_of(engine)
    except Unreadable:
        sizes = None  # known only when the engine is started
    if engine is None or sizes is None:
        return _declared_config(settings)
    ranks = ranks_of_gang(engine, sizes, nnodes)
    world = sizes.world * ranks // sizes.dp
    return wire.ParallelConfig(
        dp_size=ranks,
        pcp_size=sizes.pcp,
        tp_size=sizes.tp,
        ep_size=sizes.ep,
        pp_size=sizes.pp,
        world_size=world,
        local_world_size=max(1, world // nnodes),
    )


def one_server(unit: Unit) -> bool:
    return unit.engine is not None and has_one_server(unit.engine)


def known_engine(unit: Unit, settings: Settings, environment: Mapping[str, str]) -> Engine | None:
    """With the variables expanded that are known before the engine has a place; the others stand as written."""
    if unit.engine is None:
        return None
    here = {"NNODES": str(settings.supervisor.nnodes), "ROLE": settings.supervisor.role}
    try:
        left = {name: f"${{{name}}}" for name in undefined_variables(unit, environment.keys() | here.keys())}
        variables = {**here, **left}
        files = read_declared(declared_files(unit, {**environment, **variables}))
        return expanded_unit(unit, environment, variables, files).engine
    except (ExpansionError, LaunchError):
        return None  # the unit's own problem, and said as such


def _declared(settings: Settings) -> dict[str, int]:
    sizes = settings.parallel
    return {
        "dp_size": sizes.dp_size,
        "tp_size": sizes.tp_size,
        "pp_size": sizes.pp_size,
        "pcp_size": sizes.pcp_size,
        "ep_size": sizes.ep_size,
    }


def _declared_config(settings: Settings) -> wire.ParallelConfig:
    sizes = settings.parallel
    world = sizes.dp_size * sizes.tp_size * sizes.pp_size * sizes.pcp_size
    return wire.ParallelConfig(
        **_declared(settings),
        world_size=world,
        local_world_size=max(1, world // settings.supervisor.nnodes),
    )
