"""What a supervisor does with its engines, as data: one relaunch operation at a time, one table of steps.

Cold start, relaunch, rejoin and reload are the same operation: prepare (stop the whole tree, pass the hygiene
gate), then start. `commands.py` decides what a command from outside does to this state; `progress.py` decides
what the effects and the clock do. Both return a new state and actions; `supervisor.engine.operator` carries the
actions out. Times are seconds of the supervisor's monotonic clock.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model.freeze import Freeze, FreezeLimits, hear
from supervisor.wire import FaultCategory, RecoveryState, StartCmdMsg, Step

BUSY_STEPS = frozenset({Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.STARTING, Step.LOADING})
"""An operation is in progress: the death watch is paused or watches a new engine, a lone restart is refused."""

STARTED_STEPS = frozenset({Step.STARTING, Step.LOADING, Step.DONE})
"""The engine of this epoch was started."""

OUT_OF_SERVICE_STEPS = frozenset({Step.STOPPING, Step.CLEANING, Step.PREPARED})
"""No engine should run; what is seen of the old one is no news."""


ABORTED_RUNS_KEPT = 64
"""A message that is late by more runs than that is stopped by its epoch."""


class OperationSettings(msgspec.Struct, frozen=True):
    enabled: bool
    """`enable_engine_relaunch`, the only switch (seed S20)."""
    freeze: FreezeLimits
    alone_after_sec: float = 60.0
    """A one-node engine that was ready for so long is relaunched here when its death cannot be reported."""
    answer_sec: float = 10.0
    """A command that takes longer is answered with the step reached, and its sender repeats it."""
    recovers: bool = False
    """RecoverHttp or RecoverExec is declared."""
    recover_sec: float = 60.0
    """A recovery that takes longer has failed: it was to be quicker than a relaunch."""
    unfenced_stop_guard_sec: float = 30.0
    """A stop without fields is refused so long after a boot: a repeat must not hit the new container."""


class EngineRecovery(msgspec.Struct, frozen=True):
    """The running engine was asked to recover without a restart."""

    number: int
    run_id: str | None
    state: RecoveryState = RecoveryState.RUNNING
    error: str | None = None


class Operation(msgspec.Struct, frozen=True):
    boot_id: str
    booted_at: float
    step: Step = Step.IDLE
    since: float = 0.0
    serial: int = 0
    """Counts accepted operations: what an overtaken one reports is ignored."""
    term: int = 0
    epoch: int = 0
    run_id: str | None = None
    placement: StartCmdMsg | None = None
    """Of the engines that run or are being prepared; recorded launch parameters (seed S18)."""
    ever_started: bool = False
    dead: frozenset[int] = frozenset()
    """Endpoints whose engine of this epoch died unasked, and no operation has answered it yet."""
    restoring: frozenset[int] = frozenset()
    """Endpoints, by their number in this pod, whose engine is being restored from a snapshot now."""
    reason: str = ""
    """Why this operation was asked for; the banner's words."""
    error: str | None = None
    category: FaultCategory | None = None
    """Of the error, where it is known."""
    device_fault: str | None = None
    """A device was found gone after a death, which nothing in place can answer."""
    start_when_prepared: bool = False
    """`restart`, the seed's form: no barrier, start as soon as this pod is clean."""
    holding: bool = False
    """What is being stopped is to stay so: the whole gang is held."""
    aborting: bool = False
    """An abort came while stopping: the stop is finished first."""
    aborted_runs: tuple[str, ...] = ()
    """The last `ABORTED_RUNS_KEPT`, the newest last: messages of theirs that come late have no effect."""
    recovery: EngineRecovery | None = None
    """The last of this epoch's engine."""
    recoveries: int = 0
    """Counts them, so that what an overtaken one reports is ignored."""
    freeze: Freeze | None = None
    frozen_for: tuple[int, str | None] | None = None
    """(epoch, run) whose death report was accepted and froze us: asked again, it begins no second freeze (I2)."""
    held_by: str | None = None
    """Who stopped an engine of this pod on purpose; it is then paused, not abnormal."""
    held: frozenset[int] = frozenset()
    """Which endpoints, by their number in this pod."""
    leaving: str | None = None
    """Why the supervisor is on its way out."""
    paused: str | None = None
    """Why the engine, which runs, takes no new requests."""
    drained: bool = False
    """It has finished its requests and was stopped; what is missing from its gang so is no death."""
    relaunch_count: int = 0
    """Relaunches in this container's life; the N of the banner (seed S21)."""
    to_relaunch: frozenset[int] = frozenset()
    """Endpoints that are relaunched here as one, without a controller, and were not started yet."""

    @property
    def instance_id(self) -> int:
        return self.placement.instance_id if self.placement is not None else 0

    @property
    def endpoint_ids(self) -> tuple[int, ...]:
        """Of this pod; none before the first placement."""
        return () if self.placement is None else tuple(endpoint.id for endpoint in self.placement.endpoints)

    @property
    def held_ids(self) -> frozenset[int]:
        ids = self.endpoint_ids
        return frozenset(ids[number] for number in self.held) if ids else self.held

    @property
    def busy(self) -> bool:
        return self.step in BUSY_STEPS

    @property
    def start_under_way(self) -> bool:
        """No further command is needed for the engine of this epoch to start."""
        return self.start_when_prepared or self.step in STARTED_STEPS

    def remember_aborted(self, run_id: str | None) -> Operation:
        """After this run was aborted."""
        if run_id is None or run_id in self.aborted_runs:
            return self
        return replace(self, aborted_runs=(*self.aborted_runs, run_id)[-ABORTED_RUNS_KEPT:])

    def frozen(self, now: float) -> bool:
        return self.freeze is not None and not self.freeze.is_over(now)

    def freeze_remaining(self, now: float) -> float:
        return self.freeze.remaining(now) if self.freeze is not None else 0.0

    def heard(self, run_id: str | None, now: float) -> Operation:
        """After a sign of life from the controller of `run_id`."""
        return replace(self, freeze=hear(self.freeze, run_id, now)) if self.freeze is not None else self


# --- actions: carried out by the operator, each with its reason ---------------------------------------------------


class PrepareEngines(msgspec.Struct, frozen=True):
    """Stop the engines' whole trees, wait for their dependencies, pass the gate for `placement`."""

    serial: int
    placement: StartCmdMsg
    reason: str
    config_digest: str | None = None
    """Of the declaration that is to be in force from now on; None: the one that is."""


class HoldEngines(msgspec.Struct, frozen=True):
    """Stop the engines' whole trees; nothing follows."""

    serial: int
    reason: str


class StartEngines(msgspec.Struct, frozen=True):
    """Print the banner if this is a relaunch, spawn with `placement`, follow until the handshake."""

    serial: int
    placement: StartCmdMsg
    relaunch: int | None
    """N of the banner; None for a cold start, which has no old engine to part from."""
    reason: str


class AnnounceRelaunch(msgspec.Struct, frozen=True):
    """Print the banner: the unit's own policy starts an engine that has run before."""

    relaunch: int
    placement: StartCmdMsg
    reason: str


class RecoverEngine(msgspec.Struct, frozen=True):
    """Ask the running engine of every endpoint to recover; nothing is stopped."""

    number: int
    recovery: str | None
    fault_code: int | None
    reason: str


class EndSupervisor(msgspec.Struct, frozen=True):
    """Stop everything and exit 255: the container restarts."""

    reason: str


class Report(msgspec.Struct, frozen=True):
    """One log line for the person on call."""

    level: str
    """info | warning | error."""
    message: str


Action = PrepareEngines | HoldEngines | StartEngines | AnnounceRelaunch | RecoverEngine | EndSupervisor | Report
