"""Lets units follow each other (BindsTo, PartOf, OnDependencyRestart): what `supervisor.unit.relations` says is done.

A transition is judged at once, in the middle of it; its consequences are carried out by a task of their own, since a
unit's machine may not be told anything while it moves. At most one order waits for each unit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

from supervisor.service.outcomes import StartFailed, Transition
from supervisor.service.service import Service
from supervisor.unit import relations
from supervisor.unit.graph import Graph
from supervisor.unit.relations import Book, Change, Order, Wish

log = logging.getLogger(__name__)

ASKED_BY = "podvisor"

RelaunchGang = Callable[[str], Awaitable[None]]
"""Asks for the relaunch of the gang that a unit is one rank of; the argument is the reason. Never raises."""


class Relations:
    def __init__(self, graph: Graph, services: Mapping[str, Service], gang: Mapping[str, RelaunchGang]) -> None:
        """`services` fills up later. `gang`: the units that are never stopped or started alone."""
        self._graph = graph
        self._services = services
        self._gang = gang
        self._book = Book()
        self._pending: dict[str, Order] = {}
        self._news = trio.Event()

    def go_by(self, graph: Graph) -> None:
        """From here on; what was ordered by then is carried out."""
        self._graph = graph

    def observe(self, transition: Transition) -> None:
        """`Observer` of every unit."""
        change = Change(transition.unit, transition.before, transition.after)
        states = {name: service.state for name, service in self._services.items()}
        self._book, orders = relations.follow(self._graph, self._book, change, states, self._gang.keys())
        for order in orders:
            self._pending[order.unit] = relations.merged(self._pending.get(order.unit), order)
            self._news.set()

    def forget(self, units: Iterable[str]) -> None:
        """Somebody has said what these are to do: nothing is done to them for what happened before."""
        units = frozenset(units)
        self._book = self._book.forget(units)
        for name in units:
            self._pending.pop(name, None)

    def owe(self, unit: str, causes: Iterable[str]) -> None:
        """It is going to be stopped for the sake of these, and comes back with them."""
        self._book = self._book.owe((unit, cause) for cause in causes)

    async def run(self) -> None:
        """Until cancelled; what was ordered by then goes on in the services."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._news.wait()
                self._news = trio.Event()
                orders, self._pending = list(self._pending.values()), {}
                for order in orders:
                    if order.unit in self._services:  # a reload may have taken it away
                        self._carry_out(order, nursery)

    def _carry_out(self, order: Order, nursery: trio.Nursery) -> None:
        service = self._services[order.unit]
        log.debug("%s: %s: %s", order.unit, order.wish, order.reason, extra={"unit": order.unit})
        try:
            match order.wish:
                case Wish.STOP:
                    service.ask_to_stop(ASKED_BY, order.reason)
                case Wish.START:
                    service.ask_to_start(f"{ASKED_BY}: {order.reason}")
                case Wish.RESTART:
                    service.ask_to_restart(ASKED_BY, order.reason)
                case Wish.RELAUNCH:
                    nursery.start_soon(self._gang[order.unit], order.reason)
        except StartFailed as failure:
            log.debug("%s: not done: %s", order.unit, failure)  # everything is being stopped
