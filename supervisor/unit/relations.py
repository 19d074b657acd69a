"""What a change of one unit means for the others: BindsTo, PartOf (systemd.unit(5)) and OnDependencyRestart.

A plain function over the graph, what is remembered (`Book`) and the states before and after; the shell is
`supervisor.service.relations`. What was stopped for another unit's sake is owed a start: it comes back with that unit,
unless somebody has asked for something else in between. Whom nobody owes anything, and who is down, stays down: so
nothing here starts what a person stopped. Units that follow each other in a circle are refused when they are read
(`parse.py`), hence every chain of consequences ends.

Requires and Conflicts are no business of this module: what they ask for is done when a unit starts or is stopped
(`supervisor.service.units`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from supervisor.unit.graph import Graph
from supervisor.unit.state import Then, UnitState
from supervisor.unit.states import RunState, SubState


class Wish(StrEnum):
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    RELAUNCH = "relaunch"
    """One rank of a gang is never stopped or started alone: the gang is."""


class Order(msgspec.Struct, frozen=True):
    unit: str
    wish: Wish
    reason: str


class Change(msgspec.Struct, frozen=True):
    unit: str
    before: UnitState
    after: UnitState


class Book(msgspec.Struct, frozen=True):
    """What has to be known of the past."""

    owed: frozenset[tuple[str, str]] = frozenset()
    """(a unit, another for whose sake it was stopped and with which it comes back)."""
    served: frozenset[str] = frozenset()
    """Units that were active before: the next time they become active is a relaunch."""

    def forget(self, units: Iterable[str]) -> Book:
        """Somebody has said what they are to do."""
        named = frozenset(units)
        return replace(self, owed=frozenset(each for each in self.owed if each[0] not in named))

    def owe(self, pairs: Iterable[tuple[str, str]]) -> Book:
        return replace(self, owed=self.owed | frozenset(pairs))

    def owes(self, unit: str) -> bool:
        return any(owed == unit for owed, _ in self.owed)


Outcome = tuple[Book, tuple[Order, ...]]


def follow(
    graph: Graph, book: Book, change: Change, states: Mapping[str, UnitState], gang: AbstractSet[str] = frozenset()
) -> Outcome:
    """What is to be done to other units because of `change`. `gang`: those whose restart a controller decides."""
    if _went_down(change):
        book, orders = _take_down(graph, book, change, states)
    elif _begins_again(change):
        orders = _restart_parts(graph, change, states)
    elif _came_up(change):
        book, orders = _bring_along(graph, book, change, states)
    else:
        return book, ()
    return book.forget(gang), tuple(_as_it_may_be(orders, gang))


def merged(pending: Order | None, new: Order) -> Order:
    """One order for a unit that has not been told of the first yet."""
    if pending is None or new.wish is not Wish.START or pending.wish is Wish.START:
        return new
    return replace(new, wish=Wish.RESTART)


def runs(state: UnitState) -> bool:
    """There is something to be stopped: it is up, or on its way up and past waiting for others."""
    return state.state in (RunState.ACTIVE, RunState.ACTIVATING) and state.sub_state is not SubState.WAITING


def _take_down(graph: Graph, book: Book, change: Change, states: Mapping[str, UnitState]) -> Outcome:
    name, after = change.unit, change.after
    bound, parts = graph.bound_to(name), graph.parts_of(name) if _is_asked(after) else frozenset()
    orders = []
    for other in _known(bound | parts, states):
        if not (runs(states[other]) or book.owes(other)):
            continue
        book = book.owe([(other, name)])
        if runs(states[other]):
            relation = "to which it is bound" if other in bound else "of which it is a part"
            orders.append(Order(other, Wish.STOP, f"{name}, {relation}, goes down: {after.reason}"))
    return book, tuple(orders)


def _restart_parts(graph: Graph, change: Change, states: Mapping[str, UnitState]) -> tuple[Order, ...]:
    reason = f"{change.unit}, of which it is a part, is restarted: {change.after.reason}"
    parts = graph.parts_of(change.unit) - graph.bound_to(change.unit)
    return tuple(Order(other, Wish.RESTART, reason) for other in _known(parts, states) if runs(states[other]))


def _bring_along(graph: Graph, book: Book, change: Change, states: Mapping[str, UnitState]) -> Outcome:
    name = change.unit
    waiting = [other for other, cause in sorted(book.owed) if cause == name]
    again = name in book.served or _is_external(change)
    book = Book(book.owed - {(other, name) for other in waiting}, book.served | {name})
    orders = [
        Order(other, Wish.START, f"{name}, for whose sake it was stopped, is back")
        for other in _known(waiting, states)
        if not book.owes(other)
    ]
    if again:
        orders += [
            Order(other, Wish.RESTART, f"{name} was relaunched (OnDependencyRestart)")
            for other in _known(graph.restarted_with(name) - set(waiting), states)
            if runs(states[other])
        ]
    return book, tuple(orders)


def _as_it_may_be(orders: Iterable[Order], gang: AbstractSet[str]) -> Iterator[Order]:
    for order in orders:
        if order.unit not in gang:
            yield order
        elif order.wish is not Wish.START:
            yield replace(order, wish=Wish.RELAUNCH)


def _known(names: Iterable[str], states: Mapping[str, UnitState]) -> Iterator[str]:
    return (name for name in sorted(names) if name in states)


def _went_down(change: Change) -> bool:
    before, after = change.before, change.after
    was_up = before.state in (RunState.ACTIVE, RunState.ACTIVATING) and before.sub_state is not SubState.AUTO_RESTART
    is_up = after.state in (RunState.ACTIVE, RunState.ACTIVATING) and after.sub_state is not SubState.AUTO_RESTART
    completes = after.descent is not None and after.descent.then is Then.COMPLETE  # a oneshot, on its way to success
    return was_up and not is_up and not completes


def _is_asked(state: UnitState) -> bool:
    return state.descent is not None and state.descent.asked_by is not None and state.descent.fault is None


def _begins_again(change: Change) -> bool:
    """By its own restart policy: a restart that was asked for has taken its parts down before."""
    return change.after.restarts > change.before.restarts


def _came_up(change: Change) -> bool:
    return _serves(change.after) and (not _serves(change.before) or _is_external(change))


def _serves(state: UnitState) -> bool:
    return state.state is RunState.ACTIVE or state.completed


def _is_external(change: Change) -> bool:
    """A unit without a process of ours that was away and is back: who restarted it we cannot know."""
    recovered = change.before.sub_state is SubState.UNHEALTHY and change.after.sub_state is SubState.READY
    return recovered and change.after.main_pid is None
