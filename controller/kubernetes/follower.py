"""Looks at instances whenever the registry tells of them, and hands on what is to be written.

It waits for nobody but the registry: writers take what they can.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from controller.entry import Entry
from controller.events import ControllerEvent
from controller.kubernetes.condition_writer import ConditionWriter
from controller.kubernetes.event_writer import EventWriter
from controller.kubernetes.pod_deleter import PodDeleter
from controller.kubernetes.pod_watch import PodWatch
from controller.model.instance import Instance
from controller.model.kubernetes import telling
from controller.model.kubernetes.condition import wanted
from controller.model.kubernetes.pods import pod_of, pods_of, ref_of
from controller.model.kubernetes.telling import Look, News
from controller.model.member import InstanceKey
from controller.recovery import Recovery
from controller.registry import Registry

ALL_SEC = 10.0
"""So often all are looked at, whatever was told."""
AT_A_TIME = 50
"""Instances, then others have their turn: a fleet's heartbeats do not wait for this."""


class Follower:
    def __init__(
        self,
        registry: Registry,
        watch: PodWatch,
        events: EventWriter | None,
        conditions: ConditionWriter | None,
        deleter: PodDeleter | None,
    ) -> None:
        """None: that is switched off."""
        self._registry = registry
        self._watch = watch
        self._events = events
        self._conditions = conditions
        self._deleter = deleter
        self._looks: dict[InstanceKey, Look] = {}
        self._recoveries: dict[InstanceKey, Recovery] = {}
        """Whose run the last look showed."""

    async def run(self) -> None:
        """Until the registry's events end, which is the end of this leadership, or until cancelled."""
        await self._watch.listed.wait()
        for entry in self._registry.entries():
            # What was before this leadership others have told.
            self._remember(entry.instance, entry.recovery)
        seen = self._registry.events.last_id
        while True:
            await self._look_at_all()
            with trio.move_on_after(ALL_SEC):
                while batch := await self._registry.events.ring.next_after(seen):
                    seen = batch[-1].id
                    self._look_at(_told_of(batch))
                    self._delete()
                return

    async def _look_at_all(self) -> None:
        entries = self._registry.entries()
        keys = [entry.instance.key for entry in entries]
        for start in range(0, len(keys), AT_A_TIME):
            self._look_at(keys[start : start + AT_A_TIME])
            await trio.lowlevel.checkpoint()
        self._forget(entries)
        self._delete()

    def _look_at(self, keys: Iterable[InstanceKey]) -> None:
        now = trio.current_time()
        for key in keys:
            if (instance := self._registry.newest(key)) is not None:
                entry = self._registry.of_key(key)
                self._one(instance, entry.recovery if entry else None, now)

    def _one(self, instance: Instance, recovery: Recovery | None, now: float) -> None:
        for news in self._news(instance, recovery):
            if self._events:
                self._tell(self._events, instance, news, now)
        if self._conditions:
            condition = wanted(instance, recovery is not None)
            for pod in pods_of(instance, self._watch.pods):
                if not pod.is_being_deleted:
                    self._conditions.want(pod, condition, now)

    def _delete(self) -> None:
        """Without a look at the fleet while nobody is stranded."""
        if self._deleter and any(look.stranded for look in self._looks.values()):
            self._deleter.look(trio.current_time())

    def _news(self, instance: Instance, recovery: Recovery | None) -> tuple[News, ...]:
        before, earlier = self._looks.get(instance.key, Look()), self._recoveries.get(instance.key)
        is_over = earlier is not None and earlier is not recovery
        ended = telling.look(instance, earlier.run).run if earlier and is_over else None
        return telling.news(before, self._remember(instance, recovery), ended)

    def _remember(self, instance: Instance, recovery: Recovery | None) -> Look:
        found = self._looks[instance.key] = telling.look(instance, recovery.run if recovery else None)
        self._recoveries.pop(instance.key, None)
        if recovery is not None:
            self._recoveries[instance.key] = recovery
        return found

    def _tell(self, writer: EventWriter, instance: Instance, news: News, now: float) -> None:
        pods = pods_of(instance, self._watch.pods)
        if news.member is not None and (member := instance.member(news.member)):
            pods = tuple(filter(None, [pod_of(member, self._watch.pods)]))
        writer.tell(pods, news, now)

    def _forget(self, entries: Iterable[Entry]) -> None:
        living = {entry.instance.key: entry.instance for entry in entries}
        for key in self._looks.keys() - living.keys():
            del self._looks[key]
            self._recoveries.pop(key, None)
        if self._events:
            self._events.forget(trio.current_time())
        if self._conditions:
            refs = (ref_of(member) for instance in living.values() for member in instance.members)
            self._conditions.forget({ref for ref in refs if ref})


def _told_of(batch: Iterable[ControllerEvent]) -> list[InstanceKey]:
    """Each once. What was forgotten in a gap is seen when all are looked at."""
    keys = (InstanceKey(event.namespace, event.job_name) for event in batch if event.namespace and event.job_name)
    return list(dict.fromkeys(keys))
