"""Watches the world while a strike lasts, several times a second, and keeps what it has seen until it is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from controller.demo.kubelet import ContainerExited
from controller.events import ControllerEvent
from tests.chaos import looking
from tests.chaos.judgement import jobs
from tests.chaos.processes import is_still
from tests.chaos.seen import ENGINE, Asked, Ended, PodLook, Process, Watched
from tests.chaos.world import World

EVERY_SEC = 0.15
TRACES = ("Traceback (most recent call last)", "internal error")
ENGINES_OWN = "["
"""How lines begin that units have written: what they say of themselves is not podvisor's."""
LONGEST_TRACE = 3000


@dataclass
class _Seen:
    engines: set[tuple[str, Process]] = field(default_factory=set)
    together: set[tuple[str, str]] = field(default_factory=set)
    runs_at_once: Counter[str] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    outdated: list[Asked] = field(default_factory=list)


class Watch:
    """One task runs it; another takes what it has seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = _Seen()
        self._read: dict[Path, int] = {}
        self._next_entry = world.kubelet.timeline.next_number
        self._last_event = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_processes)
            nursery.start_soon(self._watch_runs)

    def tell(self, asked: Asked) -> None:
        self._seen.asked.append(asked)

    def tell_outdated(self, asked: Asked) -> None:
        self._seen.outdated.append(asked)

    async def take(self) -> Watched:
        """Everything since the last time."""
        seen, self._seen = self._seen, _Seen()
        return Watched(
            engines=frozenset(seen.engines),
            together=frozenset(seen.together),
            runs_at_once=dict(seen.runs_at_once),
            ended=tuple(self._new_ends()),
            asked=tuple(seen.asked),
            events=await self._new_events(),
            traces=tuple(self._new_traces()),
            outdated=tuple(seen.outdated),
        )

    async def _watch_processes(self) -> None:
        while True:
            pods = await looking.living(self._world)
            for name, pod in pods.items():
                self._seen.engines |= {(name, process) for process in pod.of(ENGINE)}
            self._seen.together |= set(_epochs_together(self._world, pods))
            await trio.sleep(EVERY_SEC)

    async def _watch_runs(self) -> None:
        while True:
            _, runs = await looking.instances_and_runs(self._world)
            for job, number in Counter(run.job_name for run in runs if run.outcome is None).items():
                self._seen.runs_at_once[job] = max(self._seen.runs_at_once[job], number)
            await trio.sleep(EVERY_SEC)

    async def _new_events(self) -> tuple[ControllerEvent, ...]:
        events = await looking.events_since(self._world, self._last_event)
        self._last_event = max((event.id for event in events), default=self._last_event)
        return events

    def _new_ends(self) -> Iterator[Ended]:
        timeline = self._world.kubelet.timeline
        for entry in timeline.entries:
            if entry.number >= self._next_entry and isinstance(entry.event, ContainerExited):
                yield Ended(entry.event.pod, entry.event.exit_code)
        self._next_entry = timeline.next_number

    def _new_traces(self) -> Iterator[str]:
        for log in self._world.logs():
            with log.open("rb") as lines:
                lines.seek(self._read.get(log, 0))
                for line in lines:
                    text = line.decode(errors="replace")
                    if not text.startswith(ENGINES_OWN) and any(trace in text for trace in TRACES):
                        yield f"{log.parent.parent.name}/{log.name}: {text[:LONGEST_TRACE]}"
                self._read[log] = lines.tell()


def _epochs_together(world: World, pods: Mapping[str, PodLook]) -> Iterator[tuple[str, str]]:
    """A scan takes a moment, in which the old may end and the new begin: who was seen first must live still."""
    for job, gang in jobs(world.stage).items():
        engines = [(name, process) for name in gang if name in pods for process in pods[name].of(ENGINE)]
        newest = max((process.epoch or 0 for _, process in engines), default=0)
        for name, process in engines:
            if process.epoch != newest and is_still(process):
                young = ", ".join(f"{other} in {where}" for where, other in engines if other.epoch == newest)
                yield job, f"{process} in {name} lived together with {young}"
