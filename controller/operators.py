"""What people ask of an instance or a run, and when it must be refused."""

from __future__ import annotations

from controller.model import assembly, budget
from controller.model import instance as instances
from controller.model.budget import Budget
from controller.model.relaunch.exchange import CancelKind
from controller.model.relaunch.run import Cause, RunReason
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

    def terminate(self, instance_id: int, reason: str, now: float) -> None:
        """Its run is ended first, then it is DELETED and its supervisors are told to stop.

        Raises NoSuchInstance.
        """
        entry = self._registry.entry(instance_id)
        self._registry.change(entry, instances.terminate(entry.instance, reason or "terminated by an operator"))
        if entry.recovery:
            entry.recovery.cancel(CancelKind.DELETED, entry.instance.terminating)
        self._registry.consider(entry, now)

    def relaunch(self, instance_id: int, reason: str, now: float) -> Recovery:
        """Raises NoSuchInstance, and Conflict if it cannot begin now."""
        entry = self._registry.entry(instance_id)
        instance = entry.instance
        if entry.recovery:
            raise Conflict(f"the run {entry.recovery.run_id} is open: wait for it or abort it")
        if not instance.complete:
            raise Conflict(f"instance {instance_id} is not complete: {assembly.missing(instance)}")
        if instance.held:
            raise Conflict(f"instance {instance_id} is held: {instance.held}")
        return self._registry.open(entry, Cause(RunReason.OPERATOR, reason or "asked by an operator"), now)

    def abort(self, run_id: str, reason: str) -> None:
        """The run closes by its own clean-up. Raises NoSuchRun, and Conflict if it is over."""
        for recovery in self._registry.recoveries():
            if recovery.run_id == run_id:
                recovery.cancel(CancelKind.ABORT, reason or "aborted by an operator")
                return
        if any(view.id == run_id for view in self._registry.closed_runs):
            raise Conflict(f"the run {run_id} is over")
        raise NoSuchRun(f"no run has the id {run_id}")

    def reset_failed(self, instance_id: int, now: float) -> Budget:
        """The instance has a whole budget again and is no longer held. Raises NoSuchInstance."""
        entry = self._registry.entry(instance_id)
        whole = budget.reset(self._registry.budgets.of(entry.instance))
        self._registry.budgets.put(whole)
        self._registry.change(entry, instances.release(entry.instance))
        self._registry.tell(entry, "instance", "its budget was reset by an operator")
        self._registry.consider(entry, now)
        return whole
