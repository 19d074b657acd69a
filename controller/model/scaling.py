"""How an instance with a lost device goes on serving: with fewer ranks, or with what other instances give up."""

from __future__ import annotations

from collections.abc import Sequence

from controller.model.instance import Instance, InstanceStatus, ranks

PREFILL = "prefill"


def new_size(instance: Instance) -> int | str:
    """The data-parallel size to scale to; in words, why that is not possible.

    vLLM always takes the highest ranks away, so that everything from the lowest sick one on has to go.
    """
    declared = instance.spec.parallel.dp_size
    if declared == 1:
        return "it has one data-parallel rank, which cannot be shared out anew"
    sick = {fault.identity.member for fault in instance.faults if fault.separates}
    lowest = min((ranks(instance, m).start for m in instance.members if m.key in sick), default=declared)
    if lowest == 0:
        return "the device is one of rank 0, which serves"
    if lowest == (instance.scaled_to or declared):
        return f"it has {lowest} ranks already"
    return lowest


def given_up_for(decode: Instance, living: Sequence[Instance]) -> tuple[Instance, ...] | str:
    """The prefill instances whose pods the decode instance's sick ones may take; in words, why there are none.

    As many as have pods enough: those first that serve nobody, then the smallest, then the newest. One that serves is
    left in any case, and one at all if none serves.
    """
    sick = len({fault.identity.member for fault in decode.faults if fault.separates})
    prefills = [other for other in living if other.spec.role == PREFILL and serve_together(other, decode)]
    serving = [instance for instance in prefills if instance.status is InstanceStatus.ACTIVE]
    idle = [instance for instance in prefills if instance.status is not InstanceStatus.ACTIVE]
    spare = [*sorted(idle, key=_cost), *sorted(serving, key=_cost)][:-1]
    chosen: list[Instance] = []
    for instance in spare:
        if sum(len(one.members) for one in chosen) >= sick:
            break
        chosen.append(instance)
    if not chosen:
        return f"{len(prefills)} prefill instances of {decode.spec.model_name}: none can be given up, one has to stay"
    return tuple(chosen)


def serve_together(one: Instance, other: Instance) -> bool:
    """The same model in the same namespace."""
    return one.model == other.model


def _cost(instance: Instance) -> tuple[int, int]:
    return len(instance.members), -instance.id
