"""What can happen to a unit, and what its machine can order: the vocabulary between `machine.py` and its shell.

Events of an invocation that is over never reach the machine: its shell drops them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervisor.unit.model import StartLimitAction
from supervisor.unit.restart import Ending
from supervisor.unit.start_clock import ProgressKind

# --- asked for ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    asked_by: str


@dataclass(frozen=True, slots=True)
class Stop:
    asked_by: str
    reason: str
    grace_sec: float | None = None
    """From the first signal to SIGKILL; None: TimeoutStopSec."""


@dataclass(frozen=True, slots=True)
class Restart:
    asked_by: str
    reason: str
    grace_sec: float | None = None


@dataclass(frozen=True, slots=True)
class ResetFailed:
    pass


# --- answers of the shell to what it was ordered -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DependenciesMet:
    pass


@dataclass(frozen=True, slots=True)
class DependencyFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class ConditionUnmet:
    """systemd.unit(5): the start is skipped, and that is no failure."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommandsDone:
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Spawned:
    pid: int | None
    """None: a unit of type external, which has probes only."""
    awaits_ready: bool
    """Whether a probe or a notification will say when it is active."""


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    reason: str
    exit_status: int
    """126 or 127, as a shell would answer."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The main process ended."""

    code: int | None
    signal: str | None
    core_dumped: bool = False


@dataclass(frozen=True, slots=True)
class TreeGone:
    """The stop ladder came to its end: all gone and reaped, but for the survivors it names."""

    exit: Exited | None = None
    """Of the main process, if there was one."""
    survivors: tuple[str, ...] = ()


# --- seen by itself ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CriticalProcessDied:
    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True)
class NotReady:
    reason: str


@dataclass(frozen=True, slots=True)
class LivenessFailed:
    probe: str
    """`liveness`, `canary`: each recovers by itself."""
    reason: str


@dataclass(frozen=True, slots=True)
class LivenessRecovered:
    probe: str


@dataclass(frozen=True, slots=True)
class Progressed:
    kind: ProgressKind


@dataclass(frozen=True, slots=True)
class KeptAlive:
    """sd_notify(3) WATCHDOG=1."""


@dataclass(frozen=True, slots=True)
class TimeoutExtended:
    """sd_notify(3) EXTEND_TIMEOUT_USEC."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """The state's deadline has come."""


Event = (
    Start
    | Stop
    | Restart
    | ResetFailed
    | DependenciesMet
    | DependencyFailed
    | ConditionUnmet
    | CommandsDone
    | Spawned
    | SpawnFailed
    | Exited
    | TreeGone
    | CriticalProcessDied
    | Ready
    | NotReady
    | LivenessFailed
    | LivenessRecovered
    | Progressed
    | KeptAlive
    | TimeoutExtended
    | Tick
)


# --- actions: each with its reason, for the log --------------------------------------------------------------


class Commands(StrEnum):
    """The Exec…= keys beside ExecStart."""

    START_PRE = "ExecStartPre"
    START_POST = "ExecStartPost"
    STOP = "ExecStop"
    STOP_POST = "ExecStopPost"


@dataclass(frozen=True, slots=True)
class AwaitDependencies:
    """Answered by DependenciesMet, DependencyFailed or ConditionUnmet."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunCommands:
    """Answered by CommandsDone."""

    which: Commands
    reason: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Answered by Spawned or SpawnFailed."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopTree:
    """End everything that runs for this unit, whatever it is doing; answered by TreeGone, always.

    Ordered again while it runs, it means: from now on with this grace.
    """

    signal: str
    grace_sec: float
    reason: str


@dataclass(frozen=True, slots=True)
class RecordEnding:
    ending: Ending
    reason: str


@dataclass(frozen=True, slots=True)
class ReportStartLimit:
    """The arbiter decides what follows for the supervisor; never the unit."""

    action: StartLimitAction
    reason: str


Action = AwaitDependencies | RunCommands | Spawn | StopTree | RecordEnding | ReportStartLimit
