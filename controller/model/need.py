"""Which run an instance needs now, judged by its state alone (level-triggered), whatever event came last.

So a lost event, a restarted controller or a run that ended badly never leaves a gang stuck (F3).
"""

from __future__ import annotations

from controller.model.assembly import missing
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import Member, Observation
from controller.model.relaunch.run import Cause, RunReason
from controller.model.settings import RelaunchSettings
from controller.model.verdict import abnormal_endpoints, all_heard
from supervisor.wire import Step

OUT_OF_SERVICE = frozenset({Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.HELD})
STARTED = frozenset({Step.STARTING, Step.LOADING, Step.DONE})


def run_needed(instance: Instance, settings: RelaunchSettings) -> Cause | None:
    """Ask when no run is open: after each registration, each heartbeat, each end of a run, and once a second.

    * complete, reachable, and nobody takes part in the epoch -> `assemble` (cold start, and after phase 2);
    * some take part, others are new boots or cannot be reached -> `rejoin`, or `fault` where nobody may wait for
      a lost member in place;
    * those who take part cannot be reached -> None: nobody is left to be told, and a run would only count;
    * an endpoint is ABNORMAL in this epoch -> `fault`: so is judged again at the end of a run;
    * a rank of a gang runs its engine in a later epoch -> `fault`: alone it cannot join the others (F14);
    * a member is stopped for a run of a controller that is no more -> `fault`: nobody would start it (F17);
    * held, and somebody who can be reached takes part in the epoch all the same -> `hold`: its engine is stopped;
    * DELETED, held, draining, incomplete, given up by an operator -> None.
    """
    if instance.status is InstanceStatus.DELETED or any(member.leaving for member in instance.members):
        return None
    if instance.held:
        return Cause(RunReason.HOLD, f"held: {instance.held}") if _to_be_held(instance) else None
    if lost := lost_members(instance):
        waits = settings.rejoins and all(member.knows_prepare for member in instance.members)
        return Cause(RunReason.REJOIN if waits else RunReason.FAULT, lost)
    if not instance.complete or any(member.unreachable_since is not None for member in instance.members):
        return None
    if not any(member.in_epoch for member in instance.members):
        if not_prepared(instance):
            return None
        return Cause(RunReason.ASSEMBLE, f"all {len(instance.members)} members have registered")
    return _abnormal(instance, settings)


def waits_for(instance: Instance) -> str | None:
    """For people: what `run_needed` waits for before it lets a gang start; None if for nothing."""
    if instance.status is InstanceStatus.DELETED or any(member.leaving for member in instance.members):
        return None
    if instance.held:
        return f"held: {instance.held}"
    if not instance.complete:
        return missing(instance)
    if away := [member.address for member in instance.members if member.unreachable_since is not None]:
        return f"{', '.join(away)} cannot be reached"
    if any(member.in_epoch for member in instance.members):
        return None
    waiting = not_prepared(instance)
    return f"waits for the dependencies of {', '.join(waiting)}" if waiting else None


def not_prepared(instance: Instance) -> tuple[str, ...]:
    """Whose engine's dependencies are not active yet (design 5: a store may load for longer than a run waits).

    A peer of the reference system cannot say.
    """
    return tuple(
        member.address
        for member in instance.members
        if member.knows_prepare and not (member.observation is not None and member.observation.prepared)
    )


def _to_be_held(instance: Instance) -> bool:
    return any(member.in_epoch for member in holdable(instance))


def holdable(instance: Instance) -> tuple[Member, ...]:
    """Who can be told to stop its engine and to keep it so."""
    return tuple(
        member
        for member in instance.members
        if member.knows_hold and not member.superseded and member.unreachable_since is None
    )


def must_leave(instance: Instance, member: Member) -> bool:
    """It could not be told to stop its engine when the gang was held, and is heard of with it."""
    seen = member.observation
    return bool(instance.held) and not member.in_epoch and seen is not None and seen.step in STARTED


def lost_members(instance: Instance) -> str | None:
    """In words, who is missing from an epoch in which reachable others take part; None if nobody."""
    survivors = [
        member
        for member in instance.members
        if member.in_epoch and not member.superseded and member.unreachable_since is None
    ]
    if not survivors:
        return None
    restarted = [m.address for m in instance.members if m.superseded or not m.in_epoch]
    # Who was heard since a member did not answer proves that it is not us who are cut off from all of them.
    heard = max(m.last_heard for m in instance.members if m.unreachable_since is None)
    silent = [m.address for m in instance.members if m.unreachable_since is not None and m.unreachable_since < heard]
    words = [
        *(f"the container of {address} restarted" for address in restarted),
        *(f"{address} cannot be reached" for address in silent),
    ]
    return ", ".join(words) or None


def _abnormal(instance: Instance, settings: RelaunchSettings) -> Cause | None:
    if not settings.enable_engine_relaunch or instance.abandoned_epoch == instance.epoch:
        return None
    if abnormal := abnormal_endpoints(instance):
        return Cause(RunReason.FAULT, abnormal, endpoint_abnormal=True)
    astray = _astray(instance)
    return Cause(RunReason.FAULT, astray) if astray else None


def _astray(instance: Instance) -> str | None:
    """In words, who will not come together again by itself: no run of ours is open that would see to it."""
    found = [
        why
        for member in instance.members
        if member.in_epoch and member.observation and (why := _why_astray(instance, member, member.observation))
    ]
    return ", ".join(found) or None


def _why_astray(instance: Instance, member: Member, seen: Observation) -> str | None:
    if seen.run_id is not None and seen.step in OUT_OF_SERVICE:
        return f"{member.address} is {seen.step} for run {seen.run_id}, which is no more"
    if instance.spec.nnodes > 1 and seen.epoch > instance.epoch and seen.step in STARTED and all_heard(instance):
        return f"the engine of {member.address} runs in epoch {seen.epoch}, the gang in {instance.epoch}"
    return None
