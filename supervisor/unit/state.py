"""One unit's state, and the rules its machine goes by: plain frozen values, made once and replaced whole."""

from __future__ import annotations

import math
from enum import Enum, auto

import msgspec

from supervisor.unit.events import Commands, Exited
from supervisor.unit.model import (
    ExitType,
    LivenessAction,
    NotifyAccess,
    RestartSettings,
    ServiceType,
    StartSettings,
    StopSettings,
    Unit,
)
from supervisor.unit.restart import CleanExits, Ending, RestartHistory, Result
from supervisor.unit.start_clock import StartClock
from supervisor.unit.states import AT_REST, RUN_STATE, RunState, SubState


class Rules(msgspec.Struct, frozen=True):
    """What the machine has to know of a unit.

    A unit whose restart is decided elsewhere (a coordinated engine) has the restart policy `no`: it stays `failed`,
    with its tree cleaned, until somebody starts it.
    """

    type: ServiceType = ServiceType.EXEC
    commands: frozenset[Commands] = frozenset()
    """The Exec…= keys that the unit declares."""
    remain_after_exit: bool = False
    exit_type: ExitType = ExitType.MAIN
    notify_access: NotifyAccess = NotifyAccess.ALL
    clean_exits: CleanExits = CleanExits.DAEMON
    liveness_action: LivenessAction = LivenessAction.RESTART
    diagnoses: bool = False
    """It has a DiagnoseExec."""
    restores: bool = False
    """It has a RestoreExec."""
    watchdog_sec: float | None = None
    watchdog_signal: str = "SIGABRT"
    restart: RestartSettings = msgspec.field(default_factory=RestartSettings)
    start: StartSettings = msgspec.field(default_factory=StartSettings)
    stop: StopSettings = msgspec.field(default_factory=StopSettings)


def rules_of(unit: Unit) -> Rules:
    """The rules that follow from a unit file alone; an engine's layer replaces what its coordination changes."""
    service = unit.service
    declared = {
        Commands.START_PRE: service.exec_start_pre,
        Commands.START_POST: service.exec_start_post,
        Commands.STOP: service.exec_stop,
        Commands.STOP_POST: service.exec_stop_post,
    }
    return Rules(
        type=service.type,
        commands=frozenset(which for which, commands in declared.items() if commands),
        remain_after_exit=service.remain_after_exit,
        exit_type=service.exit_type,
        notify_access=service.notify_access,
        clean_exits=_clean_exits(unit),
        liveness_action=_liveness_action(unit),
        diagnoses=unit.engine is not None and unit.engine.diagnose_exec is not None,
        restores=unit.engine is not None and unit.engine.restore_exec is not None,
        watchdog_sec=service.watchdog_sec,
        watchdog_signal=service.watchdog_signal,
        restart=service.restart,
        start=service.start,
        stop=service.stop,
    )


def _clean_exits(unit: Unit) -> CleanExits:
    if unit.engine is not None:
        return CleanExits.NEVER
    if unit.service.exec_start is not None and unit.service.exec_start.ignore_failure:
        return CleanExits.ALWAYS
    return CleanExits.COMMAND if unit.service.type is ServiceType.ONESHOT else CleanExits.DAEMON


def _liveness_action(unit: Unit) -> LivenessAction:
    if unit.service.type is ServiceType.EXTERNAL:
        return LivenessAction.REPORT  # there is nothing of ours to restart
    return unit.probes.liveness_action or LivenessAction.RESTART


class Then(Enum):
    """What follows when an invocation has been ended."""

    REST = auto()
    START = auto()
    DECIDE = auto()
    """The restart rule says."""
    COMPLETE = auto()
    """A oneshot has done its work."""
    START_COLD = auto()
    """RestoreExec has failed."""


class Fault(msgspec.Struct, frozen=True):
    """Why an invocation ends although nobody asked for it."""

    result: Result
    cause: str
    code: int | None = None
    """Of a spawn that failed; else the exit says."""


class Descent(msgspec.Struct, frozen=True):
    """An invocation being ended."""

    then: Then
    grace_sec: float
    asked_by: str | None = None
    reason: str = ""
    fault: Fault | None = None
    signal: str | None = None
    """The first one; None: KillSignal."""
    healthy_sec: float = 0.0
    """How long the unit had been ready and well when the descent began."""
    posted: bool = False
    """ExecStopPost has been run."""


class Complaint(msgspec.Struct, frozen=True):
    """A probe that failed and has not recovered."""

    probe: str
    reason: str


class UnitState(msgspec.Struct, frozen=True):
    """Everything that is decided about a unit. Times are the shell's monotonic seconds."""

    sub_state: SubState = SubState.DEAD
    since: float = 0.0
    """Of the sub-state."""
    reason: str = "never started"
    deadline: float = math.inf
    """When the shell sends a Tick: start time-out or stall, grace, back-off, watchdog."""
    invocation: int = 0
    """Counts starts. The three numbers tell a waiter how far "his" invocation is."""
    started: int = 0
    """The last invocation that got past its spawn."""
    ended: int = 0
    """The last invocation of which nothing is left (or of which the survivors were named)."""
    main_pid: int | None = None
    """The process that was spawned, or the one that it has handed over to."""
    spawned_at: float | None = None
    exit: Exited | None = None
    """Of this invocation's main process."""
    exited_at: float | None = None
    clock: StartClock | None = None
    """This invocation's start."""
    watchdog_sec: float | None = None
    """What the unit has asked for in place of WatchdogSec."""
    error: str | None = None
    """The last that the unit reported of itself."""
    awaits: str | None = None
    """What Startup or Readiness found wrong last, before they passed for the first time."""
    ready: bool = False
    """As Readiness says now, once it has passed; readyz shows it."""
    ready_once: bool = False
    """It was active in this invocation."""
    healthy_since: float | None = None
    complaints: tuple[Complaint, ...] = ()
    descent: Descent | None = None
    completed: bool = False
    """A oneshot whose last invocation did its work."""
    cold: bool = False
    """This invocation follows one whose RestoreExec failed: it does not try that again."""
    skipped: bool = False
    """A condition was not met."""
    stopped_by: str | None = None
    """Who asked for the stop that it rests after; None while it runs, and when it came to rest by itself."""
    restarts: int = 0
    history: RestartHistory = msgspec.field(default_factory=RestartHistory)
    last_ending: Ending | None = None

    @property
    def state(self) -> RunState:
        return RUN_STATE[self.sub_state]

    @property
    def words(self) -> str:
        """Why it is as it is, and what its start still waits for."""
        starts = self.sub_state in (SubState.LOADING, SubState.RESTORING)
        return f"{self.reason}; {self.awaits}" if starts and self.awaits is not None else self.reason

    @property
    def at_rest(self) -> bool:
        return self.sub_state in AT_REST

    @property
    def pid(self) -> int | None:
        """Of the living main process."""
        return self.main_pid if self.exit is None and self.ended < self.invocation else None

    @property
    def kept_down_by(self) -> str | None:
        """Who wants it to be down, until somebody starts it."""
        if not self.at_rest:
            return self.descent.asked_by if self.descent is not None and self.descent.then is Then.REST else None
        return self.stopped_by

    @property
    def satisfied(self) -> bool:
        """Those that come After need not wait (any longer)."""
        return self.state is RunState.ACTIVE or self.completed or self.skipped

    @property
    def unready(self) -> bool:
        """Up, but its Readiness fails: not to be sent anything now."""
        return self.state is RunState.ACTIVE and not self.ready

    @property
    def fault(self) -> Fault | None:
        """Why this invocation is being ended, if nobody asked for it and its start does not go on in another way."""
        return self.descent.fault if self.descent is not None and not self.falls_back else None

    @property
    def falls_back(self) -> bool:
        """Its RestoreExec has failed, and what is left of that is cleared away for the cold start."""
        return self.descent is not None and self.descent.then is Then.START_COLD
