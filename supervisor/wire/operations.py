"""What tools ask of the operations API and what they read there, beside the views of units (`views.py`)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisor.wire.views import ExitsView


class Whom(StrEnum):
    """systemctl kill's --kill-whom."""

    MAIN = "main"
    """The unit's main process."""
    ALL = "all"
    """Every process of the unit."""


class KillMsg(msgspec.Struct, frozen=True):
    """`POST /v1/units/NAME/kill`."""

    signal: str | int = "SIGTERM"
    whom: Whom = Whom.MAIN


class KillAnswer(msgspec.Struct, frozen=True, kw_only=True):
    unit: str
    signal: str
    pids: tuple[int, ...]
    """To whom it was sent."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/logs`."""

    time: str
    """When the supervisor read it."""
    unit: str
    stream: str
    """`stdout`, `stderr`, or `podvisor` where lines are missing."""
    text: str
    invocation: int = 0
    """Which start of the unit, in this life of the supervisor, has written it."""
    lost_lines: int = 0
    """How many are missing here, because they were read too slowly."""


class AllExitsView(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/exits`."""

    units: tuple[ExitsView, ...]
