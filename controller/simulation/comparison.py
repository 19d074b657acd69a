"""Simulates a scenario, and the same fleet under the same faults where only containers restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.simulation.faults import Fault, drawn
from controller.simulation.fleet import Fleet
from controller.simulation.ledger import Ledger
from controller.simulation.outcome import Comparison, Outcome
from controller.simulation.scenario import Scenario


def compare(scenario: Scenario) -> Comparison:
    """Depends on the scenario alone."""
    faults = drawn(scenario)
    return Comparison(
        scenario=scenario.name,
        seed=scenario.simulation.seed,
        duration_sec=scenario.simulation.duration,
        instances=scenario.fleet.instances,
        pods=scenario.fleet.pods,
        faults=dict(sorted(Counter(str(fault.kind) for fault in faults).items())),
        podvisor=simulate(scenario, faults),
        containers_only=simulate(scenario.without_relaunch(), faults),
    )


def simulate(scenario: Scenario, faults: Sequence[Fault]) -> Outcome:
    ledger = Ledger(scenario.fleet.instances)
    fleet = Fleet(scenario, faults, ledger.told)
    fleet.run(lambda: ledger.look(fleet))
    return ledger.outcome(fleet)
