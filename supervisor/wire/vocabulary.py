"""The words that messages and views share: statuses, steps, codes, actions."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class EndpointStatus(StrEnum):
    INITIAL = "initial"
    NORMAL = "normal"
    ABNORMAL = "abnormal"
    PAUSED = "paused"
    WAIT2START = "wait2start"


class Step(StrEnum):
    """How far a supervisor's engine operation is; `NodeManagerStatus.operation.step`."""

    IDLE = "idle"
    STOPPING = "stopping"
    CLEANING = "cleaning"
    PREPARED = "prepared"
    STARTING = "starting"
    LOADING = "loading"
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"


class ErrorCode(StrEnum):
    """The `error` of every 4xx/5xx body (design 4, Answers)."""

    BUSY = "busy"
    RESTORING = "restoring"
    STALE_TERM = "stale_term"
    STALE_EPOCH = "stale_epoch"
    ABORTED = "aborted"
    NOT_PREPARED = "not_prepared"
    WRONG_BOOT = "wrong_boot"
    WRONG_INSTANCE = "wrong_instance"
    NOT_STARTED = "not_started"
    DISABLED = "disabled"
    HELD = "held"
    LEAVING = "leaving"
    FAILED = "failed"
    MALFORMED = "malformed"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    UNAUTHORIZED = "unauthorized"


class Action(StrEnum):
    RESTART = "restart"
    ABORT = "abort"
    PREPARE = "prepare"
    START = "start"


class Recovery(StrEnum):
    """What a controller answers to a fault report; `none` means: do not freeze."""

    ENGINE_RELAUNCH = "engine_relaunch"
    PENDING = "pending"
    NONE = "none"


class OrderKind(StrEnum):
    ABORT = "abort"
    LEAVE = "leave"
    STATUS = "status"


class EngineHealth(IntEnum):
    """Codes of SoftwareFaultMsg.engine_status."""

    HEALTHY = 0
    DEAD = 1
    UNHEALTHY = 2
