"""One line of the supervisor's `GET /v1/events`: more fields may be added, none of these change."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisor.wire.views import ExitView
from supervisor.wire.vocabulary import Step


class EventKind(StrEnum):
    SUPERVISOR = "supervisor"
    """It has started, or is about to end."""
    UNIT = "unit"
    """A unit moved; `previous` and `sub_state` say from where to where."""
    EXIT = "exit"
    """An invocation of a unit has ended; `exit` says how."""
    ENGINE = "engine"
    """What the engine's operation has to say: a death, a report that was taken, a relaunch that failed."""
    RELAUNCH = "relaunch"
    """The engine's operation moved to another `step`."""
    FREEZE = "freeze"
    """A freeze began, was extended or ended."""
    ARBITER = "arbiter"
    """The count of abnormal ticks changed."""
    CONTROLLER = "controller"
    """The controller answers, or does not any more."""
    OUTPUT = "output"
    """Output of a unit was dropped or suppressed."""
    GAP = "gap"
    """Events before this one are no longer kept; it has the last one's id."""


class SupervisorEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: int
    """Counts from 1 in each life of the supervisor."""
    at: str
    kind: EventKind
    level: str
    """debug, info, warning or error."""
    message: str
    """All of it, for people."""
    unit: str | None = None
    previous: str | None = None
    sub_state: str | None = None
    state: str | None = None
    reason: str | None = None
    pid: int | None = None
    exit: ExitView | None = None
    """Without the log's last lines."""
    epoch: int | None = None
    instance_id: int | None = None
    run_id: str | None = None
    step: Step | None = None
    previous_step: Step | None = None
    lasted_sec: float | None = None
    """How long the previous step took."""
    freeze_remaining_sec: float | None = None
    arbiter_count: int | None = None
    stream: str | None = None
    lost_bytes: int | None = None
    suppressed_lines: int | None = None
    held_back: int | None = None
    """Events of the same kind since the last one that were not told."""
    exit_code: int | None = None
    """Of the supervisor that ends."""
