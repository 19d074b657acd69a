"""Counts what a modelled fleet does: how long each instance did not serve, why, and what it was waiting for.

An instance serves while its engines do, all in one epoch, and while the controller has it in routing. What is lost
belongs to the fault that has struck it last, and at each moment to one phase.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.model.instance import InstanceStatus
from controller.model.relaunch.run import RunStep
from controller.simulation.fleet import Fleet
from controller.simulation.outcome import Outage, Outcome, Restarts
from controller.simulation.pod import Pod, PodState
from controller.simulation.told import RELAUNCH, Told, What
from supervisor.wire import Step

COLD_START = "cold start"
DIGITS = 3


class Phase(StrEnum):
    """What an instance that does not serve is waiting for, in the order in which it counts."""

    HELD = "held"
    """An operator."""
    POD = "pod"
    """A pod that is created anew."""
    BACK_OFF = "back-off"
    """The kubelet's before a container, or the controller's before a start."""
    CONTAINER = "container"
    STOP = "stop"
    """Old engines, and the gate."""
    LOAD = "load"
    COORDINATE = "coordinate"
    """Everybody's answers, registrations, a turn."""
    DETECT = "detect"
    """Nobody does anything about it yet."""


@dataclass
class _Account:
    """Of one instance."""

    routed: bool = False
    measured_from: float | None = None
    """Its first service."""
    phase: Phase | None = Phase.COORDINATE
    """None: it serves."""
    since: float = 0.0
    """What was written down before."""
    began: float = 0.0
    """Of the outage."""
    cause: str = COLD_START
    struck_by: str = COLD_START
    lost: defaultdict[tuple[str, Phase], float] = field(default_factory=lambda: defaultdict(float))
    """To a cause, in a phase. The first service clears it: only who never serves has lost what came before."""
    outages: list[Outage] = field(default_factory=list)


class Ledger:
    def __init__(self, instances: int) -> None:
        self._accounts = [_Account() for _ in range(instances)]
        self._count: Counter[What] = Counter()
        self._runs: Counter[str] = Counter()
        self._in_place = 0
        self._touched: set[int] = set()

    def told(self, told: Told) -> None:
        self._count[told.what] += 1
        self._touched.add(told.instance)
        account = self._accounts[told.instance]
        match told.what:
            case What.FAULT:
                account.struck_by = told.words
            case What.STATUS if told.words != InstanceStatus.INITIAL:
                # A controller that has just come knows nothing yet, and takes nobody out of routing.
                account.routed = told.words == InstanceStatus.ACTIVE
            case What.SPAWNED:
                self._in_place += told.words == RELAUNCH
            case What.RUN_CLOSED:
                self._runs[told.words] += 1

    def look(self, fleet: Fleet) -> None:
        """After something has happened."""
        for number in sorted(self._touched):
            self._write(number, fleet)
        self._touched.clear()

    def outcome(self, fleet: Fleet) -> Outcome:
        """At the end."""
        end = fleet.agenda.now
        for number, account in enumerate(self._accounts):
            self._write(number, fleet)
            if account.phase is not None and account.measured_from is not None:
                self._close(number, account, end)
        measured = sum(end - (account.measured_from or 0.0) for account in self._accounts)
        by_cause: defaultdict[str, float] = defaultdict(float)
        by_phase: defaultdict[str, float] = defaultdict(float)
        for account in self._accounts:
            for (cause, phase), seconds in account.lost.items():
                by_cause[cause] += seconds
                by_phase[phase] += seconds
        lost = sum(by_cause.values())
        outages = [outage for account in self._accounts for outage in account.outages]
        return Outcome(
            availability=round(1 - lost / measured, 9) if measured else 0.0,
            measured_sec=round(measured, DIGITS),
            lost_sec=round(lost, DIGITS),
            lost_by_cause=_rounded(by_cause),
            lost_by_phase=_rounded(by_phase),
            outages=len(outages),
            longest_outage=max(outages, key=lambda outage: (outage.lasted_sec, -outage.instance), default=None),
            not_serving_at_the_end=sum(account.phase is not None for account in self._accounts),
            restarts=Restarts(
                engines_in_place=self._in_place,
                containers=self._count[What.CONTAINER_ENDED],
                pods=self._count[What.POD_LOST],
            ),
            kv_stores_lost=self._count[What.CONTAINER_ENDED] + self._count[What.POD_LOST],
            runs=dict(sorted(self._runs.items())),
            held=self._count[What.HELD],
        )

    # --- inside --------------------------------------------------------------------------------------------------

    def _write(self, number: int, fleet: Fleet) -> None:
        account, now = self._accounts[number], fleet.agenda.now
        if account.phase is not None:
            account.lost[account.cause, account.phase] += now - account.since
        account.since = now
        before = account.phase
        account.phase = None if account.routed and _serve(fleet.instances[number]) else _phase(number, fleet)
        if before is None and account.phase is not None:
            account.began, account.cause = now, account.struck_by
        if before is not None and account.phase is None:
            if account.measured_from is None:
                account.measured_from = now
                account.lost.clear()
            else:
                self._close(number, account, now)

    def _close(self, number: int, account: _Account, now: float) -> None:
        lasted = now - account.began
        account.outages.append(
            Outage(
                instance=number,
                began_at=round(account.began, DIGITS),
                lasted_sec=round(lasted, DIGITS),
                cause=account.cause,
            )
        )


def _serve(pods: list[Pod]) -> bool:
    supervisors = [pod.supervisor for pod in pods]
    if not all(supervisor is not None and supervisor.serves for supervisor in supervisors):
        return False
    return len({supervisor.operation.epoch for supervisor in supervisors if supervisor is not None}) == 1


def _phase(number: int, fleet: Fleet) -> Phase:
    pods = fleet.instances[number]
    entry = fleet.controller.entry_of(number) if fleet.controller is not None else None
    recovery = entry.recovery if entry is not None else None
    run = recovery.run if recovery is not None else None
    states = {pod.state for pod in pods}
    steps = {pod.supervisor.operation.step for pod in pods if pod.supervisor is not None}
    if entry is not None and entry.instance.held:
        return Phase.HELD
    for state, phase in _OF_PODS.items():
        if state in states:
            return phase
    if steps & {Step.STOPPING, Step.CLEANING} or any(pod.supervisor and pod.supervisor.ends for pod in pods):
        return Phase.STOP
    if run is not None and run.step is RunStep.BACKOFF:
        return Phase.BACK_OFF
    if steps & {Step.STARTING, Step.LOADING}:
        return Phase.LOAD
    if recovery is not None or steps & {Step.IDLE, Step.PREPARED}:
        return Phase.COORDINATE
    return Phase.DETECT


_OF_PODS = {PodState.POD: Phase.POD, PodState.BACK_OFF: Phase.BACK_OFF, PodState.CONTAINER: Phase.CONTAINER}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, DIGITS) for name, value in sorted(seconds.items())}
