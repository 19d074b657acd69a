"""What must hold in a modelled fleet, whatever happens to it (design 4: C1, C2, C5, C6, I2, the budget, and rest)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from controller.model.instance import Instance, InstanceStatus
from controller.model.relaunch.run import Outcome
from controller.simulation.faults import Fault
from controller.simulation.fleet import Fleet
from controller.simulation.scenario import Scenario
from controller.simulation.scenario_file import load
from controller.simulation.told import Told, What
from supervisor.wire import Step

EPSILON = 1e-6


class Rules:
    def __init__(self) -> None:
        self.broken: list[str] = []
        self.history: list[Told] = []
        self._news: list[Told] = []
        self._open: dict[int, str] = {}
        self._prepared: defaultdict[tuple[int, int, str | None], set[int]] = defaultdict(set)
        self._lives = 0

    def told(self, told: Told) -> None:
        self.history.append(told)
        self._news.append(told)

    def look(self, fleet: Fleet) -> None:
        news, self._news = self._news, []
        for told in news:
            self.broken += self._judge(told, fleet)
        self.broken += _freezes_that_are_over(fleet)

    def _judge(self, told: Told, fleet: Fleet) -> Iterator[str]:
        match told.what:
            case What.FAULT if told.words == "controller death":
                self._open.clear()
            case What.RUN_OPENED:
                if told.instance in self._open:
                    yield f"C1: {told} while {self._open[told.instance]} is open"
                self._open[told.instance] = told.of or ""
            case What.RUN_CLOSED:
                self._open.pop(told.instance, None)
                yield from _budget(told, fleet)
                if told.words == Outcome.DONE:
                    yield from _all_have_loaded(told, fleet)
            case What.STEP if told.words == Step.PREPARED and told.pod is not None:
                self._prepared[told.instance, told.epoch, told.of].add(told.pod)
            case What.SPAWNED:
                yield from self._started(told, fleet)
            case What.STATUS if told.words == InstanceStatus.ACTIVE:
                yield from _active(told, fleet)

    def _started(self, told: Told, fleet: Fleet) -> Iterator[str]:
        everyone = set(range(fleet.scenario.fleet.pods))
        missing = everyone - self._prepared[told.instance, told.epoch, told.of]
        if missing and len(everyone) > 1:
            yield f"C2: {told}, and pods {missing} are not prepared"
        if (instance := _instance(fleet, told.instance)) is not None and instance.held:
            yield f"{told} in an instance that is held: {instance.held}"


def not_at_rest(fleet: Fleet, rules: Rules) -> list[str]:
    """Long after the last fault an instance serves, or is held with an alarm."""
    alarmed = {told.instance for told in rules.history if told.what is What.HELD}
    found = []
    for number, pods in enumerate(fleet.instances):
        instance = _instance(fleet, number)
        if instance is not None and instance.held and number in alarmed:
            continue
        serves = all(pod.supervisor is not None and pod.supervisor.serves for pod in pods)
        if instance is None or instance.status is not InstanceStatus.ACTIVE or not serves:
            steps = [pod.supervisor.operation.step if pod.supervisor else pod.state for pod in pods]
            status = f"{instance.status}: {instance.reason}" if instance else "unknown"
            found.append(f"instance {number} has not come to rest: {status}, {steps}")
    return found


def run(scenario: Scenario, faults: Sequence[Fault]) -> tuple[Fleet, Rules]:
    rules = Rules()
    fleet = Fleet(scenario, faults, rules.told)
    fleet.run(lambda: rules.look(fleet))
    return fleet, rules


def scenario(directory: Path, text: str = "") -> Scenario:
    path = directory / "scenario.toml"
    path.write_text(text)
    return load(path)


def story(rules: Rules, since: float = 0.0) -> str:
    """For a person who asks what happened."""
    return "\n".join(f"{replace(told)}" for told in rules.history if told.at >= since)


def _instance(fleet: Fleet, number: int) -> Instance | None:
    entry = fleet.controller.entry_of(number) if fleet.controller is not None else None
    return entry.instance if entry is not None else None


def _budget(told: Told, fleet: Fleet) -> Iterator[str]:
    instance = _instance(fleet, told.instance)
    if instance is None or fleet.controller is None:
        return
    budget, limit = fleet.controller.registry.budgets.of(instance), fleet.scenario.policy.relaunch
    if budget.runs > limit.engine_relaunch_max_attempts:
        yield f"{told}: {budget.runs} runs were spent of {limit.engine_relaunch_max_attempts}"


def _active(told: Told, fleet: Fleet) -> Iterator[str]:
    yield from _all_have_loaded(told, fleet)
    instance = _instance(fleet, told.instance)
    fresh = fleet.scenario.policy.instance.fresh_sec
    for member in instance.members if instance is not None else ():
        if told.at - member.last_heard > fresh + EPSILON:
            yield f"C6: {told}, and {member.address} was heard {told.at - member.last_heard:g} s ago"


def _all_have_loaded(told: Told, fleet: Fleet) -> Iterator[str]:
    """Nobody may know of a death that has just happened; what the controller can know has to be so."""
    instance = _instance(fleet, told.instance)
    if instance is None:
        return
    for pod, member in zip(fleet.instances[told.instance], instance.members, strict=True):
        if pod.supervisor is None:
            continue
        operation, engine = pod.supervisor.operation, pod.supervisor.engine
        if operation.epoch != instance.epoch or operation.step is not Step.DONE or engine is None or not engine.ready:
            yield f"C5: {told}, and {member.address} is {operation.step} in epoch {operation.epoch}"


def _freezes_that_are_over(fleet: Fleet) -> Iterator[str]:
    for pods in fleet.instances:
        for pod in pods:
            freeze = pod.supervisor.operation.freeze if pod.supervisor else None
            if freeze is not None and freeze.ends_at() < fleet.agenda.now - EPSILON:
                yield f"I2: {pod.job_name} {pod.rank} is frozen at {fleet.agenda.now:g}, until {freeze.ends_at():g}"
