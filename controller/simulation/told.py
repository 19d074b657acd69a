"""What has happened in a modelled fleet, for whoever counts or checks it. Nothing depends on who listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    FAULT = "fault"
    """It struck something that ran."""
    BOOT = "boot"
    """A container has started."""
    CONTAINER_ENDED = "container ended"
    CONTAINER_STARTS = "container starts"
    """The kubelet has waited long enough."""
    POD_LOST = "pod lost"
    STEP = "step"
    """Of a supervisor's operation; the words are the step's."""
    SPAWNED = "spawned"
    """An engine; the epoch is its own. The words are RELAUNCH if it has had a predecessor in this container."""
    ENGINE_GONE = "engine gone"
    FROZEN = "frozen"
    UNFROZEN = "unfrozen"
    STATUS = "status"
    """Of an instance, as the controller has it; the words are the status's."""
    RUN_OPENED = "run opened"
    """The words are the reason's."""
    RUN_STEP = "run step"
    """The words are the step's."""
    RUN_CLOSED = "run closed"
    """The words are the outcome's."""
    HELD = "held"


RELAUNCH = "relaunch"


@dataclass(frozen=True, slots=True)
class Told:
    at: float
    what: What
    instance: int
    pod: int | None = None
    epoch: int = 0
    words: str = ""
    of: str | None = None
    """The id of the run, or of the boot."""


Tell = Callable[[Told], None]
