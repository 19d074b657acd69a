"""All engines of an instance are asked to recover themselves without a restart: the pure machine of one attempt.

    attempt, asks = begin(...)
    while attempt.outcome is None:
        attempt, asks = step(attempt, event)

It succeeds when every engine says that it has recovered and then serves, in the epoch and the boots in which it was
asked; one member that cannot is enough to fail, because then the relaunch is quicker than any wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from controller.model.instance import Instance, endpoint_ids
from controller.model.member import Member, MemberKey, Observation, same_boot, why_not_normal
from controller.model.outcome import Failed, Outcome, Recovered
from controller.model.relaunch.exchange import (
    Accepted,
    Answer,
    Answered,
    Event,
    Fault,
    Heartbeat,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    Unreachable,
)
from supervisor.wire import Action, EngineRestartMsg, RecoveryState

FEATURE = Action.RECOVER.value


@dataclass(frozen=True, slots=True)
class Ask:
    member: Member
    request: Probe | EngineRestartMsg


@dataclass(frozen=True, slots=True)
class Attempt:
    instance: Instance
    """As it was when it began."""
    request: EngineRestartMsg
    """But for the boot it means."""
    recovered: frozenset[MemberKey] = frozenset()
    serving: frozenset[MemberKey] = frozenset()
    """Seen with all endpoints NORMAL since."""
    outcome: Outcome | None = None


Moved = tuple[Attempt, tuple[Ask, ...]]


def begin(instance: Instance, *, recovery: str, fault_code: int | None, term: int, run_id: str, reason: str) -> Moved:
    request = EngineRestartMsg(
        action=Action.RECOVER,
        instance_id=instance.id,
        epoch=instance.epoch,
        term=term,
        run_id=run_id,
        recovery=recovery,
        fault_code=fault_code,
        reason=reason,
    )
    attempt = Attempt(instance, request)
    if why := _why_not(instance):
        return _failed(attempt, why)
    return attempt, tuple(_ask(attempt, member) for member in instance.members)


def step(attempt: Attempt, event: Event) -> Moved:
    match event:
        case Answered(member=key, answer=answer):
            member = attempt.instance.member(key)
            return (attempt, ()) if member is None else _answered(attempt, member, answer)
        case Heartbeat(member=key, observation=seen):
            return _seen(attempt, key, seen)
        case Fault(message=message):
            return _failed(attempt, f"meanwhile {message}")
        case MemberSilent(member=key):
            return _failed(attempt, f"{key.node} cannot be reached")
        case Registered(member=key):
            return _failed(attempt, f"the container of {key.node} restarted")
        case _:
            return attempt, ()


def _why_not(instance: Instance) -> str | None:
    if not instance.complete or instance.epoch == 0:
        return "the instance is not assembled and started"
    for member in instance.members:
        if FEATURE not in member.features:
            return f"the engine's unit of {member.address} declares no way to recover (RecoverHttp, RecoverExec)"
        if not member.in_epoch:
            return f"{member.address} restarted and has not been started since"
    return None


def _answered(attempt: Attempt, member: Member, answer: Answer) -> Moved:
    match answer:
        case Observation():
            return _seen(attempt, member.key, answer)
        case Accepted(recovery=RecoveryState.RUNNING):
            return attempt, (_ask(attempt, member),)
        case Accepted(recovery=RecoveryState.DONE):
            return _recovered(attempt, member)
        case Accepted():
            return _failed(attempt, f"{member.address} does not say whether its engine recovers")
        case Refused(code=code, message=message):
            return _failed(attempt, f"{member.address} answers {code}: {message}")
        case Unreachable(message=message):
            return _failed(attempt, message)


def _recovered(attempt: Attempt, member: Member) -> Moved:
    """What its endpoints were before says nothing, so that it is asked how they are now."""
    return replace(attempt, recovered=attempt.recovered | {member.key}), (Ask(member, Probe(run_id="")),)


def _seen(attempt: Attempt, key: MemberKey, seen: Observation) -> Moved:
    instance = attempt.instance
    member = instance.member(key)
    if member is None:
        return attempt, ()
    if not same_boot(member.boot_id, seen.boot_id):
        return _failed(attempt, f"the container of {member.address} restarted")
    if key not in attempt.recovered or why_not_normal(member, seen, instance.epoch, endpoint_ids(instance, member)):
        return replace(attempt, serving=attempt.serving - {key}), ()
    serving = attempt.serving | {key}
    if len(serving) < len(instance.members):
        return replace(attempt, serving=serving), ()
    done = Recovered(f"all {len(serving)} engines have recovered without a restart")
    return replace(attempt, serving=serving, outcome=done), ()


def _ask(attempt: Attempt, member: Member) -> Ask:
    """The same message again joins what runs."""
    return Ask(member, msgspec.structs.replace(attempt.request, boot_id=member.boot_id))


def _failed(attempt: Attempt, why: str) -> Moved:
    return replace(attempt, outcome=Failed(why)), ()
