"""What was done of late to instances of the fleet, by which others wait; how long is `model.fleet`'s and
`model.canary`'s.

A new life of the controller has not seen whose containers were restarted: that window begins empty. Relaunches on a
canary alone stand in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from controller.model import canary, fleet
from controller.model.canary import Begun
from controller.model.fleet import PhaseTwo, Recent
from controller.model.instance import Instance
from controller.model.member import InstanceKey
from controller.model.relaunch.run import PutOff, Run, RunRecord
from controller.model.settings import FleetSettings


class Fleet:
    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._recent: Recent = ()
        self._on_canary: canary.Recent = ()

    def why_not(self, instance: InstanceKey, instances: int, now: float) -> str:
        """See `model.fleet.why_not`."""
        return fleet.why_not(self._recent, instance, instances, now, self._settings)

    def put_off(self, instance: Instance, ahead: Sequence[InstanceKey], now: float) -> PutOff | None:
        """See `model.canary.put_off`."""
        return canary.put_off(self._on_canary, instance, ahead, now, self._settings.canary_min_interval_sec)

    def told(self, run: Run, instances: int, ahead: Callable[[], Sequence[InstanceKey]], now: float) -> Run:
        """With what the fleet bids it: until it has been stepped and noted, nobody else may decide."""
        waits = self.put_off(run.instance, ahead(), now) if canary.is_to_begin(run.cause, run) else None
        return replace(run, no_phase_two=self.why_not(run.instance.key, instances, now), put_off=waits)

    def note(self, before: Run | None, run: Run, now: float) -> None:
        """What it has just begun."""
        if run.phase == 2 and (before is None or before.phase == 1):
            self._recent = fleet.noted(self._recent, PhaseTwo(run.instance.key, now, run.message), self._settings)
        self._note_canary(run, run.instance)

    def recall(self, records: Iterable[RunRecord], instances: Mapping[InstanceKey, Instance]) -> None:
        """From the journal; of which model an instance was that is forgotten nobody knows."""
        for record in sorted(records, key=lambda record: record.opened_at):
            if instance := instances.get(record.instance):
                self._note_canary(record, instance)

    def forget(self, instance: InstanceKey) -> None:
        """An operator has dealt with it."""
        self._recent = fleet.forgotten(self._recent, instance)

    def _note_canary(self, run: Run | RunRecord, instance: Instance) -> None:
        if (at := canary.begun_at(run)) is not None:
            begun = Begun(instance.key, instance.model, at)
            self._on_canary = canary.noted(self._on_canary, begun, self._settings.canary_min_interval_sec)
