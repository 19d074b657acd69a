"""Which death report is due (seed S25): two independent signals, each reported once, repeated until delivered.

(a) the engine's process is gone: known per (epoch, endpoint, pid); (b) a probe found a once-normal endpoint sick:
known per (epoch, endpoint, probe), cleared when it recovers. An endpoint that never was normal in this epoch is
loading, not dead, however long it takes (seed S16). A report that is overtaken by a newer epoch is no longer due,
because what is due is computed from the present observation alone.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model.operation import OUT_OF_SERVICE_STEPS
from supervisor.wire import ExitInfo, FaultCategory, Step

DEVICE_FAULT = "device_fault"


class Observation(msgspec.Struct, frozen=True):
    epoch: int
    endpoint_id: int
    step: Step
    pid: int | None
    dead: bool
    unhealthy: str | None
    ever_normal: bool
    """In this epoch."""
    probe: str = "liveness"
    """Which probe found it sick."""
    exit: ExitInfo | None = None
    device_fault: str | None = None
    """A device was found gone after this death."""


class DeathReport(msgspec.Struct, frozen=True):
    epoch: int
    endpoint_id: int
    exception_type: str
    """`engine_dead`, `device_fault`, or `unhealthy:<probe>`."""
    message: str
    pid: int | None = None
    exit: ExitInfo | None = None

    @property
    def category(self) -> FaultCategory:
        return FaultCategory.HARDWARE if self.exception_type == DEVICE_FAULT else FaultCategory.SOFTWARE


class Delivered(msgspec.Struct, frozen=True):
    """What the controller has already taken."""

    epoch: int = 0
    dead_pids: frozenset[tuple[int, int | None]] = frozenset()
    """(endpoint, pid)"""
    device_faults: frozenset[tuple[int, int | None]] = frozenset()
    """(endpoint, pid)"""
    unhealthy: frozenset[tuple[int, str]] = frozenset()
    """(endpoint, exception_type): that another probe fails too is news, since a canary alone may have to wait."""


def due(delivered: Delivered, seen: Observation) -> DeathReport | None:
    """The report to be sent now, if any."""
    if seen.step in OUT_OF_SERVICE_STEPS:
        return None  # the watch is paused while engines are being replaced (S14)
    known = delivered if delivered.epoch == seen.epoch else Delivered(epoch=seen.epoch)
    if seen.dead and seen.device_fault is not None:
        # Known only a moment after the death, which is then told once more and better.
        if (seen.endpoint_id, seen.pid) in known.device_faults:
            return None
        return DeathReport(seen.epoch, seen.endpoint_id, DEVICE_FAULT, seen.device_fault, seen.pid, seen.exit)
    if seen.dead:
        if (seen.endpoint_id, seen.pid) in known.dead_pids:
            return None
        cause = seen.exit.cause if seen.exit is not None else "its process is gone"
        return DeathReport(seen.epoch, seen.endpoint_id, "engine_dead", cause, seen.pid, seen.exit)
    kind = f"unhealthy:{seen.probe}"
    if seen.unhealthy is None or not seen.ever_normal or (seen.endpoint_id, kind) in known.unhealthy:
        return None
    return DeathReport(seen.epoch, seen.endpoint_id, kind, seen.unhealthy, seen.pid)


def delivered(before: Delivered, report: DeathReport) -> Delivered:
    """The controller answered 200 to `report`."""
    known = before if before.epoch == report.epoch else Delivered(epoch=report.epoch)
    if report.exception_type == "engine_dead":
        return replace(known, dead_pids=known.dead_pids | {(report.endpoint_id, report.pid)})
    if report.exception_type == DEVICE_FAULT:
        return replace(known, device_faults=known.device_faults | {(report.endpoint_id, report.pid)})
    return replace(known, unhealthy=known.unhealthy | {(report.endpoint_id, report.exception_type)})


def observed(before: Delivered, seen: Observation) -> Delivered:
    """Forget the sick endpoint that has recovered, so that its next sickness is news."""
    if seen.unhealthy is not None:
        return before
    others = frozenset(known for known in before.unhealthy if known[0] != seen.endpoint_id)
    return before if others == before.unhealthy else replace(before, unhealthy=others)
