"""All numbers by which the controller decides, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.model.limits import Limits
from controller.model.settings import FleetSettings, InstanceSettings, RelaunchSettings


@dataclass(frozen=True, slots=True)
class Policy:
    relaunch: RelaunchSettings = field(default_factory=RelaunchSettings)
    instance: InstanceSettings = field(default_factory=InstanceSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    assemble_timeout_sec: float = 600.0
    max_concurrent_runs: int = 16
    limits: Limits = field(default_factory=Limits)
