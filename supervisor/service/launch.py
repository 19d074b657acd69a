"""What exactly one start of a unit executes: everything expanded, nothing of an invocation in it yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from supervisor.process.children import Spawn
from supervisor.service.credentials import CredentialError, Secrets
from supervisor.service.environment import EnvironmentFileError, environment_of, read_environment_files
from supervisor.unit.events import Commands
from supervisor.unit.expand import ExpansionError, expand, expand_unit
from supervisor.unit.model import Command, Execution, Probes, Service, Unit


class LaunchError(Exception):
    """The unit cannot even be told what to execute; the unit fails with this message and its policy decides."""


class HardwareFault(LaunchError):
    """A device is gone: the unit fails, and trying again in place would not help."""


class Launch(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    """Empty for a unit of type external."""
    environment: Mapping[str, str]
    probes: Probes = msgspec.field(default_factory=Probes)
    """Those that are to be asked in this placement: a rank that serves no HTTP comes without."""
    commands: Mapping[Commands, tuple[Command, ...]] = msgspec.field(default_factory=dict)
    execution: Execution = msgspec.field(default_factory=Execution)
    critical_processes: tuple[str, ...] = ()
    """fnmatch(3) patterns of descendants without which the unit is dead."""
    restore: Command | None = None
    """Started in place of `argv` where a snapshot is to be restored."""
    diagnose: Command | None = None
    epoch: int | None = None
    """Of an engine; other units outlive epochs."""
    unit: str = ""
    stop_grace_sec: float | None = None
    """Of an ordinary stop, where TimeoutStopSec would be waited for in vain."""
    contained: bool = False
    """Worth a cgroup of its own even where nothing else makes it start in two steps: what that costs is little beside
    an engine's start, and much beside another unit's."""


LaunchFactory = Callable[[], Launch]
"""Called anew for every spawn, so that placement, environment files and variables are those of the moment.

Raises LaunchError.
"""


def unit_launch(
    unit: Unit, base_environment: Mapping[str, str], variables: Mapping[str, str], secrets: Secrets | None = None
) -> Launch:
    """The launch of a unit whose file says it all (every unit but an engine with a launcher of its own).

    `variables` is the placement: it can be used in the file, and is in the environment of the unit's processes.
    Raise LaunchError.
    """
    expanded, from_files = expanded_unit(unit, base_environment, variables, secrets)
    service, execution = expanded.service, expanded.service.execution
    epoch, engine = variables.get("EPOCH"), expanded.engine
    return Launch(
        argv=() if service.exec_start is None else service.exec_start.argv,
        environment=environment_of(unit, execution, base_environment, variables, from_files),
        probes=expanded.probes,
        commands=declared_commands(service),
        execution=execution,
        critical_processes=() if engine is None else engine.critical_processes,
        restore=None if engine is None else engine.restore_exec,
        diagnose=None if engine is None else engine.diagnose_exec,
        epoch=int(epoch) if epoch and unit.engine is not None else None,
        unit=unit.name,
        contained=engine is not None,
    )


def expanded_unit(
    unit: Unit, base_environment: Mapping[str, str], variables: Mapping[str, str], secrets: Secrets | None = None
) -> tuple[Unit, Mapping[str, str]]:
    """The unit with its strings expanded, and what its environment files say at this moment. Raise LaunchError.

    Environment files and credentials are read anew. `secrets` keeps what is read from being shown.
    """
    known, execution = {**base_environment, **variables}, unit.service.execution
    try:
        files = tuple(expand(path, known) for path in execution.environment_files)
        from_files = read_environment_files(files)
        credentials = tuple((name, expand(path, known)) for name, path in execution.credentials)
        known |= (secrets or Secrets()).read(credentials)
        return expand_unit(unit, known, from_files), from_files
    except (ExpansionError, EnvironmentFileError, CredentialError) as error:
        raise LaunchError(str(error)) from error


def declared_commands(service: Service) -> dict[Commands, tuple[Command, ...]]:
    return {
        Commands.START_PRE: service.exec_start_pre,
        Commands.START_POST: service.exec_start_post,
        Commands.STOP: service.exec_stop,
        Commands.STOP_POST: service.exec_stop_post,
    }


def spawn_of(
    launch: Launch, argv: tuple[str, ...], own_environment: Mapping[str, str], stdout: int, stderr: int
) -> Spawn:
    """One process of this launch; `own_environment` is the invocation's."""
    execution = launch.execution
    return Spawn(
        argv=argv,
        environment={**launch.environment, **own_environment},
        working_directory=execution.working_directory,
        user=execution.user,
        group=execution.group,
        supplementary_groups=execution.supplementary_groups,
        umask=execution.umask,
        stdout=stdout,
        stderr=stderr,
        limits=execution.limits,
        nice=execution.nice,
        oom_score_adj=execution.oom_score_adjust,
        cpu_affinity=execution.cpu_affinity,
        io_scheduling_class=execution.io_scheduling_class,
    )
