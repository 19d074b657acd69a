"""What a death report means, which strategy answers it, and what its sender is told (design 5; S08, S09)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from controller.model.budget import Budget, Spent, next_run
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import MemberKey, same_boot
from controller.model.relaunch.run import Run, RunStep
from controller.model.settings import RelaunchSettings
from supervisor.wire import EngineHealth, FaultCategory, Recovery, SoftwareFaultMsg

ENGINE_DEAD = 0x1000001
ENGINE_UNHEALTHY = 0x1000002


class FaultLevel(IntEnum):
    """Higher is graver: a strategy of a higher level preempts one of a lower."""

    HEALTHY = 0
    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4
    L5 = 5
    L6 = 6


@dataclass(frozen=True, slots=True)
class FaultIdentity:
    """Death reports that agree in this are one death (S25)."""

    member: MemberKey
    epoch: int | None
    endpoint: int
    pid: int | None


@dataclass(frozen=True, slots=True)
class SoftwareFault:
    identity: FaultIdentity
    level: FaultLevel
    category: FaultCategory
    code: int
    """0 when healthy."""
    message: str
    boot_id: str | None = None
    probe_derived: bool = False
    """The process lives, a Liveness or Canary probe failed (exception_type `unhealthy:<probe>`)."""


class Strategy(StrEnum):
    """Recovery actions; those that expect to do without a new engine process come here (S08)."""

    ENGINE_RELAUNCH = "engine_relaunch"


@dataclass(frozen=True, slots=True)
class Selection:
    strategy: Strategy | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the reporter is told, and what is to be done."""

    recovery: Recovery
    reason: str
    to_run: bool = False
    """Give it to the open run as exchange.Fault."""
    opens: bool = False
    """Open a run for it."""


def classify(message: SoftwareFaultMsg, member: MemberKey) -> SoftwareFault:
    level, code = {
        EngineHealth.HEALTHY: (FaultLevel.HEALTHY, 0),
        EngineHealth.DEAD: (FaultLevel.L2, ENGINE_DEAD),
        EngineHealth.UNHEALTHY: (FaultLevel.L2, ENGINE_UNHEALTHY),
    }[message.engine_status]
    return SoftwareFault(
        identity=FaultIdentity(member, message.epoch, message.engine_id, message.pid),
        level=level,
        category=message.category,
        code=code,
        message=f"engine {message.engine_id} on {message.pod_ip}: {message.exception_message}",
        boot_id=message.boot_id,
        probe_derived=message.exception_type.startswith("unhealthy:"),
    )


def select(fault: SoftwareFault, prev_strategy_failed: bool, settings: RelaunchSettings) -> Selection:
    """The strategy for a fault while nothing runs; whether its budget lasts is the run's own question.

    `prev_strategy_failed`: a strategy that expected to recover without restarting engines has failed for this
    instance; whatever the fault, the next one is the relaunch, under the same switch (S08).
    """
    if fault.level is FaultLevel.HEALTHY:
        return Selection(None, "the engine is healthy")
    if prev_strategy_failed:
        return _relaunch("the strategy before it failed", settings)
    if fault.code == ENGINE_DEAD:
        return _relaunch("the engine is dead", settings)
    return Selection(None, f"nothing is done about fault {fault.code:#x} of level {fault.level.name}")


def judge_report(
    fault: SoftwareFault,
    instance: Instance,
    *,
    run: Run | None,
    other_strategy: str | None,
    handled: frozenset[FaultIdentity],
    prev_strategy_failed: bool,
    budget: Budget,
    settings: RelaunchSettings,
) -> Judgement:
    """Act on a report, queue or absorb it, so that nobody freezes in vain and nothing is relaunched twice.

    `other_strategy` names the strategy that runs instead of a relaunch, `handled` holds the deaths that runs
    of this instance have dealt with.
    """
    selection = select(fault, prev_strategy_failed, settings)
    if selection.strategy is None:
        return Judgement(Recovery.NONE, selection.reason)
    if outdated := _outdated(fault, instance):
        return Judgement(Recovery.NONE, outdated)
    if fault.category is FaultCategory.HARDWARE:
        return _hardware(fault, instance, run, handled)
    if run is not None:
        return _during(fault, run, settings)
    if other_strategy is not None:
        return Judgement(Recovery.PENDING, f"{other_strategy} runs, the report is judged at its end")
    if no_run := _no_run(fault, instance, handled):
        return Judgement(Recovery.NONE, no_run)
    spent = next_run(budget, settings)
    if isinstance(spent, Spent):
        return Judgement(Recovery.NONE, spent.reason, opens=True)
    return Judgement(Recovery.ENGINE_RELAUNCH, selection.reason, opens=True)


def _relaunch(why: str, settings: RelaunchSettings) -> Selection:
    if not settings.enable_engine_relaunch:
        return Selection(None, f"{why}, but enable_engine_relaunch is off")
    return Selection(Strategy.ENGINE_RELAUNCH, why)


def _outdated(fault: SoftwareFault, instance: Instance) -> str | None:
    member = instance.member(fault.identity.member)
    if member is None or instance.status is InstanceStatus.DELETED:
        return f"{fault.identity.member} is no member of a living instance"
    if not same_boot(member.boot_id, fault.boot_id):
        return f"the report is of boot {fault.boot_id}, {member.address} is in boot {member.boot_id}"
    return None


def _hardware(
    fault: SoftwareFault, instance: Instance, run: Run | None, handled: frozenset[FaultIdentity]
) -> Judgement:
    """What is tried in place cannot help: nobody freezes for it, and the containers restart (design 8)."""
    reason = "a device is gone: not relaunched in place"
    if run is not None:
        return Judgement(Recovery.NONE, reason, to_run=run.step not in (RunStep.PHASE2, RunStep.CLEANUP))
    if no_run := _no_run(fault, instance, handled):
        return Judgement(Recovery.NONE, no_run)
    return Judgement(Recovery.NONE, reason, opens=True)


def _during(fault: SoftwareFault, run: Run, settings: RelaunchSettings) -> Judgement:
    """Absorbed as part of what the run repairs (F15), or the end of it; the run decides by the epoch."""
    if run.step is RunStep.CLOSED:
        return Judgement(Recovery.PENDING, f"run {run.id} is closing, the report is judged after it")
    if run.step in (RunStep.PHASE2, RunStep.CLEANUP, RunStep.HOLD):
        return Judgement(Recovery.NONE, f"run {run.id} no longer relaunches in place", to_run=True)
    again = fault.identity.epoch == run.epoch and run.step in (RunStep.START, RunStep.AWAIT)
    if again and isinstance(spent := next_run(run.budget, settings), Spent):
        return Judgement(Recovery.NONE, spent.reason, to_run=True)
    return Judgement(Recovery.ENGINE_RELAUNCH, f"run {run.id} is relaunching the instance", to_run=True)


def _no_run(fault: SoftwareFault, instance: Instance, handled: frozenset[FaultIdentity]) -> str | None:
    if fault.identity in handled:
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
