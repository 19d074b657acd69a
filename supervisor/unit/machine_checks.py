"""What can be said about units on this machine without running them: programs, files, variables, ports.

`podvisor verify` asks. `podvisor run` does not: there a missing program is that unit's failure, not everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Literal

import msgspec

from supervisor.unit.endpoints import bootstrap_port, management_port, service_port
from supervisor.unit.errors import Problem
from supervisor.unit.expand import CREDENTIAL, ExpansionError, expand, undefined_variables
from supervisor.unit.model import Command, ExecCheck, Launcher, Unit
from supervisor.unit.parse import LoadedUnit
from supervisor.unit.suggest import nearest
from supervisor.unit.timing_checks import timing_remarks
from supervisor.unit.toml_lines import KeyPath

PLACEMENT = frozenset({
    "INSTANCE_ID", "JOB_NAME", "ROLE", "EPOCH", "NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT", "NODE_ADDRS",
    "DP_RANK", "DP_SIZE", "POD_IP", "PORT", "MGMT_PORT", "BOOTSTRAP_PORT", "DEVICE_IDS", "RANKTABLE_FILE",
})  # fmt: skip
"""Design 2. An engine gets them all at its start; another unit only those that are known by then."""
_NODE_ADDRESS = re.compile(r"NODE_ADDR_\d+")


LAUNCHER_PROGRAMS: Mapping[Launcher, str] = {
    Launcher.LLAMA_SERVER: "llama-server",
    Launcher.SGLANG: "python3",
    Launcher.VLLM: "vllm",
}
"""What is run without a Command; a launcher that is missing here is not looked for."""


AccountKind = Literal["user", "group"]


class Machine(msgspec.Struct, frozen=True):
    """What the checks need to know of where they run."""

    variables: Mapping[str, str]
    """The environment that the supervisor would have."""
    why_not: Callable[[str, str | None, str | None], str | None]
    """(program, PATH, working directory) -> why it cannot be run, None if it can."""
    unreadable: Callable[[str], str | None]
    """Path -> why the file there cannot be read, None if it can."""
    missing: Callable[[str], str | None]
    """Path -> that there is neither a file nor a directory, None if there is."""
    taken_ports: Mapping[int, str]
    """Port -> who of the supervisor itself listens there."""
    unknown_account: Callable[[AccountKind, str], str | None]
    """Why there is no such account, None if there is."""
    unwritable: Callable[[str], str | None]
    """Path -> why no file can be made there, None if it can."""
    cpus: AbstractSet[int]
    """On which we may run."""
    rendezvous_ports: tuple[int, int] | None = None
    """Those that rotate with the epoch."""


FILE = "file:"


class Findings(msgspec.Struct, frozen=True):
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    here: tuple[Problem, ...]
    """Problems on this machine, that another one need not have."""


def check(units: Sequence[LoadedUnit], machine: Machine) -> Findings:
    """Everything at once."""
    names = frozenset(loaded.unit.name for loaded in units)
    problems: list[Problem] = []
    warnings: list[Problem] = []
    here: list[Problem] = []
    for loaded in units:
        here += _programs(loaded, machine)
        here += _files(loaded, machine)
        here += _surroundings(loaded, machine)
        problems += _unreadable_strings(loaded)
        problems += _unknown_credentials(loaded)
        undefined = [*_undefined(loaded, machine.variables)]
        here += (problem for certain, problem in undefined if certain)
        warnings += (problem for certain, problem in undefined if not certain)
        warnings += _unknown_names(loaded, names)
        for remark in timing_remarks(loaded.unit, loaded.document.data):
            (problems if remark.wrong else warnings).append(loaded.document.problem(remark.path, remark.message))
    problems += _ports(units, machine)
    return Findings(tuple(problems), tuple(warnings), tuple(here))


def _programs(loaded: LoadedUnit, machine: Machine) -> Iterator[Problem]:
    execution = loaded.unit.service.execution
    variables = _variables(loaded.unit, machine)
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


def _files(loaded: LoadedUnit, machine: Machine) -> Iterator[Problem]:
    """What the start reads, as far as the path is known now."""
    execution, variables = loaded.unit.service.execution, _variables(loaded.unit, machine)
    files = [("EnvironmentFile", path) for path in execution.environment_files if not path.startswith("-")]
    files += [("LoadCredential", path) for _, path in execution.credentials]
    for key, path in files:
        try:
            reason = machine.unreadable(expand(path, variables))
        except ExpansionError:
            continue
        if reason is not None:
            yield loaded.document.problem(("Service", key), reason)
    yield from _model(loaded, machine)


def _model(loaded: LoadedUnit, machine: Machine) -> Iterator[Problem]:
    """Without a slash in front it is the name of one that the engine fetches."""
    engine = loaded.unit.engine
    try:
        model = expand(engine.model or "", _variables(loaded.unit, machine)) if engine is not None else ""
    except ExpansionError:
        return
    if model.startswith("/") and (reason := machine.missing(model)):
        yield loaded.document.problem(("Engine", "Model"), reason)


def _surroundings(loaded: LoadedUnit, machine: Machine) -> Iterator[Problem]:
    """What a start needs of this machine beside files to read."""
    service, variables = loaded.unit.service, _variables(loaded.unit, machine)
    execution, logging = service.execution, service.logging
    accounts: list[tuple[str, AccountKind, str | None]] = [
        ("User", "user", execution.user),
        ("Group", "group", execution.group),
        *(("SupplementaryGroups", "group", group) for group in execution.supplementary_groups),
    ]  # fmt: skip
    asked: list[tuple[str, str | None, Callable[[str], str | None]]]
    asked = [(key, written, partial(machine.unknown_account, kind)) for key, kind, written in accounts]
    for key, where in (("StandardOutput", logging.stdout), ("StandardError", logging.stderr)):
        if where is not None and where.startswith(FILE):
            asked.append((key, where.removeprefix(FILE), machine.unwritable))
    for key, written, why_not in asked:
        try:
            reason = None if written is None else why_not(expand(written, variables))
        except ExpansionError:
            continue
        if reason is not None:
            yield loaded.document.problem(("Service", key), reason)
    if execution.cpu_affinity is not None and not execution.cpu_affinity & machine.cpus:
        yield loaded.document.problem(("Service", "CPUAffinity"), "there is none of these CPUs here")


def _variables(unit: Unit, machine: Machine) -> Mapping[str, str]:
    return {**machine.variables, **dict(unit.service.execution.environment)}


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
    elif engine.launcher in LAUNCHER_PROGRAMS:
        yield ("Engine", "Launcher"), LAUNCHER_PROGRAMS[engine.launcher]
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
    for name in _undefined_names(unit, variables.keys()):
        if name.startswith(CREDENTIAL):
            continue
        path = _where(loaded.document.data, name, ())
        if not is_placement(name):
            # What is in an EnvironmentFile is known only when the unit starts.
            certain = not unit.service.execution.environment_files
            yield certain, loaded.document.problem(path, f"${{{name}}} is not set and has no default")
        elif unit.engine is None:
            message = f"${{{name}}} may not be known when the unit starts: give it a default, ${{{name}:-…}}"
            yield False, loaded.document.problem(path, message)


def _undefined_names(unit: Unit, known: AbstractSet[str]) -> tuple[str, ...]:
    try:
        return undefined_variables(unit, known)
    except ExpansionError:
        return ()  # `_unreadable_strings` says so


def _unreadable_strings(loaded: LoadedUnit) -> Iterator[Problem]:
    try:
        undefined_variables(loaded.unit, frozenset())
    except ExpansionError as error:
        yield loaded.document.problem((), str(error))


def _unknown_credentials(loaded: LoadedUnit) -> Iterator[Problem]:
    for name in _undefined_names(loaded.unit, frozenset()):
        if name.startswith(CREDENTIAL):
            path = _where(loaded.document.data, name, ())
            message = f'${{{name}}}: expected LoadCredential = ["{name.removeprefix(CREDENTIAL)}:/path"] in this unit'
            yield loaded.document.problem(path, message)


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
        ("PartOf", dependencies.part_of),
        ("Conflicts", dependencies.conflicts),
    ):
        for other in others:
            if other not in names:
                guess = nearest(other, names - {loaded.unit.name})
                hint = f"; did you mean {guess!r}?" if guess else ""
                yield loaded.document.problem(("Unit", key), f"there is no unit {other!r}{hint}")


def _ports(units: Sequence[LoadedUnit], machine: Machine) -> Iterator[Problem]:
    owners = dict(machine.taken_ports)
    first, last = machine.rendezvous_ports or (0, 0)
    for loaded in units:
        for key, port in _engine_ports(loaded.unit):
            owner = owners.setdefault(port, f"{loaded.unit.name} ({key})")
            if owner != f"{loaded.unit.name} ({key})":
                message = f"port {port} belongs to {owner} already: choose another for one of them"
                yield loaded.document.problem(("Engine", key), message)
            elif first <= port <= last:
                message = f"port {port} is one of the supervisor's rendezvous_ports, {first} to {last}"
                yield loaded.document.problem(("Engine", key), message)


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
