"""What probe answers mean: Kubernetes' thresholds, and which of the three probes may run when.

Carrying a probe out lives in `supervisor.service.probes`; what a verdict does to a unit lives in `machine.py`.
"""

from __future__ import annotations

import math
from collections.abc import Set
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import Probe, Probes

PASSED_READINESS_PERIOD_SEC = 10.0
"""A readiness probe slows down to this once passed; engines answer /health at a cost (design 3, Budgets)."""
FIRST_PAUSE_SEC = 0.05
"""Startup and Readiness are asked so soon again, then after twice the time up to PeriodSec, until they answer well for
the first time: what is ready in 30 ms need not wait for a second, and what loads for minutes is not asked more."""
_MOST_DOUBLINGS = 30


class ProbeKind(StrEnum):
    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"


class Tally(msgspec.Struct, frozen=True):
    """Answers in a row, and the verdict that stands."""

    successes: int = 0
    failures: int = 0
    verdict: Verdict | None = None
    passed_once: bool = False
    """In this invocation."""


def first_tally(kind: ProbeKind) -> Tally:
    """Before the first answer. As for Kubernetes, what is running counts as alive until it was seen to fail."""
    return Tally(verdict=Verdict.PASSED, passed_once=True) if kind is ProbeKind.LIVENESS else Tally()


def count(probe: Probe, tally: Tally, success: bool) -> tuple[Tally, Verdict | None]:
    """Take one answer; the second value is the verdict if this answer changed it."""
    if success:
        tally = replace(tally, successes=tally.successes + 1, failures=0)
        reached = tally.successes >= probe.success_threshold
        return _settle(tally, Verdict.PASSED if reached else None)
    tally = replace(tally, failures=tally.failures + 1, successes=0)
    reached = tally.failures >= probe.failure_threshold
    return _settle(tally, Verdict.FAILED if reached else None)


def runnable(probes: Probes, passed: Set[ProbeKind]) -> frozenset[ProbeKind]:
    """The probes that run, given those that have passed once in this invocation.

    Startup suspends the others and has done its work when it has passed; Liveness also waits for Readiness, so that
    no model that loads for long is taken for dead.
    """
    declared = frozenset(kind for kind in ProbeKind if probe_of(probes, kind) is not None)
    if ProbeKind.STARTUP in declared - passed:
        return frozenset({ProbeKind.STARTUP})
    running = declared - {ProbeKind.STARTUP}
    if ProbeKind.READINESS in declared - passed:
        return running - {ProbeKind.LIVENESS}
    return running


def gates(probes: Probes) -> frozenset[ProbeKind]:
    """The probes that must pass before the unit is active."""
    return frozenset(kind for kind in (ProbeKind.STARTUP, ProbeKind.READINESS) if probe_of(probes, kind) is not None)


def probe_of(probes: Probes, kind: ProbeKind) -> Probe | None:
    match kind:
        case ProbeKind.STARTUP:
            return probes.startup
        case ProbeKind.READINESS:
            return probes.readiness
        case ProbeKind.LIVENESS:
            return probes.liveness


def pause_before_next(kind: ProbeKind, probe: Probe, tally: Tally) -> float:
    """Seconds from this try to the next. A readiness probe that begins to fail is asked at its own period again."""
    if not tally.passed_once and tally.successes == 0:
        doublings = min(max(0, tally.failures - 1), _MOST_DOUBLINGS)
        return min(probe.period_sec, math.ldexp(FIRST_PAUSE_SEC, doublings))
    settled = tally.verdict is Verdict.PASSED and tally.failures == 0
    if kind is ProbeKind.READINESS and settled:
        return max(probe.period_sec, PASSED_READINESS_PERIOD_SEC)
    return probe.period_sec


def _settle(tally: Tally, reached: Verdict | None) -> tuple[Tally, Verdict | None]:
    if reached is None or reached is tally.verdict:
        return tally, None
    return replace(tally, verdict=reached, passed_once=tally.passed_once or reached is Verdict.PASSED), reached
