"""What people ask of an instance or a run, and when it must be refused."""

from __future__ import annotations

from collections.abc import Callable

from controller.entry import Entry
from controller.model import assembly, budget
from controller.model import instance as instances
from controller.model.budget import Budget
from controller.model.instance import Hold, Holder, Instance
from controller.model.member import InstanceKey
from controller.model.relaunch.exchange import CancelKind
from controller.model.relaunch.run import Cause, RunReason
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.wanted import Wanted
from controller.recovery import Recovery
from controller.registry import Registry


class NoSuchRun(Exception):
    """None that is open or remembered has this id."""


class Conflict(Exception):
    """What was asked does not go together with what is going on."""


class Operators:
    """Synchronous, as the registry: an answer is the truth of one moment."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def terminate(self, instance_id: int, reason: str, now: float) -> InstanceKey:
        """Its run is ended first, then it is DELETED and its supervisors are told to stop.

        Raises NoSuchInstance.
        """
        entry = self._registry.entry(instance_id)
        self._registry.change(entry, instances.terminate(entry.instance, reason or "terminated by an operator"))
        if entry.recovery:
            entry.recovery.cancel(CancelKind.DELETED, entry.instance.terminating)
        self._registry.consider(entry, now)
        return entry.instance.key

    def relaunch(self, instance_id: int, reason: str, now: float) -> Recovery:
        """Raises NoSuchInstance, and Conflict if it cannot begin now."""
        entry = self._startable(instance_id)
        if entry.instance.held:
            raise Conflict(f"instance {instance_id} is held: {entry.instance.held}; release it, or reset its failures")
        cause = Cause(RunReason.OPERATOR, reason or "asked by an operator")
        return self._registry.open(entry, Wanted(ENGINE_RELAUNCH, cause), now)

    def may_roll_out(self, instance_id: int) -> Instance:
        """Raises NoSuchInstance, and Conflict if it cannot begin now."""
        instance = self._startable(instance_id).instance
        if instance.held and instance.held.by is Holder.OPERATOR:
            raise Conflict(f"instance {instance_id} is held: {instance.held}; release it first")
        if unable := [member.address for member in instance.members if not member.knows_reload]:
            raise Conflict(f"{', '.join(unable)} cannot be rolled out to: its supervisor is of an older version")
        return instance

    def roll_out(self, instance_id: int, config_digest: str, reason: str, now: float) -> Recovery:
        """All members have this configuration in their files. What was held for failures has another try with it.

        Raises NoSuchInstance, and Conflict if it cannot begin now, or if it is in force.
        """
        entry, instance = self._registry.entry(instance_id), self.may_roll_out(instance_id)
        if config_digest == instance.spec.config_digest:
            raise Conflict(f"instance {instance_id} runs the configuration {config_digest} of its files already")
        why = reason or f"rollout of configuration {config_digest}"
        self._registry.change(entry, instances.release(instance, why))
        cause = Cause(RunReason.RELOAD, why, config_digest=config_digest)
        return self._registry.open(entry, Wanted(ENGINE_RELAUNCH, cause), now)

    def _startable(self, instance_id: int) -> Entry:
        entry = self._registry.entry(instance_id)
        instance = entry.instance
        if entry.recovery:
            raise Conflict(f"the run {entry.recovery.run_id} is open: wait for it or abort it")
        if not instance.complete:
            raise Conflict(f"instance {instance_id} is not complete: {assembly.missing(instance)}")
        return entry

    def hold(self, instance_id: int, reason: str, now: float) -> Instance:
        """All its engines are stopped, and stay so until it is released; a run that would start them is ended.

        Without a reason that of an operator's hold before stays. Raises NoSuchInstance, and Conflict if one of its
        supervisors cannot be told.
        """
        entry = self._registry.entry(instance_id)
        before = entry.instance.held
        if unable := [member.address for member in entry.instance.members if not member.knows_hold]:
            raise Conflict(f"{', '.join(unable)} cannot be held: its supervisor is of an older version")
        given = before.reason if before is not None and before.by is Holder.OPERATOR else "asked by an operator"
        held = Hold(Holder.OPERATOR, reason or given)
        self._registry.change(entry, instances.hold(entry.instance, held))
        self._registry.notices.tell(entry, "instance", f"held: {held}")
        self._overtake(entry, lambda run: run is not RunReason.HOLD, f"held: {held}")
        self._registry.consider(entry, now)
        return entry.instance

    def release(self, instance_id: int, reason: str, now: float) -> Instance:
        """It is assembled and started again; one that is not held stays as it is.

        Raises NoSuchInstance, and Conflict if its budget is what holds it.
        """
        entry = self._registry.entry(instance_id)
        held = entry.instance.held
        if held is not None and held.by is Holder.BUDGET:
            raise Conflict(f"instance {instance_id} is held: {held}")
        if held is not None:
            self._let_go(entry, f"released: {reason or 'asked by an operator'}", now)
        return entry.instance

    def abort(self, run_id: str, reason: str) -> Recovery:
        """The run closes by its own clean-up. Raises NoSuchRun, and Conflict if it is over."""
        for recovery in self._registry.recoveries():
            if recovery.run_id == run_id and recovery.cause.reason is RunReason.HOLD:
                raise Conflict(f"the run {run_id} holds the instance: release that instead")
            if recovery.run_id == run_id:
                recovery.cancel(CancelKind.ABORT, reason or "aborted by an operator")
                return recovery
        if any(view.id == run_id for view in self._registry.closed_runs):
            raise Conflict(f"the run {run_id} is over")
        raise NoSuchRun(f"no run has the id {run_id}")

    def reset_failed(self, instance_id: int, now: float) -> Budget:
        """The instance has a whole budget again, and is no longer held but by an operator. Raises NoSuchInstance."""
        entry = self._registry.entry(instance_id)
        whole = budget.reset(self._registry.budgets.of(entry.instance))
        self._registry.budgets.put(whole)
        self._registry.to_be_kept(whole.key)
        self._registry.fleet.forget(entry.instance.key)
        self._registry.notices.tell(entry, "instance", "its budget was reset by an operator")
        held = entry.instance.held
        if held is None or held.by is not Holder.OPERATOR:
            self._let_go(entry, "reset by an operator", now)
        return whole

    def reset_all_failed(self, may_change: Callable[[str], bool], now: float) -> list[Budget]:
        """Of all instances that are held for failures, once what they shared is mended.

        `may_change` tells of a namespace whether whoever asks may.
        """
        entries = [entry for entry in self._registry.entries() if may_change(entry.instance.key.namespace)]
        held = [entry.instance for entry in entries if entry.instance.held]
        return [self.reset_failed(each.id, now) for each in held if each.held and each.held.by is not Holder.OPERATOR]

    def _let_go(self, entry: Entry, why: str, now: float) -> None:
        self._registry.change(entry, instances.release(entry.instance, why))
        self._registry.notices.tell(entry, "instance", why)
        self._overtake(entry, lambda run: run is RunReason.HOLD, why)
        self._registry.consider(entry, now)

    def _overtake(self, entry: Entry, concerns: Callable[[RunReason], bool], why: str) -> None:
        """What the instance needs instead is asked once the run has cleaned up; phase 2 goes on to its end."""
        recovery = entry.recovery
        if recovery and concerns(recovery.cause.reason) and (recovery.run is None or recovery.run.phase == 1):
            recovery.cancel(CancelKind.OVERTAKEN, why)
