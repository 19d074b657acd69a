"""An instance that serves in another epoch is another to its peers: who has to be told, and who has to follow.

What a peer remembers of the engines before (connections, registered memory, sessions) is void. Routers and peers hear
of it by an event; a decode instance that cannot forget is relaunched. What recovery it wants then is `wanted`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.model.instance import Instance, InstanceStatus
from controller.model.scaling import PREFILL, serve_together
from controller.model.settings import RelaunchSettings

DECODE = "decode"


def is_new(instance: Instance) -> bool:
    """It serves in an epoch in which nobody was told so."""
    return instance.status is InstanceStatus.ACTIVE and instance.epoch != instance.served_epoch


def told(instance: Instance) -> Instance:
    return replace(instance, served_epoch=instance.epoch)


def endpoints(instance: Instance) -> tuple[str, ...]:
    """`IP:PORT` of those that serve, in rank order."""
    servers = [member for member in instance.members if instance.spec.serves(member.node_rank)]
    return tuple(f"{member.host}:{port}" for member in servers for port in member.business_ports)


def announcement(instance: Instance) -> str:
    void = f"; what is remembered of epoch {instance.served_epoch} is void" if instance.served_epoch else ""
    return f"{instance.spec.role} serves in epoch {instance.epoch}{void}"


def followers(prefill: Instance, living: Iterable[Instance], settings: RelaunchSettings) -> tuple[Instance, ...]:
    """Decode instances, marked, whose engines may remember the ones that this new prefill had before.

    Nobody follows on its first start, and nobody on a decode instance, so that they cannot go on for ever. One without
    engines, held or not started yet, has nothing to remember. One that is being relaunched is marked like any other:
    the start of its epoch takes the mark away, and one that has begun its epoch follows at the end of that run.
    """
    if not settings.relaunches_decode or prefill.spec.role != PREFILL or not prefill.served_epoch:
        return ()
    reason = (
        f"prefill {prefill.key} serves in epoch {prefill.epoch}, and engines may remember its epoch"
        f" {prefill.served_epoch} (pd.on_prefill_relaunch)"
    )
    return tuple(replace(other, outdated=reason) for other in living if _remembers(other, prefill))


def forgotten(instance: Instance) -> Instance:
    """Its relaunch was given up: it goes on as it is until the next prefill comes back."""
    return replace(instance, outdated="")


def _remembers(other: Instance, prefill: Instance) -> bool:
    has_engines = not other.held and any(member.in_epoch for member in other.members)
    return other.spec.role == DECODE and has_engines and serve_together(other, prefill)
