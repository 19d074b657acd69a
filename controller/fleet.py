"""The instances whose containers were restarted of late; how many may be is `model.fleet`'s.

A new life of the controller has not seen them: its window begins empty.
"""

from __future__ import annotations

from controller.model import fleet
from controller.model.fleet import PhaseTwo, Recent
from controller.model.member import InstanceKey
from controller.model.settings import FleetSettings


class Fleet:
    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._recent: Recent = ()

    def why_not(self, instance: InstanceKey, instances: int, now: float) -> str:
        """See `model.fleet.why_not`."""
        return fleet.why_not(self._recent, instance, instances, now, self._settings)

    def note(self, instance: InstanceKey, why: str, now: float) -> None:
        self._recent = fleet.noted(self._recent, PhaseTwo(instance, now, why), self._settings)

    def forget(self, instance: InstanceKey) -> None:
        """An operator has dealt with it."""
        self._recent = fleet.forgotten(self._recent, instance)
