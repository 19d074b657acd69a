"""What is done about a software fault that is reported, and what its sender is told (design 4, 5; S08, S09)."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model.budget import Budget, Spent, next_run
from controller.model.fault import Fault, FaultIdentity, FaultLevel
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import same_boot
from controller.model.relaunch.run import Run, RunStep
from controller.model.selection import ENGINE_RELAUNCH, Choices, select
from controller.model.settings import RelaunchSettings
from supervisor.wire import FaultCategory, Recovery


@dataclass(frozen=True, slots=True)
class Underway:
    """The open recovery of an instance."""

    strategy: str
    level: FaultLevel
    run: Run | None = None
    """Of a relaunch; None while it waits for its turn."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the reporter is told, and what is to be done."""

    recovery: Recovery
    reason: str
    to_inbox: bool = False
    """Give it to the open recovery as exchange.Fault."""
    opens: str | None = None
    """The strategy to begin for it."""
    preempts: bool = False
    """The open recovery answers a lesser fault: withdraw it."""


def judge_report(
    fault: Fault,
    instance: Instance,
    *,
    underway: Underway | None,
    handled: frozenset[FaultIdentity],
    budget: Budget,
    settings: RelaunchSettings,
    choices: Choices,
) -> Judgement:
    """Act on a report, queue or absorb it, so that nobody freezes in vain and nothing is relaunched twice.

    `handled` holds the faults that recoveries of this instance have dealt with.
    """
    selection = select(fault, instance.spec.role, instance.prev_strategy_failed, choices)
    other = underway if underway is not None and underway.strategy != ENGINE_RELAUNCH else None
    if fault.level is FaultLevel.HEALTHY or (selection.strategy is None and other is None):
        return Judgement(Recovery.NONE, selection.reason)
    if outdated := _outdated(fault, instance):
        return Judgement(Recovery.NONE, outdated)
    run = underway.run if underway is not None else None
    if fault.category is FaultCategory.HARDWARE:
        return _hardware(fault, instance, run, other, handled)
    if run is not None:
        return _during(fault, run, settings)
    if other is not None:
        return _beside(fault, other, selection.strategy)
    if no_run := _no_run(fault, instance, handled):
        return Judgement(Recovery.NONE, no_run)
    if selection.strategy != ENGINE_RELAUNCH:
        return Judgement(Recovery.PENDING, selection.reason, opens=selection.strategy)
    spent = next_run(budget, settings)
    if isinstance(spent, Spent):
        return Judgement(Recovery.NONE, spent.reason, opens=ENGINE_RELAUNCH)
    return Judgement(Recovery.ENGINE_RELAUNCH, selection.reason, opens=ENGINE_RELAUNCH)


def _outdated(fault: Fault, instance: Instance) -> str | None:
    member = instance.member(fault.identity.member)
    if member is None or instance.status is InstanceStatus.DELETED:
        return f"{fault.identity.member} is no member of a living instance"
    if not same_boot(member.boot_id, fault.boot_id):
        return f"the report is of boot {fault.boot_id}, {member.address} is in boot {member.boot_id}"
    return None


def _hardware(
    fault: Fault, instance: Instance, run: Run | None, other: Underway | None, handled: frozenset[FaultIdentity]
) -> Judgement:
    """What is tried in place cannot help: nobody freezes for it, and the containers restart (design 8)."""
    reason = "a device is gone: not relaunched in place"
    if run is not None:
        return Judgement(Recovery.NONE, reason, to_inbox=run.step not in (RunStep.PHASE2, RunStep.CLEANUP))
    if other is not None:
        return Judgement(Recovery.NONE, reason, to_inbox=True)
    if no_run := _no_run(fault, instance, handled):
        return Judgement(Recovery.NONE, no_run)
    return Judgement(Recovery.NONE, reason, opens=ENGINE_RELAUNCH)


def _during(fault: Fault, run: Run, settings: RelaunchSettings) -> Judgement:
    """Absorbed as part of what the run repairs (F15), or the end of it; the run decides by the epoch."""
    if run.step is RunStep.CLOSED:
        return Judgement(Recovery.PENDING, f"run {run.id} is closing, the report is judged after it")
    if run.step in (RunStep.PHASE2, RunStep.CLEANUP, RunStep.HOLD):
        return Judgement(Recovery.NONE, f"run {run.id} no longer relaunches in place", to_inbox=True)
    again = fault.identity.epoch == run.epoch and run.step in (RunStep.START, RunStep.AWAIT)
    if again and isinstance(spent := next_run(run.budget, settings), Spent):
        return Judgement(Recovery.NONE, spent.reason, to_inbox=True)
    return Judgement(Recovery.ENGINE_RELAUNCH, f"run {run.id} is relaunching the instance", to_inbox=True)


def _beside(fault: Fault, other: Underway, selected: str | None) -> Judgement:
    """Whether the engine comes back by that strategy is seen at its end, when the reporter has asked again."""
    if selected is not None and fault.level > other.level:
        reason = f"{other.strategy} gives way to what is graver, {selected} follows"
        return Judgement(Recovery.PENDING, reason, preempts=True)
    return Judgement(Recovery.PENDING, f"{other.strategy} runs, the report is judged at its end", to_inbox=True)


def _no_run(fault: Fault, instance: Instance, handled: frozenset[FaultIdentity]) -> str | None:
    if fault.identity in handled and not fault.probe_derived:  # who was sick and recovered may be sick again
        return "a run has dealt with this death already"
    if fault.identity.epoch is not None and fault.identity.epoch < instance.epoch:
        return f"the engine of epoch {fault.identity.epoch} was replaced, the instance is in {instance.epoch}"
    if instance.held:
        return f"the instance is held: {instance.held}"
    if instance.abandoned_epoch == instance.epoch:
        return "an operator gave the relaunch of this epoch up"
    if any(member.leaving for member in instance.members):
        return "the instance is draining"
    return None
