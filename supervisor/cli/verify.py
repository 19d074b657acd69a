"""`podvisor verify`: every problem of unit files and settings, without starting anything."""

from __future__ import annotations

import grp
import json
import math
import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from supervisor.agreement import disagreements
from supervisor.settings import Settings, load_settings, shutdown_needs, shutdown_timeout
from supervisor.settings_file import ENVIRONMENT, Mistake, located
from supervisor.unit.accounts import id_number
from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.graph import start_order
from supervisor.unit.machine_checks import AccountKind, Machine, check
from supervisor.unit.model import Unit
from supervisor.unit.parse import LoadedUnit, read
from supervisor.unit.stop_budget import StopBudget, stop_budget

GRACE_PERIOD = "PODVISOR_GRACE_PERIOD_SEC"


class Report(msgspec.Struct, frozen=True):
    """What there is to say."""

    problems: Sequence[Problem]
    warnings: Sequence[Problem]
    units: Sequence[Unit]
    """In start order; empty when there are problems."""
    grace_period_sec: float | None
    budget: StopBudget | None


@click.command("verify")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]...")
@click.option(
    "--units",
    "more",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The same as DIR, as with `podvisor run`; later directories replace files of earlier ones.",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings to check as well.")
@click.option(
    "--elsewhere",
    is_flag=True,
    help="The units run on another machine: what is missing here (programs, files, users, variables) is a warning.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    directories: tuple[Path, ...], more: tuple[Path, ...], config: Path | None, *, elsewhere: bool, as_json: bool
) -> None:
    """Check unit files and settings.

    All problems come at once, and nothing is started. Exits 78 if there are any; warnings, on standard error, do not
    count.

    \b
    Example: podvisor verify units/ --config podvisor.toml
    """
    if not (directories or more):
        raise click.UsageError("name a directory of unit files: podvisor verify units/")
    report = verify((*directories, *more), config, os.environ, elsewhere=elsewhere)
    for warning in () if as_json else report.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(as_json_text(report) if as_json else as_text(report))
    if report.problems:
        sys.exit(os.EX_CONFIG)


def verify(
    directories: Sequence[Path], config: Path | None, environment: Mapping[str, str], *, elsewhere: bool = False
) -> Report:
    """Read everything, so that all problems come at once. `elsewhere`: what this machine lacks is a warning."""
    problems: list[Problem] = []
    settings: Settings | None = None
    try:
        settings = load_settings(config, environment)
    except ConfigurationError as error:
        problems += error.problems
    loaded, mistakes = read(directories)
    problems += mistakes
    findings = check(loaded, _machine(environment, settings))
    problems += findings.problems
    if settings is not None:
        problems += _disagreements(loaded, settings, environment)
    # A unit whose file is wrong is missing here, and would be missed by the others.
    warnings = [] if mistakes else [*findings.warnings]
    (warnings if elsewhere else problems).extend(findings.here)
    if problems or settings is None:
        return Report(problems, warnings, (), None, None)
    by_name = {each.unit.name: each.unit for each in loaded}
    units = [by_name[name] for name in start_order(by_name.values())]
    warnings += _stop_budget(settings, units, config, environment)
    return Report((), warnings, units, shutdown_timeout(settings.supervisor, units), stop_budget(units))


def _disagreements(
    loaded: Sequence[LoadedUnit], settings: Settings, environment: Mapping[str, str]
) -> Iterator[Problem]:
    for each in loaded:
        for path, message in disagreements(each.unit, settings, environment):
            yield each.document.problem(path, message)


def _machine(environment: Mapping[str, str], settings: Settings | None) -> Machine:
    machine = Machine(
        environment, _why_not, _unreadable, _missing, {}, _unknown_account, _unwritable, os.sched_getaffinity(0)
    )
    if settings is None:
        return machine
    supervisor = settings.supervisor
    ports = {supervisor.probe_port: "the supervisor (supervisor.probe_port)"}
    if not supervisor.controller_url:  # then nobody asks for the node manager, and no port rotates
        return replace(machine, taken_ports=ports)
    ports[supervisor.port] = "the supervisor (supervisor.port)"
    return replace(machine, taken_ports=ports, rendezvous_ports=supervisor.rendezvous_ports)


def _unknown_account(kind: AccountKind, written: str) -> str | None:
    try:
        number = id_number(written)
        if number is None:
            pwd.getpwnam(written) if kind == "user" else grp.getgrnam(written)
    except ValueError as error:
        return f"{written!r}: {error}"
    except KeyError:
        return f"there is no {kind} {written!r}"
    return None


def _unwritable(path: str) -> str | None:
    """The directories above it are made, as far as they are missing."""
    above = next(directory for directory in Path(path).parents if directory.exists())
    if not above.is_dir():
        return f"{str(above)!r} is no directory"
    return None if os.access(above, os.W_OK) else f"nothing can be written in {str(above)!r}"


def _unreadable(path: str) -> str | None:
    if not os.path.exists(path):
        return f"there is no {path!r}"
    if os.path.isdir(path) or not os.access(path, os.R_OK):
        return f"{path!r} cannot be read"
    return None


def _missing(path: str) -> str | None:
    return None if Path(path).exists() else f"there is no {path!r}"


def _why_not(program: str, search: str | None, directory: str | None) -> str | None:
    if directory is not None and not os.path.isdir(directory):
        return f"there is no directory {directory!r} to run it in (WorkingDirectory)"
    if "/" not in program:
        if shutil.which(program, path=search) is None:
            return f"cannot find {program!r} in PATH ({search or 'not set'})"
        return None
    path = str(Path(directory or "/", program))  # to be asked as text: a Path raises of a name that is too long
    if not os.path.exists(path):
        return f"there is no {path!r}"
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        return f"{path!r} cannot be executed"
    return None


def _stop_budget(
    settings: Settings, units: Sequence[Unit], config: Path | None, environment: Mapping[str, str]
) -> Iterator[Problem]:
    """Whether what the units need fits into what they get."""
    supervisor, budget = settings.supervisor, stop_budget(units)
    needed, given = shutdown_needs(supervisor, units), shutdown_timeout(supervisor, units)
    if given < needed:
        needs = f"an orderly stop may need {_seconds(needed)} s ({budget})"
        message = f"{_seconds(given)} s are too short: {needs}; what has not stopped by then is killed"
        yield located(Mistake("supervisor", "shutdown_timeout_sec", message), config, environment)
    written = environment.get(GRACE_PERIOD)
    if not written:
        return
    if not written.isdecimal():
        yield Problem(ENVIRONMENT, None, GRACE_PERIOD, f"found {written!r}, expected seconds")
    elif int(written) < given:
        message = (
            f"the pod is killed after {written} s, an orderly stop may need {_seconds(given)} s ({budget}): "
            "set terminationGracePeriodSeconds to that, or shorten TimeoutStopSec"
        )
        yield Problem(ENVIRONMENT, None, GRACE_PERIOD, message)


def as_text(report: Report) -> str:
    """For people: problems, else the units."""
    lines = [str(problem) for problem in report.problems]
    if report.problems:
        count = len(report.problems)
        return "\n".join([*lines, f"{count} problem{'s' if count > 1 else ''} found"])
    lines.append(f"{len(report.units)} unit{'s' if len(report.units) != 1 else ''}, in start order:")
    lines += [f"  {_words(unit)}" for unit in report.units]
    if report.grace_period_sec is not None:
        chain = f" ({report.budget})" if report.budget is not None and report.budget.chain else ""
        lines.append(f"terminationGracePeriodSeconds needed: {_seconds(report.grace_period_sec)}{chain}")
    return "\n".join(lines)


def _words(unit: Unit) -> str:
    kind = f"engine, {unit.engine.launcher}" if unit.engine is not None else str(unit.service.type)
    after = f", after {', '.join(unit.dependencies.after)}" if unit.dependencies.after else ""
    description = f": {unit.description}" if unit.description else ""
    return f"{unit.name} ({kind}{after}){description}"


def _seconds(seconds: float) -> str:
    return "unlimited" if math.isinf(seconds) else str(math.ceil(seconds))


def as_json_text(report: Report) -> str:
    """For tools; more fields may be added."""
    grace = report.grace_period_sec
    return json.dumps({
        "problems": [_problem(problem) for problem in report.problems],
        "warnings": [_problem(problem) for problem in report.warnings],
        "units": [
            {"name": unit.name, "type": unit.service.type, "engine": unit.engine is not None,
             "source": str(unit.source), "after": unit.dependencies.after, "requires": unit.dependencies.requires}
            for unit in report.units
        ],
        "grace_period_sec": None if grace is None or math.isinf(grace) else math.ceil(grace),
        "stop_chain": [] if report.budget is None else [name for name, _ in report.budget.chain],
    })  # fmt: skip


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "path": str(problem.path),
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
    }
