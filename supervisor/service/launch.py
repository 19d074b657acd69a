"""What exactly one start of a unit executes: everything expanded, nothing of an invocation in it yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from supervisor.process.children import Spawn
from supervisor.service.environment import environment_of
from supervisor.service.launch_files import FromFiles, LaunchError, LaunchFiles
from supervisor.unit.events import Commands
from supervisor.unit.expand import ExpansionError, expand_unit
from supervisor.unit.model import Command, Execution, Probes, Service, Unit

__all__ = [
    "HardwareFault",
    "Launch",
    "LaunchError",
    "LaunchFactory",
    "declared_commands",
    "expanded_unit",
    "spawn_of",
    "unit_launch",
]


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


LaunchFactory = Callable[[], Awaitable[Launch]]
"""Called anew for every spawn, so that placement, environment files and variables are those of the moment.

Raises LaunchError. Cancelled, nothing has happened.
"""


async def unit_launch(
    unit: Unit, base_environment: Mapping[str, str], variables: Mapping[str, str], files: LaunchFiles | None = None
) -> Launch:
    """The launch of a unit whose file says it all (every unit but an engine with a launcher of its own).

    `variables` is the placement: it can be used in the file, and is in the environment of the unit's processes.
    Raise LaunchError.
    """
    files = files or LaunchFiles()
    found = await files.read(unit, {**base_environment, **variables})
    expanded = expanded_unit(unit, base_environment, variables, found)
    service, execution = expanded.service, expanded.service.execution
    account = await files.account(unit.name, execution.user)
    epoch, engine = variables.get("EPOCH"), expanded.engine
    return Launch(
        argv=() if service.exec_start is None else service.exec_start.argv,
        environment=environment_of(unit, execution, base_environment, account, variables, found.environment),
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
    unit: Unit, base_environment: Mapping[str, str], variables: Mapping[str, str], files: FromFiles
) -> Unit:
    """The unit with its strings expanded. Raise LaunchError."""
    known = {**base_environment, **variables, **files.credentials}
    try:
        return expand_unit(unit, known, files.environment)
    except ExpansionError as error:
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
