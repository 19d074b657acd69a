"""What the actions of a run leave behind: on the instance, and for a member that could not be reached."""

from __future__ import annotations

from controller.model import instance as instances
from controller.model.instance import Instance
from controller.model.relaunch.exchange import (
    Action,
    Answer,
    Close,
    ConfigurationTaken,
    Emit,
    EpochAbandoned,
    EpochBegins,
    EpochLeft,
    InstanceActive,
    InstanceHeld,
    InstanceInactive,
    Journal,
    MembersStranded,
    SaveBudget,
    Send,
    StepDown,
    Unreachable,
)
from supervisor.wire import Action as Command
from supervisor.wire import EngineRestartMsg, Order, OrderKind, StopMsg


def changed(instance: Instance, action: Action, now: float) -> Instance:
    """By the action; most concern other things and leave it as it is."""
    match action:
        case InstanceInactive(reason):
            return instances.deactivate(instance, reason, now)
        case EpochBegins(epoch, lives, _):
            return instances.begin_epoch(instance, epoch, lives)
        case ConfigurationTaken(digest, instead_of, _):
            return instances.reconfigure(instance, digest, instead_of)
        case EpochAbandoned(_):
            return instances.abandon(instance, now)
        case InstanceHeld(held):
            return instances.hold(instance, held)
        case EpochLeft(members, _):
            return instances.leave_epoch(instance, members)
        case MembersStranded(members, _):
            return instances.strand(instance, members)
        case InstanceActive(_, reason):
            return instances.activate(instance, reason, now)
        case Send() | Journal() | SaveBudget() | Emit() | StepDown() | Close():
            return instance


def undelivered(send: Send, answer: Answer) -> Order | None:
    """A farewell that cannot be delivered waits for the member's next heartbeat (one-way partitions)."""
    match send.request:
        case EngineRestartMsg(action=Command.ABORT):
            kind = OrderKind.ABORT
        case StopMsg():
            kind = OrderKind.LEAVE
        case _:
            return None
    if not isinstance(answer, Unreachable):
        return None
    request = send.request
    return Order(order=kind, term=request.term, run_id=request.run_id, boot_id=request.boot_id, reason=send.reason)
