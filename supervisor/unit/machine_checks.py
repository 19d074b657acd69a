"""What can be said about units on this machine without running them: programs, variables, ports.

`podvisor verify` asks. `podvisor run` does not: there a missing program is that unit's failure, not everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from supervisor.unit.endpoints import bootstrap_port, management_port, service_port
from supervisor.unit.errors import Problem
from supervisor.unit.expand import ExpansionError, expand, undefined_variables
from supervisor.unit.model import Command, ExecCheck, Unit
from supervisor.unit.parse import LoadedUnit
from supervisor.unit.suggest import nearest
from supervisor.unit.toml_lines import KeyPath

PLACEMENT = frozenset({
    "INSTANCE_ID", "JOB_NAME", "ROLE", "EPOCH", "NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT", "NODE_ADDRS",
    "DP_RANK", "DP_SIZE", "POD_IP", "PORT", "MGMT_PORT", "BOOTSTRAP_PORT", "DEVICE_IDS", "RANKTABLE_FILE",
})  # fmt: skip
"""Design 2. An engine gets them all at its start; another unit only those that are known by then."""
_NODE_ADDRESS = re.compile(r"NODE_ADDR_\d+")


class Machine(msgspec.Struct, frozen=True):
    """What the checks need to know of where they run."""

    variables: Mapping[str, str]
    """The environment that the supervisor would have."""
    why_not: Callable[[str, str | None, str | None], str | None]
    """(program, PATH, working directory) -> why it cannot be run, None if it can."""
    taken_ports: Mapping[int, str]
    """Port -> who of the supervisor itself listens there."""


class Findings(msgspec.Struct, frozen=True):
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def check(units: Sequence[LoadedUnit], machine: Machine) -> Findings:
    """Everything at once."""
    names = frozenset(loaded.unit.name for loaded in units)
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for loaded in units:
        problems += _programs(loaded, machine)
        undefined = [*_undefined(loaded, machine.variables)]
        problems += (problem for certain, problem in undefined if certain)
        warnings += (problem for certain, problem in undefined if not certain)
        warnings += _unknown_names(loaded, names)
    problems += _ports(units, machine.taken_ports)
    return Findings(tuple(problems), tuple(warnings))


def _programs(loaded: LoadedUnit, machine: Machine) -> Iterator[Problem]:
    execution = loaded.unit.service.execution
    variables = {**machine.variables, **dict(execution.environment)}
    for path, program in _commands(loaded.unit):
        try:
            name = expand(program, variables)
            directory = execution.working_directory and expand(execution.working_directory, variables)
            search = expand(variables["PATH"], machine.variables) if "PATH" in variables else None
        except ExpansionError:
            continue  # `_undefined` says so, unless it is known only later
        reason = machine.why_not(name, search, directory)
        if reason is not None:
            yield loaded.document.problem(path, reason)


def _commands(unit: Unit) -> Iterator[tuple[KeyPath, str]]:
    service, probes = unit.service, unit.probes
    several: tuple[tuple[str, Sequence[Command]], ...] = (
        ("ExecStart", [service.exec_start] if service.exec_start else []),
        ("ExecStartPre", service.exec_start_pre),
        ("ExecStartPost", service.exec_start_post),
        ("ExecStop", service.exec_stop),
        ("ExecStopPost", service.exec_stop_post),
    )
    for key, commands in several:
        for command in commands:
            yield ("Service", key), command.argv[0]
    by_section = (("Startup", probes.startup), ("Readiness", probes.readiness), ("Liveness", probes.liveness))
    for section, probe in by_section:
        if probe is not None and isinstance(probe.check, ExecCheck):
            yield (section, "Exec"), probe.check.command.argv[0]
    engine = unit.engine
    if engine is None:
        return
    if engine.command:
        yield ("Engine", "Command"), engine.command[0]
    of_the_engine = (
        ("DiagnoseExec", engine.diagnose_exec),
        ("DeviceHealthProbe", engine.device_health_probe),
        ("RestoreExec", engine.restore_exec),
        ("RecoverExec", engine.recover_exec),
    )
    for key, declared in of_the_engine:
        if declared is not None:
            yield ("Engine", key), declared.argv[0]


def _undefined(loaded: LoadedUnit, variables: Mapping[str, str]) -> Iterator[tuple[bool, Problem]]:
    """(whether the unit is certain to fail, the problem)."""
    unit = loaded.unit
    try:
        names = undefined_variables(unit, variables.keys())
    except ExpansionError as error:
        yield True, loaded.document.problem((), str(error))
        return
    for name in names:
        path = _where(loaded.document.data, name, ())
        if not is_placement(name):
            # What is in an EnvironmentFile is known only when the unit starts.
            certain = not unit.service.execution.environment_files
            yield certain, loaded.document.problem(path, f"${{{name}}} is not set and has no default")
        elif unit.engine is None:
            message = f"${{{name}}} may not be known when the unit starts: give it a default, ${{{name}:-…}}"
            yield False, loaded.document.problem(path, message)


def is_placement(name: str) -> bool:
    return name in PLACEMENT or _NODE_ADDRESS.fullmatch(name) is not None


def _where(value: object, name: str, path: KeyPath) -> KeyPath:
    """The key whose value speaks of the variable."""
    match value:
        case str():
            return path if f"${{{name}" in value else ()
        case dict():
            items: Sequence[tuple[str | int, object]] = list(value.items())
        case list():
            items = list(enumerate(value))
        case _:
            return ()
    return next((found for key, item in items if (found := _where(item, name, (*path, key)))), ())


def _unknown_names(loaded: LoadedUnit, names: AbstractSet[str]) -> Iterator[Problem]:
    """Order and wishes may name what is not there; a slip of the pen looks the same."""
    dependencies = loaded.unit.dependencies
    for key, others in (
        ("After", dependencies.after),
        ("Before", dependencies.before),
        ("Wants", dependencies.wants),
    ):
        for other in others:
            if other not in names:
                guess = nearest(other, names - {loaded.unit.name})
                hint = f"; did you mean {guess!r}?" if guess else ""
                yield loaded.document.problem(("Unit", key), f"there is no unit {other!r}{hint}")


def _ports(units: Sequence[LoadedUnit], taken: Mapping[int, str]) -> Iterator[Problem]:
    owners = dict(taken)
    for loaded in units:
        for key, port in _engine_ports(loaded.unit):
            owner = owners.setdefault(port, f"{loaded.unit.name} ({key})")
            if owner != f"{loaded.unit.name} ({key})":
                yield loaded.document.problem(("Engine", key), f"port {port} belongs to {owner} already")


def _engine_ports(unit: Unit) -> Iterator[tuple[str, int]]:
    engine = unit.engine
    if engine is None:
        return
    for number in range(engine.endpoints):
        yield "BasePort", service_port(engine, number)
        if engine.mgmt_port is not None and engine.mgmt_port != engine.base_port:
            yield "MgmtPort", management_port(engine, number)
        if engine.role in ("prefill", "decode"):
            yield "BootstrapPort", bootstrap_port(engine, number)
