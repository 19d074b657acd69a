"""Which instances live, by key and by id, and of each key that does not the last that did: its epoch goes on.

Whoever only looks something up needs no more than this; all changes are the registry's, which is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.entry import Entry
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import InstanceKey
from controller.recovery import Recovery
from controller.store.base import PAST_INSTANCES_KEPT


class NoSuchInstance(Exception):
    """None that lives has this id."""


class Roster:
    def __init__(self, kept: Mapping[InstanceKey, Instance]) -> None:
        """`kept`: living and DELETED ones."""
        self._past = {key: each for key, each in kept.items() if each.status is InstanceStatus.DELETED}
        self._entries = {key: Entry(each) for key, each in kept.items() if key not in self._past}
        self._by_id = {entry.instance.id: entry for entry in self._entries.values()}

    def entries(self) -> list[Entry]:
        """By id."""
        return sorted(self._entries.values(), key=lambda entry: entry.instance.id)

    @property
    def living(self) -> int:
        """How many instances."""
        return len(self._entries)

    def entry(self, instance_id: int) -> Entry:
        """Raises NoSuchInstance."""
        if (entry := self._by_id.get(instance_id)) is None:
            raise NoSuchInstance(f"no living instance has the id {instance_id}")
        return entry

    def has(self, instance_id: int) -> bool:
        return instance_id in self._by_id

    def of_key(self, key: InstanceKey) -> Entry | None:
        return self._entries.get(key)

    def newest(self, key: InstanceKey) -> Instance | None:
        """The living one, else the last that was deleted, so that the epoch of the key goes on."""
        entry = self._entries.get(key)
        return entry.instance if entry else self._past.get(key)

    def under_recovery(self, key: InstanceKey) -> Entry:
        """While a recovery is open its entry stays."""
        return self._entries[key]

    def recoveries(self) -> list[Recovery]:
        """Open ones, newest first."""
        found = [entry.recovery for entry in self._entries.values() if entry.recovery]
        return sorted(found, key=lambda recovery: recovery.since, reverse=True)

    def ahead_of(self, recovery: Recovery) -> tuple[InstanceKey, ...]:
        """Instances of its model that have waited for longer to be relaunched on their canary alone."""
        model = self.under_recovery(recovery.instance).instance.model
        return tuple(
            other.instance.key
            for other in self._entries.values()
            if (waits := other.recovery) and waits.is_to_begin_on_canary and other.instance.model == model
            if waits.number < recovery.number
        )

    # --- for the registry ----------------------------------------------------------------------------------

    def _enter(self, instance: Instance) -> Entry:
        """The first, or one after the last of its key was deleted."""
        entry = Entry(instance)
        self._entries[instance.key] = self._by_id[instance.id] = entry
        self._past.pop(instance.key, None)
        return entry

    def _strike(self, deleted: Instance) -> None:
        del self._entries[deleted.key]
        del self._by_id[deleted.id]
        self._past[deleted.key] = deleted
        if len(self._past) > PAST_INSTANCES_KEPT:
            del self._past[next(iter(self._past))]
