"""Which recovery an instance wants now, judged by its state alone: the gravest thing first.

Asked whenever something has happened, and at the end of every recovery. So a graver fault that came while a run
could not be preempted is taken up after it (F20), and one that came before a restart of the controller is not lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.model import devices
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import Instance, InstanceStatus
from controller.model.need import run_needed
from controller.model.outcome import Ended, Failed, Interrupted, Outcome, Recovered, Withdrawn
from controller.model.relaunch.run import GOOD_ENDS, Cause, Run, RunReason
from controller.model.selection import ELASTIC_SCALING, ENGINE_RELAUNCH, Choices, escalation, select
from controller.model.settings import RelaunchSettings


@dataclass(frozen=True, slots=True)
class Wanted:
    strategy: str
    cause: Cause
    level: FaultLevel = FaultLevel.L2
    """A recovery of a higher level preempts it."""
    fault: Fault | None = None


def recovery_wanted(instance: Instance, settings: RelaunchSettings, choices: Choices) -> Wanted | None:
    """While none is open."""
    for_a_device = wanted_for_a_device(instance, choices)
    if for_a_device is not None and for_a_device.level > FaultLevel.L2:
        return for_a_device
    if cause := run_needed(instance, settings):
        return Wanted(ENGINE_RELAUNCH, cause)
    return for_a_device or _following(instance, settings) or _regrowth(instance, choices)


def wanted_for_a_device(instance: Instance, choices: Choices) -> Wanted | None:
    """The gravest fault of a device that no recovery has answered, and for which there is a strategy."""
    if not instance.faults or not _can_be_helped(instance):
        return None
    role, failed = instance.spec.role, instance.prev_strategy_failed
    found = [
        Wanted(chosen, Cause(_reason(chosen, failed), fault.message), fault.level, fault)
        for fault in devices.unanswered(instance)
        if (chosen := select(fault, role, failed, choices).strategy)
    ]
    return max(found, key=lambda wanted: wanted.level, default=None)


def came_of(run: Run) -> Outcome:
    """What the end of a relaunch is worth as a recovery: phase 2 is none."""
    return Recovered(run.message) if run.outcome in GOOD_ENDS else Failed(run.message)


def ended(instance: Instance, began_with: tuple[Fault, ...], strategy: str, outcome: Ended) -> Instance:
    """What the end of a recovery leaves on the instance."""
    if isinstance(outcome, Interrupted):
        return instance
    instance = devices.answered(instance, began_with)
    if isinstance(outcome, Recovered):
        return replace(instance, prev_strategy_failed="")
    if isinstance(outcome, Failed) and strategy != ENGINE_RELAUNCH:
        return replace(instance, prev_strategy_failed=f"{strategy}: {outcome.reason}")
    return instance


def follows(instance: Instance, strategy: str, outcome: Ended, cause: Cause | None, choices: Choices) -> Wanted | None:
    """What is opened at once on the end of a recovery, whatever the instance looks like, but for what is graver.

    `cause`: of the run that the recovery itself asked for.
    """
    if instance.terminating or instance.held:
        return None
    follow = Wanted(ENGINE_RELAUNCH, cause) if cause is not None else None
    if isinstance(outcome, Failed) and strategy != ENGINE_RELAUNCH:
        follow = escalated(instance, choices)
    graver = wanted_for_a_device(instance, choices)
    return None if follow and graver and graver.level > follow.level else follow


def follows_no_more(recovery: Cause, outcome: Ended) -> bool:
    """The relaunch for a peer's sake came to nothing, by an operator's word or in phase 2: it is not opened again."""
    return recovery.reason is RunReason.PEER and isinstance(outcome, Failed | Withdrawn)


def escalated(instance: Instance, choices: Choices) -> Wanted | None:
    """What follows on a strategy that has failed (S08)."""
    if not _can_be_helped(instance):
        return None
    chosen = escalation(instance.prev_strategy_failed, choices)
    if chosen.strategy is None:
        return None
    return Wanted(chosen.strategy, Cause(RunReason.ESCALATION, chosen.reason))


def _following(instance: Instance, settings: RelaunchSettings) -> Wanted | None:
    """While it serves: whatever else it needs gives it new engines, or it serves again."""
    is_serving = instance.status is InstanceStatus.ACTIVE and _can_be_helped(instance)
    if not (instance.outdated and is_serving and settings.relaunches_decode):
        return None
    return Wanted(ENGINE_RELAUNCH, Cause(RunReason.PEER, instance.outdated))


def _regrowth(instance: Instance, choices: Choices) -> Wanted | None:
    """The devices whose ranks were shrunk away are healthy again."""
    is_tried = instance.prev_strategy_failed or any(fault.separates for fault in instance.faults)
    if instance.scaled_to is None or is_tried or not _can_be_helped(instance):
        return None
    if f"enable_{ELASTIC_SCALING}" not in choices.switches:
        return None
    cause = Cause(RunReason.FAULT, f"all devices are healthy again, {instance.scaled_to} ranks serve")
    return Wanted(ELASTIC_SCALING, cause, FaultLevel.L1)


def _can_be_helped(instance: Instance) -> bool:
    if instance.status is InstanceStatus.DELETED or instance.held or not instance.complete or instance.epoch == 0:
        return False
    return instance.abandoned_epoch != instance.epoch and not any(member.leaving for member in instance.members)


def _reason(strategy: str, failed: str) -> RunReason:
    return RunReason.ESCALATION if strategy == ENGINE_RELAUNCH and failed else RunReason.FAULT
