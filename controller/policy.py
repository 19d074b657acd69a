"""All numbers by which the controller decides, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.model.limits import Limits
from controller.model.selection import RELAUNCH_SWITCH, Choices, Rule
from controller.model.settings import FleetSettings, InstanceSettings, RelaunchSettings, StrategySettings


@dataclass(frozen=True, slots=True)
class Policy:
    relaunch: RelaunchSettings = field(default_factory=RelaunchSettings)
    instance: InstanceSettings = field(default_factory=InstanceSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    assemble_timeout_sec: float = 600.0
    max_concurrent_runs: int = 16
    limits: Limits = field(default_factory=Limits)
    strategies: StrategySettings = field(default_factory=StrategySettings)
    third_party: tuple[Rule, ...] = ()
    """Which faults the strategies of other distributions answer."""
    check_interval_sec: float = 1.0
    """How often it is looked for what only time has changed."""

    @property
    def choices(self) -> Choices:
        relaunch = {RELAUNCH_SWITCH} if self.relaunch.enable_engine_relaunch else set()
        return Choices(self.strategies.switches | relaunch, self.third_party)
