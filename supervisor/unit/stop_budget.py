"""How long an orderly stop of all units may take: the slowest chain of units that stop one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisor.unit.descent import DIAGNOSE_SEC
from supervisor.unit.graph import Graph
from supervisor.unit.model import ServiceType, Unit
from supervisor.unit.quantities import format_duration


class StopBudget(msgspec.Struct, frozen=True):
    seconds: float
    chain: tuple[tuple[str, float], ...]
    """(unit, how long it may take), in the order in which they stop."""

    def __str__(self) -> str:
        return ", then ".join(f"{name} {format_duration(seconds)}" for name, seconds in self.chain)


def stop_budget(units: Sequence[Unit]) -> StopBudget:
    """Units must have an order."""
    durations = {unit.name: stop_sec(unit) for unit in units}
    slowest = reversed(Graph.of(units).slowest_chain(durations))
    chain = tuple((name, durations[name]) for name in slowest if durations[name])
    return StopBudget(sum(seconds for _, seconds in chain), chain)


def stop_sec(unit: Unit) -> float:
    """ExecStop, the grace after KillSignal, and ExecStopPost each have TimeoutStopSec; DiagnoseExec its own limit."""
    service = unit.service
    if service.type is ServiceType.EXTERNAL:
        return 0.0
    diagnosis = DIAGNOSE_SEC if unit.engine is not None and unit.engine.diagnose_exec is not None else 0.0
    return diagnosis + service.stop.timeout_sec * (1 + bool(service.exec_stop) + bool(service.exec_stop_post))
