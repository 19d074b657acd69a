"""What the members of an instance do while one of them leaves (design 8, Leaving and draining).

The engine of node rank 0 takes the requests: it finishes them before the engine of any other rank may end. That
nothing is relaunched meanwhile stands in `need` and `faults`, that the instance is INACTIVE in `instance`.
"""

from __future__ import annotations

from controller.model.instance import Instance
from controller.model.member import Member
from supervisor.wire import EndpointStatus

SERVING = frozenset({EndpointStatus.NORMAL, EndpointStatus.PAUSED})
"""PAUSED: it takes no new requests, and may still have old ones."""


def why_drain(instance: Instance, member: Member) -> str | None:
    """Why `member` is to finish its requests and stop its engine though it does not leave itself; None: it is not."""
    if member.node_rank != 0 or member.leaving or not member.in_epoch:
        return None
    leaving = [other.address for other in instance.members if other.leaving]
    return f"{', '.join(leaving)} is leaving" if leaving else None


def is_released(instance: Instance, member: Member) -> bool:
    """Whether a leaving member's engine may end: rank 0 takes its requests itself, or has none left."""
    first = next((other for other in instance.members if other.node_rank == 0), None)
    return member.leaving and member != first and (first is None or not _may_serve(first))


def _may_serve(member: Member) -> bool:
    seen = member.observation
    if seen is None or member.superseded or member.unreachable_since is not None or not member.in_epoch:
        return False
    return not (seen.drained or seen.gone) and any(status in SERVING for status in seen.statuses.values())
