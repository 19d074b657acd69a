"""What every part of a modelled fleet needs of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from controller.model.assembly import Joined, Rejected
from controller.simulation.agenda import Agenda, Happening
from controller.simulation.faults import stream
from controller.simulation.scenario import Scenario
from controller.simulation.told import Tell
from supervisor import wire


class ControllerSide(Protocol):
    """What a supervisor can say to the controller. The answers are those of the real one."""

    @property
    def term(self) -> int: ...

    def register(self, message: wire.RegisterMsg) -> Joined | Rejected: ...

    def reregister(self, message: wire.ReregisterMsg) -> Joined | Rejected: ...

    def heartbeat(self, message: wire.HeartbeatMsg) -> wire.HeartbeatAnswer:
        """Raises Unknown."""

    def report(self, message: wire.SoftwareFaultMsg) -> wire.FaultAnswer:
        """Raises Unknown."""

    def run_of(self, job_name: str, now: float) -> str | None:
        """The recovery that was open at `now` and still is."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    agenda: Agenda
    scenario: Scenario
    tell: Tell

    @property
    def now(self) -> float:
        return self.agenda.now

    def chance(self, *of: object) -> Random:
        """For one purpose of its own."""
        return stream(self.scenario, *of)


Link = Callable[[], ControllerSide | None]
"""The controller, if it can be reached now."""


class Life:
    """Appointments that end with whatever has made them."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.lives = True

    def at(self, moment: float, happen: Happening) -> None:
        self._agenda.at(moment, lambda: happen() if self.lives else None)

    def after(self, seconds: float, happen: Happening) -> None:
        self.at(self._agenda.now + seconds, happen)
