"""All units of this supervisor: started along their dependencies, stopped against them.

All are asked to start at once, and each waits for those it comes After; so whatever may run in parallel does. Each
stops when those that come after it have stopped. Engines and controllers are not known here: units whose start is
decided elsewhere are merely named. The set of units belongs to this class alone, and changes in
`rearrange` alone. A cold start is what is left of that when nothing has to stop and nothing is replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

import trio

from supervisor.process.disk import Disk
from supervisor.service.dependencies import Dependencies
from supervisor.service.operations import Surroundings, nothing_to_wait_for
from supervisor.service.outcomes import ConditionUnknown, StartFailed, StopReport, Transition
from supervisor.service.rearrangement import Rearrangement
from supervisor.service.relations import ASKED_BY, Relations, RelaunchGang
from supervisor.service.service import Service
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit
from supervisor.unit.relations import runs
from supervisor.wire import UnitView

log = logging.getLogger(__name__)

LAST_CALL_SEC = 3.0
"""So long before the deadline of a shutdown, order no longer matters and everything left is killed."""


class NoSuchUnit(Exception):
    """No unit of this name; the message names those there are."""


class Units:
    """`run` it, then `rearrange`. What is added beforehand is run from the beginning."""

    def __init__(
        self,
        graph: Graph,
        variables: Callable[[], Mapping[str, str]],
        *,
        started_elsewhere: Collection[str] = (),
        gang: Mapping[str, RelaunchGang] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """`variables` are what conditions look at: the supervisor's environment and the placement, as of now.

        `started_elsewhere`: units that others start when their time has come. Who requires one waits for it.
        `gang`: units of which there is one in each pod of an instance, and how to ask that all are relaunched.
        `disk`: where conditions look for paths.
        """
        self._graph = graph
        self._started_elsewhere = frozenset(started_elsewhere)
        self._services: dict[str, Service] = {}
        self._gang = gang or {}
        self._relations = Relations(graph, self._services, self._gang)
        self.dependencies = Dependencies(graph, self._services, variables, self._started_elsewhere, disk or Disk())
        self._lives: dict[str, trio.CancelScope] = {}
        """Of the services' tasks."""
        self._nursery: trio.Nursery | None = None
        self._hurried = trio.CancelScope()
        self._stopping = False

    def add(self, service: Service) -> None:
        self._services[service.unit.name] = service

    def surroundings_of(
        self, name: str, before_spawn: Callable[[], Awaitable[None]] = nothing_to_wait_for
    ) -> Surroundings:
        """What the service of this unit is to be made with."""
        return Surroundings(
            dependencies=partial(self._make_way, name),
            before_spawn=before_spawn,
            claims_unowned=partial(self._is_the_only_one_ever_started, name),
            moved=self._note,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The services' tasks. Cancelled: all are stopped at once and in no order; `stop_all` first is kinder."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for service in self._services.values():
                await nursery.start(self._live, service)
            nursery.start_soon(self._relations.run)
            task_status.started()
            await trio.sleep_forever()

    async def rearrange(self, change: Rearrangement, *, asked_by: str, reason: str) -> Mapping[str, StopReport]:
        """Stop, replace the set of units, start; the reports of those not verified to be gone.

        What it starts is only asked to: the states tell what comes of it. Cancelled while it stops: what was begun
        goes on in the services, and the set of units is as it was. While everything is being stopped nothing is
        replaced or started.
        """
        order = self._graph.giving_way_to(change.graph)
        stop = change.stop | self._owed_to(change.stop & change.start, change.stop)
        with self.dependencies.replacing(change.stop):
            reports = await self._stop_in_order(stop, order, asked_by=asked_by, reason=reason)
            for service in change.added:
                await self._take_in(service)
            ruled_out = await self._ruled_out(change.graph, {**self._declared(), **change.declared}, change.start)
            if not self._stopping:
                self._replace(change, ruled_out, asked_by)
        return reports

    # --- asked for ---------------------------------------------------------------------------------------------

    async def start_all(self, *, asked_by: str) -> None:
        """Ask all units to start but those that others start. What comes of it is seen in their states."""
        everyone = self._declared()
        self._ask_to_start(everyone.keys(), await self._ruled_out(self._graph, everyone, everyone.keys()), asked_by)

    async def start(self, name: str, *, asked_by: str) -> None:
        """Start a unit and what it requires and wants; return when it is spawned. Raise NoSuchUnit, StartFailed."""
        service = self.get(name)
        if self._stopping:
            raise StartFailed("all units are being stopped")
        self._relations.forget([name])
        for other in self._graph.pulled_in_by(name) - self._started_elsewhere - {name}:
            if self._services[other].state.at_rest and not self._services[other].state.satisfied:
                self._services[other].ask_to_start(f"{name}, which needs it")
        await service.start(asked_by=asked_by)

    async def stop(self, name: str, *, asked_by: str, reason: str) -> StopReport:
        """Stop a unit, and before it those that require it, are bound to it or part of it. Raise NoSuchUnit.

        Cancelled: what was begun goes on.
        """
        service = self.get(name)
        along = self._ours(self._graph.stopped_with(name))
        self._relations.forget({name, *along})
        try:
            why = f"{name} is stopped: {reason}" if reason else f"{name} is stopped"
            await self._stop_in_order(along, self._graph, asked_by=asked_by, reason=why)
            return await service.stop(asked_by=asked_by, reason=reason)
        finally:
            self._relations.forget({name, *along})  # they have seen each other go down

    async def restart(self, name: str, *, asked_by: str, reason: str) -> None:
        """Restart a unit; those that are bound to it or part of it are stopped before, and come back with it.

        Returns when it is spawned anew. Raise NoSuchUnit, StartFailed. Cancelled: the restart goes on.
        """
        service = self.get(name)
        if self._stopping or self._nursery is None:
            raise StartFailed("all units are being stopped")
        along = self._owed_to({name}, {name})
        begun, outcome = trio.open_memory_channel[int | StartFailed](1)

        async def restart_in_order() -> None:
            with begun:
                why = f"{name} is restarted: {reason}"
                await self._stop_in_order(along, self._graph, asked_by=asked_by, reason=why)
                try:
                    begun.send_nowait(service.ask_to_restart(asked_by, reason))
                except StartFailed as failure:
                    begun.send_nowait(failure)

        self._nursery.start_soon(restart_in_order)
        invocation = await outcome.receive()
        if isinstance(invocation, StartFailed):
            raise invocation
        await service.await_spawn(invocation)

    async def stop_all(self, deadline: float, *, asked_by: str, reason: str) -> Mapping[str, StopReport]:
        """Stop everything in order, before the deadline, once; the reports of those not verified to be gone.

        Near the deadline, or after `hurry`, order ends and everything left is killed. Cancelled: what was begun goes
        on in the services.
        """
        self._stopping = True
        now = trio.current_time()
        self._hurried.deadline = deadline - min(LAST_CALL_SEC, (deadline - now) / 2)
        with self._hurried:
            await self._stop_in_order(frozenset(self._services), self._graph, asked_by=asked_by, reason=reason)
        if self._hurried.cancelled_caught:
            log.warning("not everything has stopped in time: what is left is killed")
        reports: dict[str, StopReport] = {}
        with trio.move_on_at(deadline):
            async with trio.open_nursery() as nursery:
                for service in self._services.values():
                    nursery.start_soon(self._kill, service, asked_by, reason, reports)
        left = (name for name, service in self._services.items() if not service.state.at_rest)
        reports |= {name: StopReport(gone=False, survivors=("not stopped in time",)) for name in left}
        return {name: report for name, report in reports.items() if not report.gone}

    def hurry(self) -> None:
        """The second SIGTERM: kill now what is being stopped."""
        self._hurried.cancel(reason="hurried")

    def reopen_logs(self) -> None:
        """Somebody has moved the files away."""
        for service in self._services.values():
            service.output.reopen()

    # --- asked about -------------------------------------------------------------------------------------------

    def get(self, name: str) -> Service:
        """Raise NoSuchUnit."""
        try:
            return self._services[name]
        except KeyError:
            known = ", ".join(sorted(self._services)) or "none"
            raise NoSuchUnit(f"there is no unit {name!r} here; there are: {known}") from None

    def stopped_with(self, name: str) -> frozenset[str]:
        """Those that run and are stopped with this one: they require it, are bound to it or part of it."""
        return frozenset(other for other in self._graph.stopped_with(name) if runs(self._services[other].state))

    def held_up_by(self, name: str) -> frozenset[str]:
        """Those that run and go down with this one: bound to it or part of it, at any distance."""
        return frozenset(other for other in self._graph.restart_stops(name) if runs(self._services[other].state))

    def displaced(self) -> frozenset[str]:
        """Those that are down because one that they conflict with is not, and those that went down with them."""
        rivals = {
            name
            for name, service in self._services.items()
            if service.state.at_rest
            and any(not self._services[other].state.at_rest for other in self._graph.conflicts[name])
        }
        along = {other for name in rivals for other in self._graph.stopped_with(name)}
        return frozenset(rivals | {name for name in along if self._services[name].state.at_rest})

    def __iter__(self) -> Iterator[Service]:
        """In the order in which they start."""
        return (self._services[name] for name in self._graph.start_order() if name in self._services)

    def views(self, now: float) -> tuple[UnitView, ...]:
        return tuple(service.view(now) for service in self)

    async def _make_way(self, name: str) -> None:
        """The last thing before a start: what it conflicts with has stopped when this returns."""
        await self.dependencies.active(name)
        async with trio.open_nursery() as nursery:
            for other in self._graph.conflicts[name]:
                if not self._services[other].state.at_rest:
                    reason = f"{name}, with which it conflicts, is started"
                    nursery.start_soon(partial(self.stop, other, asked_by=ASKED_BY, reason=reason))

    def _note(self, transition: Transition) -> None:
        if not self._stopping:
            self._relations.observe(transition)

    def _is_the_only_one_ever_started(self, name: str) -> bool:
        return not any(service.state.started for other, service in self._services.items() if other != name)

    def _ours(self, names: Iterable[str]) -> frozenset[str]:
        """Those that are ours to stop."""
        return frozenset(names) - self._started_elsewhere - self._gang.keys()

    async def _stop_in_order(
        self, names: frozenset[str], order: Graph, *, asked_by: str, reason: str
    ) -> Mapping[str, StopReport]:
        """The reports of those not verified to be gone."""
        services = {name: self._services[name] for name in names}
        stopped = {name: trio.Event() for name in names}
        reports: dict[str, StopReport] = {}

        async def stop_in_turn(name: str) -> None:
            for later in names:
                if name in order.order_after(later):
                    await stopped[later].wait()
            reports[name] = await services[name].stop(asked_by=asked_by, reason=reason)
            stopped[name].set()

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(stop_in_turn, name)
        return {name: report for name, report in reports.items() if not report.gone}

    def _replace(self, change: Rearrangement, ruled_out: AbstractSet[str], asked_by: str) -> None:
        """Without a checkpoint: nobody sees one half of it, or a unit that is to start and was not asked to yet."""
        for name in change.removed:
            del self._services[name]
            self._lives.pop(name).cancel(reason="the unit is declared no more")
        for name, definition in change.redefined.items():
            self._services[name].redefine(definition.unit, definition.rules, definition.launch)
        self._graph = change.graph
        self._relations.go_by(change.graph)
        self.dependencies.go_by(change.graph)
        for service in change.added:
            self._services[service.unit.name] = service
        self._ask_to_start(change.start, ruled_out, asked_by)

    async def _take_in(self, service: Service) -> None:
        assert self._nursery is not None, "the units are run before they are rearranged"
        await self._nursery.start(self._live, service)

    async def _live(self, service: Service, *, task_status: trio.TaskStatus[None]) -> None:
        with self._lives.setdefault(service.unit.name, trio.CancelScope()):
            await service.run(task_status=task_status)

    def _declared(self) -> Mapping[str, Unit]:
        return {name: service.unit for name, service in self._services.items()}

    async def _ruled_out(self, graph: Graph, units: Mapping[str, Unit], names: AbstractSet[str]) -> frozenset[str]:
        """Of these units, those that stand back for one that they conflict with: their conditions do not hold."""
        ruled_out: set[str] = set()

        async def look(unit: Unit) -> None:
            with suppress(ConditionUnknown):  # it fails by itself when it is started
                if await self.dependencies.unmet_condition(unit) is not None:
                    ruled_out.add(unit.name)

        async with trio.open_nursery() as nursery:
            for name in names:
                if graph.conflicts[name]:
                    nursery.start_soon(look, units[name])
        return frozenset(ruled_out)

    def _ask_to_start(self, names: AbstractSet[str], ruled_out: AbstractSet[str], asked_by: str) -> None:
        """Of units in conflict the first in start order is started, unless its conditions do not hold."""
        if self._stopping:
            return
        asked: set[str] = set()
        for service in self:
            name = service.unit.name
            if name not in names or name in self._started_elsewhere:
                continue
            rivals = self._graph.conflicts[name] & (asked | self._up_beside(names))
            if rivals:
                log.info("%s is not started: it conflicts with %s", name, ", ".join(sorted(rivals)))
                continue
            if name not in ruled_out:
                asked.add(name)
            service.ask_to_start(asked_by)

    def _up_beside(self, names: AbstractSet[str]) -> frozenset[str]:
        return frozenset(name for name, each in self._services.items() if name not in names and not each.state.at_rest)

    def _owed_to(self, names: AbstractSet[str], stopped: AbstractSet[str]) -> frozenset[str]:
        """What is to be stopped before these are restarted, and comes back with them; not what is stopped anyway."""
        self._relations.forget(names)
        held_up = {other for name in names for other in self.held_up_by(name)}
        along = self._ours(held_up - stopped)
        for other in along:
            self._relations.owe(other, self._graph.follows(other) & (names | along))
        return along

    async def _kill(self, service: Service, asked_by: str, reason: str, reports: dict[str, StopReport]) -> None:
        grace = 0.0 if self._hurried.cancelled_caught else None
        reports[service.unit.name] = await service.stop(asked_by=asked_by, reason=reason, grace_sec=grace)
