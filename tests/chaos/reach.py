"""What a fault may cost, by what it hits: the most that may be seen of it, not what must be.

Whose engines may be relaunched, whose container may end and with which code, whose store may be another one after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.chaos.faults import (
    Ask,
    Cut,
    Fault,
    Freeze,
    FullDisk,
    Kill,
    Lossy,
    NoDescriptors,
    OutOfMemory,
    Restart,
    Stage,
    Strike,
    Verb,
    Whom,
)

KILLED, ORDERLY, UNUSABLE, RESTARTED = 137, 0, 78, 255
IN_PLACE = frozenset({Verb.RELAUNCH, Verb.RESTART_ENGINE, Verb.HOLD, Verb.STOP_ENGINE})
GANG_VERBS = frozenset(Verb) - {Verb.RELOAD, Verb.RESET_FAILED, Verb.RESTART_STORE}


@dataclass(frozen=True, slots=True)
class Reach:
    engines: frozenset[str] = frozenset()
    """Pods whose engines may be other ones."""
    containers: frozenset[str] = frozenset()
    """Pods whose containers may end with RESTARTED; any may when its budget is spent."""
    stores: frozenset[str] = frozenset()
    """Pods whose store may be another one in the same container."""
    exits: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    """(pod, exit code) beside RESTARTED."""

    def __or__(self, other: Reach) -> Reach:
        return Reach(
            self.engines | other.engines,
            self.containers | other.containers,
            self.stores | other.stores,
            self.exits | other.exits,
        )


def reach_of_strike(strike: Strike, stage: Stage) -> Reach:
    reach = Reach()
    for timed in strike.faults:
        reach |= reach_of(timed.fault, stage)
    if any(timed.fault.pod in stage.centre for timed in strike.faults):
        # Who reports a death to nobody is not frozen, and its arbiter counts.
        return replace(reach, containers=reach.containers | reach.engines)
    return reach


def reach_of(fault: Fault, stage: Stage) -> Reach:
    gang = frozenset(next((pods for pods in stage.gangs if fault.pod in pods), ()))
    if fault.pod in stage.centre:
        return _of_the_centre(fault, stage)
    match fault:
        case Kill(whom=Whom.STORE) | Freeze(whom=Whom.STORE):
            # Its own policy starts it again; nothing declares that an engine minds.
            return Reach(stores=frozenset({fault.pod}))
        case Ask(verb=Verb.RESTART_STORE):
            return Reach(stores=frozenset({fault.pod}))
        case Kill(whom=Whom.WORKER) | Freeze(whom=Whom.WORKER):
            return Reach()
        case Kill(whom=Whom.ENGINE) | Freeze(whom=Whom.ENGINE) | OutOfMemory():
            return Reach(gang)
        case Kill(whom=Whom.FIRST):
            return Reach(gang, gang, exits=frozenset({(fault.pod, KILLED)}))
        case Cut(peer=peer) if peer not in stage.controllers:
            # Pods of these gangs say nothing to one another.
            return Reach()
        case FullDisk():
            return Reach(exits=frozenset({(fault.pod, UNUSABLE)}))
        case Ask(verb=Verb.DRAIN):
            return Reach(gang, gang, exits=frozenset({(fault.pod, ORDERLY)}))
        case Ask(verb=Verb.STOP_STORE):
            return Reach(gang, gang, stores=frozenset({fault.pod}))
        case Ask(verb=verb) if verb in IN_PLACE:
            return Reach(gang)
        case Ask(verb=verb) if verb not in GANG_VERBS:
            return Reach()
        case NoDescriptors():
            # A probe that cannot open a socket fails, and whoever does not answer may be restarted for it.
            return Reach(gang, gang, stores=frozenset({fault.pod}))
        case _:
            return Reach(gang, gang)


def _of_the_centre(fault: Fault, stage: Stage) -> Reach:
    """Whatever happens to controllers and etcd, nobody who serves is touched, unless it hears some and not others."""
    match fault:
        case Kill():
            return Reach(exits=frozenset({(fault.pod, KILLED)}))
        case Restart():
            return Reach(exits=frozenset({(fault.pod, ORDERLY)}))
        case FullDisk():
            return Reach(exits=frozenset({(fault.pod, UNUSABLE)}))
        case Lossy():
            return Reach(frozenset(stage.pods), frozenset(stage.pods))
        case _:
            return Reach()
