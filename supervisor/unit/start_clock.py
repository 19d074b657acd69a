"""How long a start may take: a hard cap (TimeoutStartSec), and for slow loaders a limit on standing still.

Progress is work that can be seen: new log lines that do not repeat, MiB read by the tree, a notification. CPU time
alone proves little, because idle workers and waiting collectives spin: it extends a start only up to StartCpuOnlySec
after the last work (design 2, StartStallSec). What counts as which kind is measured in `supervisor.service`.
"""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import StartSettings


class ProgressKind(StrEnum):
    WORK = "work"
    CPU = "cpu"


class StartClock(msgspec.Struct, frozen=True):
    """The times of one start, from the first command or the spawn on."""

    began_at: float
    cap: float
    worked_at: float
    busy_at: float
    """The latest sign of life of either kind."""


def begin(settings: StartSettings, now: float) -> StartClock:
    return StartClock(began_at=now, cap=now + settings.timeout_sec, worked_at=now, busy_at=now)


def progressed(clock: StartClock, kind: ProgressKind, now: float) -> StartClock:
    if kind is ProgressKind.WORK:
        return replace(clock, worked_at=now, busy_at=now)
    return replace(clock, busy_at=now)


def extended(clock: StartClock, seconds: float, now: float) -> StartClock:
    """sd_notify(3) EXTEND_TIMEOUT_USEC: the start may take at least so long from now, and is not standing still."""
    return replace(progressed(clock, ProgressKind.WORK, now), cap=max(clock.cap, now + seconds))


def resumed(settings: StartSettings, clock: StartClock, now: float) -> StartClock:
    """The supervisor was stopped: nobody knows what happened meanwhile, so all of the time is given once more."""
    return replace(clock, cap=now + settings.timeout_sec, worked_at=now, busy_at=now)


def progress_at(settings: StartSettings, clock: StartClock) -> float:
    """The moment from which standing still is counted."""
    cpu_counts_until = clock.worked_at + max(0.0, settings.cpu_only_sec - (settings.stall_sec or 0.0))
    return min(clock.busy_at, cpu_counts_until)


def deadline(settings: StartSettings, clock: StartClock) -> float:
    stall = math.inf if settings.stall_sec is None else settings.stall_sec
    return min(clock.cap, progress_at(settings, clock) + stall)


def verdict(settings: StartSettings, clock: StartClock, now: float) -> str:
    """Why a start whose deadline has come is given up."""
    if now >= clock.cap:
        return f"not started within {settings.timeout_sec:g} s (TimeoutStartSec)"
    if clock.busy_at > clock.worked_at:
        idle = f"for {now - clock.worked_at:.0f} s nothing but CPU time"
        return f"no progress while starting: {idle} (StartCpuOnlySec={settings.cpu_only_sec:g})"
    return f"no progress while starting for {now - clock.worked_at:.0f} s (StartStallSec={settings.stall_sec:g})"
