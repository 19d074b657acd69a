"""What a unit waits for before it starts: that what it comes After is active, and that its conditions hold.

By the graph of the moment: whoever waits while it is replaced looks again by the new one. Who starts the others, and
when, is the business of `units.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial

import trio

from supervisor.process.disk import Disk
from supervisor.service.conditions import unmet
from supervisor.service.outcomes import ConditionUnknown, ConditionUnmet, DependencyUnmet
from supervisor.service.service import Service
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit
from supervisor.unit.state import UnitState
from supervisor.unit.states import RunState


class Dependencies:
    """Of all units of one supervisor."""

    def __init__(
        self,
        graph: Graph,
        services: Mapping[str, Service],
        variables: Callable[[], Mapping[str, str]],
        started_elsewhere: AbstractSet[str],
        disk: Disk,
    ) -> None:
        """`services` fills up later. `variables`, `started_elsewhere` and `disk` as for `Units`."""
        self._graph = graph
        self._services = services
        self._variables = variables
        self._started_elsewhere = started_elsewhere
        self._disk = disk
        self._being_replaced: AbstractSet[str] = frozenset()
        """Units that were stopped and will be started, or taken away: that they are down decides nothing."""
        self._waiting: set[trio.CancelScope] = set()
        """Those who wait by this graph."""

    def go_by(self, graph: Graph) -> None:
        """From here on, for whoever begins to wait; who waits already looks again at the end of `replacing`."""
        self._graph = graph

    @contextmanager
    def replacing(self, names: AbstractSet[str]) -> Iterator[None]:
        """Meanwhile nobody gives up for want of these; afterwards all who wait look again."""
        self._being_replaced = names
        try:
            yield
        finally:
            self._being_replaced = frozenset()
            for waiting in self._waiting:
                waiting.cancel(reason="there may be another graph")

    async def unmet_condition(self, unit: Unit) -> str | None:
        """The first that does not hold, in words. Raise ConditionUnknown."""
        conditions = unit.conditions
        look = partial(unmet, conditions, self._variables())
        if not conditions.path_exists:
            return look()
        try:
            return await self._disk.ask(f"conditions of {unit.name}", look)
        except OSError as error:
            paths = ", ".join(map(repr, conditions.path_exists))
            raise ConditionUnknown(f"ConditionPathExists = {paths} cannot be looked at: {error.strerror}") from error

    async def active(self, name: str) -> None:
        """Until all that this unit comes After is active, or will not be.

        After is order alone, as in systemd: what is down and not asked to start is not waited for, unless it is
        required; then DependencyUnmet is raised. Raise ConditionUnmet when the unit is to be skipped, as is one that
        is bound to a unit that was; ConditionUnknown when that cannot be found out.
        """
        looking = trio.CancelScope()
        while True:
            self._waiting.add(looking)
            try:
                with looking:
                    return await self._by_this_graph(name)
            finally:
                self._waiting.discard(looking)
            looking = trio.CancelScope()  # there is another graph

    async def _by_this_graph(self, name: str) -> None:
        if (condition := await self.unmet_condition(self._services[name].unit)) is not None:
            raise ConditionUnmet(condition)
        required = self._graph.requirements_of(name)
        earlier = self._graph.order_after(name)
        elsewhere = self._graph.binds_to[name] & self._started_elsewhere
        for other in sorted(earlier | elsewhere):
            state = await self._services[other].wait_until(partial(self._is_decided, other, other in required))
            if other in required and not state.satisfied:
                raise DependencyUnmet(f"dependency {other} is {state.sub_state}: {state.reason}")
        for other in sorted(required - earlier - elsewhere):
            if other not in self._services:
                raise DependencyUnmet(f"dependency {other} does not exist")
            state = self._services[other].state
            if state.state is RunState.FAILED:
                raise DependencyUnmet(f"dependency {other} is {state.sub_state}: {state.reason}")
        for other in sorted(self._graph.binds_to[name]):
            state = self._services[other].state
            if state.skipped:
                raise ConditionUnmet(f"{other}, to which it is bound, is {state.reason}")
            if state.at_rest and not state.satisfied:
                raise DependencyUnmet(f"{other}, to which it is bound, is {state.sub_state}: {state.reason}")

    def _is_decided(self, name: str, required: bool, state: UnitState) -> bool:
        if state.satisfied:
            return True
        if name in self._being_replaced:
            return False
        return state.at_rest and not (required and name in self._started_elsewhere)
