"""The words for where a unit is: run states and sub-states (design 2), as the API and the CLI show them.

How a unit gets from one to another stands in `machine.py`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class RunState(StrEnum):
    """systemd's five (systemctl(1)): what is asked most often."""

    INACTIVE = "inactive"
    ACTIVATING = "activating"
    ACTIVE = "active"
    DEACTIVATING = "deactivating"
    FAILED = "failed"


class SubState(StrEnum):
    """Where exactly; every sub-state belongs to one run state."""

    DEAD = "dead"
    """Never started, skipped, stopped when asked to, or done."""
    WAITING = "waiting"
    """For its dependencies. The only way to be under way without a deadline: the dependencies have theirs."""
    START_PRE = "start-pre"
    """ExecStartPre runs."""
    START = "start"
    """The fork is in flight."""
    LOADING = "loading"
    """Its process runs and is not yet what it was started for: no probe has passed, the oneshot has not ended."""
    RESTORING = "restoring"
    """As loading, from a snapshot: RestoreExec runs in place of what starts it cold."""
    START_POST = "start-post"
    """ExecStartPost runs."""
    READY = "ready"
    """It is what it was started for."""
    UNHEALTHY = "unhealthy"
    """Liveness or the canary failed, and the unit is only reported."""
    EXITED = "exited"
    """A oneshot that did its work and remains active."""
    DIAGNOSE = "diagnose"
    """It is sick and is to be stopped; DiagnoseExec collects evidence while there is something to be seen."""
    STOPPING = "stopping"
    """It said that it stops by itself, and has TimeoutStopSec for that."""
    STOP = "stop"
    """ExecStop runs."""
    STOP_TERM = "stop-term"
    """It was sent KillSignal and has its grace."""
    STOP_KILL = "stop-kill"
    """It was sent FinalKillSignal."""
    CLEANING = "cleaning"
    """The main process is gone; what is left of its tree is being ended."""
    STOP_POST = "stop-post"
    """ExecStopPost runs."""
    AUTO_RESTART = "auto-restart"
    """Its back-off runs; then it is started again."""
    FAILED = "failed"
    """It failed, and is not restarted."""
    START_LIMIT_HIT = "start-limit-hit"
    """It failed too often within the interval."""
    UNKILLABLE = "unkillable"
    """Processes survived SIGKILL (a driver holds them): nothing is started beside them."""


RUN_STATE = MappingProxyType(
    {
        SubState.DEAD: RunState.INACTIVE,
        SubState.WAITING: RunState.ACTIVATING,
        SubState.START_PRE: RunState.ACTIVATING,
        SubState.START: RunState.ACTIVATING,
        SubState.LOADING: RunState.ACTIVATING,
        SubState.RESTORING: RunState.ACTIVATING,
        SubState.START_POST: RunState.ACTIVATING,
        SubState.READY: RunState.ACTIVE,
        SubState.UNHEALTHY: RunState.ACTIVE,
        SubState.EXITED: RunState.ACTIVE,
        SubState.DIAGNOSE: RunState.DEACTIVATING,
        SubState.STOPPING: RunState.DEACTIVATING,
        SubState.STOP: RunState.DEACTIVATING,
        SubState.STOP_TERM: RunState.DEACTIVATING,
        SubState.STOP_KILL: RunState.DEACTIVATING,
        SubState.CLEANING: RunState.DEACTIVATING,
        SubState.STOP_POST: RunState.DEACTIVATING,
        SubState.AUTO_RESTART: RunState.ACTIVATING,
        SubState.FAILED: RunState.FAILED,
        SubState.START_LIMIT_HIT: RunState.FAILED,
        SubState.UNKILLABLE: RunState.FAILED,
    }
)

AT_REST = frozenset({SubState.DEAD, SubState.FAILED, SubState.START_LIMIT_HIT, SubState.UNKILLABLE})
"""Nothing will happen by itself."""
