"""The condition that each pod of an instance carries: whether the instance serves, why, and when that is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controller.model.instance import Instance, InstanceStatus
from controller.model.need import waits_for

TYPE = "podvisor.io/InstanceActive"
MESSAGE_SEC = 30.0
"""Other words for the same state are written as often at most."""
LONGEST_MESSAGE = 1024


class Reason(StrEnum):
    """An interface: alerts and scripts may compare it."""

    ACTIVE = "Active"
    ASSEMBLING = "Assembling"
    """Not all members are here, or not all are prepared; it was not started yet."""
    RELAUNCHING = "Relaunching"
    HELD = "Held"
    """By an operator, the budget or the fleet's brake: until somebody releases it."""
    DRAINING = "Draining"
    INACTIVE = "Inactive"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Condition:
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Written:
    condition: Condition
    at: float


def wanted(instance: Instance, is_under_recovery: bool) -> Condition:
    """True exactly while the instance is ACTIVE: so it is the same in all its pods."""
    words = (waits_for(instance) if not is_under_recovery else None) or instance.reason
    return Condition(
        instance.status is InstanceStatus.ACTIVE, _reason(instance, is_under_recovery), words[:LONGEST_MESSAGE]
    )


def due_at(wanted: Condition, written: Written | None, now: float) -> float | None:
    """When it is to be written; None: it stands there already."""
    if written is None:
        return now
    if written.condition == wanted:
        return None
    is_news = (wanted.is_true, wanted.reason) != (written.condition.is_true, written.condition.reason)
    return now if is_news else max(now, written.at + MESSAGE_SEC)


def _reason(instance: Instance, is_under_recovery: bool) -> Reason:
    match instance.status:
        case InstanceStatus.ACTIVE:
            return Reason.ACTIVE
        case InstanceStatus.DELETED:
            return Reason.DELETED
    if instance.held:
        return Reason.HELD
    if any(member.leaving for member in instance.members):
        return Reason.DRAINING
    if is_under_recovery and instance.epoch:
        return Reason.RELAUNCHING
    return Reason.ASSEMBLING if instance.status is InstanceStatus.INITIAL else Reason.INACTIVE
