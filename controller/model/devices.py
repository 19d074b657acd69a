"""The faults of an instance's devices: which are present, which of them still wait for an answer (design 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.model.fault import Fault, FaultIdentity
from controller.model.instance import Instance
from controller.model.member import Member

KEPT = 64
"""Of one instance; the one that came first is forgotten."""


def present(instance: Instance, fault: Fault) -> Instance:
    """It was reported. The same again, at the same level, is no news."""
    known = next((known for known in instance.faults if known.identity == fault.identity), None)
    if known is not None and known.level == fault.level:
        return instance
    others = tuple(other for other in instance.faults if other.identity != fault.identity)
    return replace(instance, faults=(*others, fault)[-KEPT:])


def healthy(instance: Instance, told: FaultIdentity) -> Instance:
    """Reported healthy again: the code told, or every one of that device if it is 0."""
    left = tuple(fault for fault in instance.faults if not _is_cleared(fault.identity, told))
    return replace(instance, faults=left)


def answered(instance: Instance, faults: Iterable[Fault]) -> Instance:
    """A recovery that began with these has ended. One that has become graver since is another."""
    done = frozenset(faults)
    marked = tuple(replace(fault, answered=True) if fault in done else fault for fault in instance.faults)
    return replace(instance, faults=marked)


def unanswered(instance: Instance) -> tuple[Fault, ...]:
    return tuple(fault for fault in instance.faults if not fault.answered)


def of_the_same_places(before: Instance, after: Instance) -> Instance:
    """A container that restarts keeps its devices, a pod that was made anew may stand elsewhere."""
    left = tuple(fault for fault in before.faults if _stays(fault, before, after))
    return replace(after, faults=left)


def _is_cleared(present: FaultIdentity, told: FaultIdentity) -> bool:
    return present.member == told.member and present.device == told.device and told.code in (0, present.code)


def _stays(fault: Fault, before: Instance, after: Instance) -> bool:
    old, new = before.member(fault.identity.member), after.member(fault.identity.member)
    return old is not None and new is not None and _same_place(old, new)


def _same_place(old: Member, new: Member) -> bool:
    for was, now in ((old.node_name, new.node_name), (old.pod_uid, new.pod_uid)):
        if was is not None and now is not None:
            return was == now
    return old.ip == new.ip
