"""What can happen to a unit, and what its machine can order: the vocabulary between `machine.py` and its shell.

Events of an invocation that is over never reach the machine: its shell drops them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisor.unit.model import StartLimitAction
from supervisor.unit.restart import Ending, Result
from supervisor.unit.start_clock import ProgressKind

# --- asked for ----------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    asked_by: str


class Stop(msgspec.Struct, frozen=True):
    asked_by: str
    reason: str
    grace_sec: float | None = None
    """From the first signal to SIGKILL; None: TimeoutStopSec."""


class Restart(msgspec.Struct, frozen=True):
    asked_by: str
    reason: str
    grace_sec: float | None = None


class ResetFailed(msgspec.Struct, frozen=True):
    pass


# --- answers of the shell to what it was ordered -------------------------------------------------------------


class DependenciesMet(msgspec.Struct, frozen=True):
    pass


class DependencyFailed(msgspec.Struct, frozen=True):
    reason: str


class ConditionUnmet(msgspec.Struct, frozen=True):
    """systemd.unit(5): the start is skipped, and that is no failure."""

    reason: str


class ConditionUnknown(msgspec.Struct, frozen=True):
    """Whether a condition holds cannot be found out: that is a failure, as of any start."""

    reason: str


class CommandsDone(msgspec.Struct, frozen=True):
    failure: str | None = None


class Spawned(msgspec.Struct, frozen=True):
    pid: int | None
    """None: a unit of type external, which has probes only."""
    awaits_ready: bool
    """Whether a probe or a notification will say when it is active."""


class SpawnFailed(msgspec.Struct, frozen=True):
    reason: str
    exit_status: int
    """126 or 127, as a shell would answer."""
    result: Result = Result.EXIT_CODE


class Exited(msgspec.Struct, frozen=True):
    """The main process ended. Neither code nor signal: how cannot be known, for it was no child of ours."""

    code: int | None
    signal: str | None
    core_dumped: bool = False


class TreeGone(msgspec.Struct, frozen=True):
    """The stop ladder came to its end: all gone and reaped, but for the survivors it names."""

    exit: Exited | None = None
    """Of the main process, if there was one."""
    survivors: tuple[str, ...] = ()
    left_behind: tuple[int, ...] = ()
    """What the main process, which had ended by itself, had left running; none of it is left now."""


# --- seen by itself ------------------------------------------------------------------------------------------


class CriticalProcessDied(msgspec.Struct, frozen=True):
    reason: str


class WatchBroke(msgspec.Struct, frozen=True):
    """An error of our own ended what watches the unit: nobody would hear of its end any more."""

    reason: str


class Ready(msgspec.Struct, frozen=True):
    pass


class NotReady(msgspec.Struct, frozen=True):
    reason: str


class LivenessFailed(msgspec.Struct, frozen=True):
    probe: str
    """`liveness`, `canary`: each recovers by itself."""
    reason: str


class LivenessRecovered(msgspec.Struct, frozen=True):
    probe: str


class Progressed(msgspec.Struct, frozen=True):
    kind: ProgressKind


class KeptAlive(msgspec.Struct, frozen=True):
    """sd_notify(3) WATCHDOG=1."""


class TimeoutExtended(msgspec.Struct, frozen=True):
    """sd_notify(3) EXTEND_TIMEOUT_USEC."""

    seconds: float


class WatchdogChanged(msgspec.Struct, frozen=True):
    """sd_notify(3) WATCHDOG_USEC: another WatchdogSec for the rest of this invocation."""

    seconds: float
    """Infinity: no watchdog."""


class WatchdogTriggered(msgspec.Struct, frozen=True):
    """sd_notify(3) WATCHDOG=trigger: as if no keep-alive had come."""


class HandedOver(msgspec.Struct, frozen=True):
    """sd_notify(3) MAINPID: another process, a living one of the unit's own tree, is the main one from now on."""

    pid: int
    started_ticks: int
    """The two together are never the same for two processes."""


class StoppingByItself(msgspec.Struct, frozen=True):
    """sd_notify(3) STOPPING=1."""


class ErrorReported(msgspec.Struct, frozen=True):
    """sd_notify(3) ERRNO, BUSERROR: what went wrong, in the unit's own words."""

    error: str


class Tick(msgspec.Struct, frozen=True):
    """The state's deadline has come."""


Event = (
    Start
    | Stop
    | Restart
    | ResetFailed
    | DependenciesMet
    | DependencyFailed
    | ConditionUnmet
    | ConditionUnknown
    | CommandsDone
    | Spawned
    | SpawnFailed
    | Exited
    | TreeGone
    | CriticalProcessDied
    | WatchBroke
    | Ready
    | NotReady
    | LivenessFailed
    | LivenessRecovered
    | Progressed
    | KeptAlive
    | TimeoutExtended
    | WatchdogChanged
    | WatchdogTriggered
    | HandedOver
    | StoppingByItself
    | ErrorReported
    | Tick
)


# --- actions: each with its reason, for the log --------------------------------------------------------------


class Commands(StrEnum):
    """The Exec…= keys beside ExecStart."""

    START_PRE = "ExecStartPre"
    START_POST = "ExecStartPost"
    STOP = "ExecStop"
    STOP_POST = "ExecStopPost"


class AwaitDependencies(msgspec.Struct, frozen=True):
    """Answered by DependenciesMet, DependencyFailed, ConditionUnmet or ConditionUnknown."""

    reason: str


class RunCommands(msgspec.Struct, frozen=True):
    """Answered by CommandsDone."""

    which: Commands
    reason: str


class Spawn(msgspec.Struct, frozen=True):
    """Answered by Spawned or SpawnFailed."""

    reason: str
    restores: bool = False
    """With RestoreExec in place of what starts the unit cold."""


class Diagnose(msgspec.Struct, frozen=True):
    """Answered by CommandsDone. What stops the unit afterwards does not wait for it."""

    reason: str


class StopTree(msgspec.Struct, frozen=True):
    """End everything that runs for this unit, whatever it is doing; answered by TreeGone, always.

    Ordered again while it runs, it means: from now on with this grace.
    """

    signal: str
    grace_sec: float
    reason: str


class FollowMain(msgspec.Struct, frozen=True):
    """From now on tell how this process ends, and of nobody else that it was the main one."""

    pid: int
    started_ticks: int
    reason: str


class RecordEnding(msgspec.Struct, frozen=True):
    ending: Ending
    reason: str


class ReportStartLimit(msgspec.Struct, frozen=True):
    """The arbiter decides what follows for the supervisor; never the unit."""

    action: StartLimitAction
    reason: str


Action = AwaitDependencies | RunCommands | Spawn | Diagnose | StopTree | FollowMain | RecordEnding | ReportStartLimit
