"""The words that messages and views share: statuses, steps, codes, actions."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class EndpointStatus(StrEnum):
    INITIAL = "initial"
    """Its engine starts or loads."""
    NORMAL = "normal"
    """It serves."""
    ABNORMAL = "abnormal"
    """Its engine is dead or sick, or could not be relaunched."""
    PAUSED = "paused"
    """Stopped on purpose: by an operator, or because the supervisor is leaving."""
    WAIT2START = "wait2start"
    """No engine runs and none should: it waits to be started."""


class Step(StrEnum):
    """How far a supervisor's engine operation is; `NodeManagerStatus.operation.step`."""

    IDLE = "idle"
    """Nothing was started in this boot, or what was is given up."""
    STOPPING = "stopping"
    """The engines' whole trees are being ended."""
    CLEANING = "cleaning"
    """They are gone; dependencies are waited for and the hygiene gate is being passed."""
    PREPARED = "prepared"
    """Clean, and waiting for the barrier: `start` follows."""
    STARTING = "starting"
    """The new engines are being spawned."""
    LOADING = "loading"
    """They run and are not ready yet."""
    DONE = "done"
    """Every endpoint was ready; what happens to them since is not this operation's."""
    HELD = "held"
    """Stopped, and to stay so: an operator holds the whole gang. The next prepare ends it."""
    FAILED = "failed"
    """The operation broke; nothing is frozen."""
    ABORTED = "aborted"
    """Stopped, clean, and not to be started: the run was given up."""


class ErrorCode(StrEnum):
    """The `error` of every 4xx/5xx body (design 4, Answers)."""

    BUSY = "busy"
    """A relaunch is in progress and the command names no epoch that could overtake it; ask again."""
    RESTORING = "restoring"
    """A snapshot is being restored (RestoreExec), and only then; ask again."""
    STALE_TERM = "stale_term"
    """A controller with a higher term was seen: the sender is deposed."""
    STALE_EPOCH = "stale_epoch"
    """The epoch is not newer than the one seen here."""
    ABORTED = "aborted"
    """The run was aborted here."""
    NOT_PREPARED = "not_prepared"
    """`start` without the `prepare` of the same run and epoch, or before it was over."""
    WRONG_BOOT = "wrong_boot"
    """Meant for another life of this container."""
    WRONG_INSTANCE = "wrong_instance"
    """Meant for another instance than the one whose engines are here."""
    NOT_STARTED = "not_started"
    """No engine was ever started here and no placement was given."""
    DISABLED = "disabled"
    """`enable_engine_relaunch` is off on this supervisor."""
    HELD = "held"
    """An operator holds the engine."""
    LEAVING = "leaving"
    """This supervisor is on its way out."""
    FAILED = "failed"
    """It was tried and it failed; the message says why."""
    MALFORMED = "malformed"
    """The body does not fit its message."""
    DOES_NOT_FIT = "does_not_fit"
    """The placement does not fit this pod."""
    UNSUPPORTED = "unsupported"
    """The engine's unit declares no way to do that."""
    UNKNOWN = "unknown"
    """There is no such unit, instance, run or path."""
    CONFLICT = "conflict"
    """It cannot be done in the present state."""
    NOT_LEADER = "not_leader"
    """This controller stands by: ask the one that leads."""
    LIMITED = "limited"
    """The client asks too much: it is to come back after the seconds of the header Retry-After."""
    UNAUTHORIZED = "unauthorized"
    """The token is missing, or is not the right one."""


class Action(StrEnum):
    RESTART = "restart"
    """Prepare and start on this supervisor alone, without a barrier."""
    ABORT = "abort"
    """Give the run up: unfreeze, and refuse its later messages."""
    PREPARE = "prepare"
    """Stop the engines' whole trees and pass the hygiene gate."""
    START = "start"
    """Start what was prepared in this run and epoch."""
    HOLD = "hold"
    """Stop the engines' whole trees, and nothing follows: an operator holds the gang."""
    RELOAD = "reload"
    """Read the unit files again, and say which configuration the engine would have; it goes on with the one it has."""
    RECOVER = "recover"
    """Ask the running engine to recover without a restart (RecoverHttp, RecoverExec)."""


class RecoveryState(StrEnum):
    """How far the recovery that `recover` asks for is."""

    RUNNING = "running"
    """Not done within the time of one answer: the same message again waits on."""
    DONE = "done"
    FAILED = "failed"


class Recovery(StrEnum):
    """What a controller answers to a fault report; `none` means: do not freeze."""

    ENGINE_RELAUNCH = "engine_relaunch"
    """A run answers this death: freeze."""
    PENDING = "pending"
    """Another recovery is under way, and this report is judged at its end: freeze, and report again."""
    NONE = "none"
    """Nothing will be tried: do not freeze."""


class OrderKind(StrEnum):
    ABORT = "abort"
    """As the `abort` action."""
    LEAVE = "leave"
    """As `POST /node-manager/stop`: stop the engines and end with 255."""
    STATUS = "status"
    """Asks for nothing but the next heartbeat."""


class FaultCategory(StrEnum):
    SOFTWARE = "software"
    HARDWARE = "hardware"
    """A device is gone: nothing that is tried in place can help."""


class EngineHealth(IntEnum):
    """Codes of SoftwareFaultMsg.engine_status."""

    HEALTHY = 0
    DEAD = 1
    """Its process is gone."""
    UNHEALTHY = 2
    """A probe failed."""
