"""What this pod knows of its instance: whether the other pods serve too (design 8, Readiness means the instance).

The controller tells the instance's status in its answers to heartbeats. A pod is ready only while the instance is
ACTIVE; a controller that has just started, or is away, must not take a whole fleet out of routing.
"""

from __future__ import annotations

import msgspec

ACTIVE, INITIAL = "active", "initial"


class InstanceSeen(msgspec.Struct, frozen=True):
    status: str | None = None
    """As last told; None: by nobody (no controller, or one that does not say)."""
    epoch: int = 0
    """Of this pod's engine when it was told."""


def told(seen: InstanceSeen, status: str | None, epoch: int) -> InstanceSeen:
    """After an answer. INITIAL says that its controller has not heard all members yet: what was ACTIVE stays so."""
    if status is None:
        return seen
    if status == INITIAL and seen.status == ACTIVE and seen.epoch == epoch:
        return seen
    return InstanceSeen(status, epoch)


def why_not_serving(seen: InstanceSeen, *, nnodes: int, answers: bool) -> str:
    """In words; empty if nothing is known against it. An instance of one pod needs nobody else to know its state."""
    if seen.status in (None, ACTIVE) or (nnodes == 1 and not answers):
        return ""
    return f"the instance is {seen.status}"
