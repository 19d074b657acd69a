"""What fails, when and where: drawn beforehand from the scenario's seed, so that two runs meet the same faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from controller.simulation.scenario import Scenario


class FaultKind(StrEnum):
    ENGINE_CRASH = "engine crash"
    ENGINE_HANG = "engine hang"
    DEVICE_FAULT = "device fault"
    CONTAINER_DEATH = "container death"
    POD_LOSS = "pod loss"
    NETWORK_CUT = "network cut"
    CONTROLLER_DEATH = "controller death"
    POISONED = "poisoned model"
    SHARED_CAUSE = "shared cause"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    at: float
    kind: FaultKind
    instance: int = 0
    pod: int = 0
    lasts: float = 0.0
    hits: tuple[int, ...] = ()
    """The instances, if it is more than one."""


def drawn(scenario: Scenario) -> tuple[Fault, ...]:
    """In the order of time."""
    found = [*_of_pods(scenario), *_of_instances(scenario), *_of_the_fleet(scenario)]
    return tuple(sorted(fault for fault in found if fault.at < scenario.simulation.duration))


def stream(scenario: Scenario, *of: object) -> Random:
    """Chance for one purpose: what is drawn elsewhere does not change it, nor does a fleet that grows."""
    return Random(":".join(map(str, (scenario.simulation.seed, *of))))


def _of_pods(scenario: Scenario) -> Iterator[Fault]:
    faults = scenario.faults
    rates = {
        FaultKind.ENGINE_CRASH: faults.engine_crash_every,
        FaultKind.ENGINE_HANG: faults.engine_hang_every,
        FaultKind.DEVICE_FAULT: faults.device_fault_every,
        FaultKind.CONTAINER_DEATH: faults.container_death_every,
        FaultKind.POD_LOSS: faults.pod_loss_every,
        FaultKind.NETWORK_CUT: faults.network_cut_every,
    }
    for kind, every in rates.items():
        for instance in range(scenario.fleet.instances):
            for pod in range(scenario.fleet.pods):
                for at in _moments(scenario, every, kind, instance, pod):
                    lasts = faults.network_cut_lasts if kind is FaultKind.NETWORK_CUT else 0.0
                    yield Fault(at, kind, instance, pod, lasts)


def _of_instances(scenario: Scenario) -> Iterator[Fault]:
    faults, kind = scenario.faults, FaultKind.POISONED
    for instance in range(scenario.fleet.instances):
        for at in _moments(scenario, faults.poisoned_every, kind, instance):
            yield Fault(at, kind, instance, lasts=faults.poisoned_lasts)
    if faults.poisoned_at:
        yield Fault(faults.poisoned_at, kind, lasts=faults.poisoned_lasts)


def _of_the_fleet(scenario: Scenario) -> Iterator[Fault]:
    faults = scenario.faults
    everyone = tuple(range(scenario.fleet.instances))
    for at in _moments(scenario, faults.controller_death_every, FaultKind.CONTROLLER_DEATH):
        yield Fault(at, FaultKind.CONTROLLER_DEATH, lasts=scenario.times.controller_restart, hits=everyone)
    shared = [*_moments(scenario, faults.shared_cause_every, FaultKind.SHARED_CAUSE)]
    if faults.shared_cause_at:
        shared.append(faults.shared_cause_at)
    count = round(faults.shared_cause_fraction * len(everyone))
    for number, at in enumerate(shared):
        hits = stream(scenario, FaultKind.SHARED_CAUSE, "hits", number).sample(everyone, count)
        yield Fault(at, FaultKind.SHARED_CAUSE, lasts=faults.shared_cause_lasts, hits=tuple(sorted(hits)))


def _moments(scenario: Scenario, every: float, *of: object) -> Iterator[float]:
    if every <= 0:
        return
    chance, at = stream(scenario, *of), 0.0
    while (at := at + chance.expovariate(1 / every)) < scenario.simulation.duration:
        yield at
