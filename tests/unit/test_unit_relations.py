"""What a change of one unit means for the others, by table; and that it always comes to an end."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.unit import events as ev
from supervisor.unit.graph import Graph
from supervisor.unit.machine import step
from supervisor.unit.model import Dependencies, OnDependencyRestart, RestartRule, RestartSettings, ServiceType, Unit
from supervisor.unit.relations import Book, Change, Order, Wish, follow, merged
from supervisor.unit.restart import Result
from supervisor.unit.state import Descent, Fault, Rules, Then, UnitState
from supervisor.unit.states import RunState, SubState

RESTARTS = RestartRule(OnDependencyRestart.RESTART)


def unit(name: str, **dependencies: object) -> Unit:
    return Unit(name, Path(f"{name}.toml"), dependencies=replace(Dependencies(), **dependencies))


GRAPH = Graph.of(
    [
        unit("store"),
        unit("bound", binds_to=("store",)),
        unit("part", part_of=("store",)),
        unit("follower", after=("store",), on_restart=RESTARTS),
        unit("needing", requires=("store",), after=("store",)),
    ]
)
REST, WAITING = UnitState(), UnitState(SubState.WAITING, invocation=1)
LOADING = UnitState(SubState.LOADING, invocation=1, main_pid=7)
UP = UnitState(SubState.READY, invocation=1, main_pid=7, restarts=0)
ASKED = Descent(Then.REST, 1.0, asked_by="operator", reason="maintenance")
CRASH = Descent(Then.DECIDE, 1.0, reason="killed", fault=Fault(Result.SIGNAL, "killed"))
STOPPING = replace(UP, sub_state=SubState.STOP_TERM, descent=ASKED, reason="asked")
CRASHING = replace(UP, sub_state=SubState.CLEANING, descent=CRASH, reason="killed")
COMPLETING = replace(UP, sub_state=SubState.CLEANING, descent=Descent(Then.COMPLETE, 1.0))
BACK_OFF = replace(UP, sub_state=SubState.AUTO_RESTART)
AGAIN = replace(WAITING, invocation=2, restarts=1)
SKIPPED = replace(REST, skipped=True, invocation=1)
AWAY = replace(UP, sub_state=SubState.UNHEALTHY, main_pid=None)
FAILED = replace(UP, sub_state=SubState.FAILED)

STOPS_BOUND = {"bound": Wish.STOP}
STOPS_BOTH = {"bound": Wish.STOP, "part": Wish.STOP}


@pytest.mark.parametrize(
    "before, after, wishes",
    [
        (UP, CRASHING, STOPS_BOUND),
        (UP, STOPPING, STOPS_BOTH),
        (LOADING, CRASHING, STOPS_BOUND),
        (UP, COMPLETING, {}),
        (CRASHING, BACK_OFF, {}),
        (CRASHING, FAILED, {}),
        (STOPPING, REST, {}),
        (WAITING, SKIPPED, STOPS_BOUND),
        (WAITING, REST, STOPS_BOUND),
        (BACK_OFF, REST, {}),
        (BACK_OFF, AGAIN, {"part": Wish.RESTART}),
        (CRASHING, AGAIN, {"part": Wish.RESTART}),
        (AGAIN, UP, {"follower": Wish.RESTART}),
        (AWAY, replace(AWAY, sub_state=SubState.READY), {"follower": Wish.RESTART}),
        (replace(UP, sub_state=SubState.UNHEALTHY), UP, {}),
        (UP, UP, {}),
        (REST, WAITING, {}),
    ],
)
def test_what_a_change_means(before: UnitState, after: UnitState, wishes: dict[str, Wish]) -> None:
    others = dict.fromkeys(("bound", "part", "follower", "needing"), UP)
    book = Book(served=frozenset({"store"}))
    change = Change("store", before, after)
    book, orders = follow(GRAPH, book, change, {**others, "store": after})
    assert {order.unit: order.wish for order in orders} == wishes
    stopped = {name for name, wish in wishes.items() if wish is Wish.STOP}
    assert book.owed == {(name, "store") for name in stopped}


def test_what_is_down_or_waits_is_left_alone() -> None:
    for state in (REST, FAILED, WAITING, STOPPING):
        states = {**dict.fromkeys(("bound", "part", "follower"), state), "store": UP}
        for before, after in ((UP, STOPPING), (BACK_OFF, AGAIN), (AGAIN, UP)):
            assert follow(GRAPH, Book(served=frozenset({"store"})), Change("store", before, after), states)[1] == ()


def test_the_first_time_is_no_relaunch() -> None:
    book, orders = follow(GRAPH, Book(), Change("store", LOADING, UP), {"store": UP, "follower": UP})
    assert (book.served, orders) == (frozenset({"store"}), ())


def test_what_was_stopped_for_its_sake_comes_back_with_it_and_no_sooner() -> None:
    graph = Graph.of([unit("a"), unit("b"), unit("c", binds_to=("a", "b"))])
    states = {"a": CRASHING, "b": UP, "c": UP}
    book, _ = follow(graph, Book(), Change("a", UP, CRASHING), states)
    states["c"] = REST
    book, orders = follow(graph, book, Change("b", UP, CRASHING), states)
    assert (orders, book.owed) == ((), frozenset({("c", "a"), ("c", "b")}))
    book, orders = follow(graph, book, Change("a", LOADING, UP), states)
    assert orders == ()
    book, orders = follow(graph, book, Change("b", LOADING, UP), states)
    assert [(order.unit, order.wish) for order in orders] == [("c", Wish.START)]
    assert book.owed == frozenset()


def test_what_a_person_stopped_stays_down() -> None:
    book, _ = follow(GRAPH, Book(), Change("store", UP, CRASHING), {"store": CRASHING, "bound": UP})
    book = book.forget(["bound"])
    assert follow(GRAPH, book, Change("store", LOADING, UP), {"store": UP, "bound": REST})[1] == ()


@pytest.mark.parametrize("before, after", [(UP, CRASHING), (BACK_OFF, AGAIN), (AGAIN, UP)])
def test_a_rank_of_a_gang_is_relaunched_with_it_and_nothing_else(before: UnitState, after: UnitState) -> None:
    graph = Graph.of([unit("store"), unit("engine", binds_to=("store",), part_of=("store",), on_restart=RESTARTS)])
    book, orders = follow(
        graph,
        Book(served=frozenset({"store"})),
        Change("store", before, after),
        {"store": after, "engine": UP},
        {"engine"},
    )
    expected = [] if before is BACK_OFF else [Wish.RELAUNCH]
    assert [order.wish for order in orders] == expected
    assert book.owed == frozenset()


@pytest.mark.parametrize(
    "pending, new, wish",
    [
        (None, Wish.STOP, Wish.STOP),
        (Wish.STOP, Wish.START, Wish.RESTART),
        (Wish.RESTART, Wish.START, Wish.RESTART),
        (Wish.START, Wish.STOP, Wish.STOP),
        (Wish.START, Wish.START, Wish.START),
        (Wish.STOP, Wish.RESTART, Wish.RESTART),
    ],
)
def test_of_two_orders_one_remains(pending: Wish | None, new: Wish, wish: Wish) -> None:
    first = None if pending is None else Order("u", pending, "first")
    assert merged(first, Order("u", new, "second")) == Order("u", wish, "second")


# --- any units, any events ---------------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d", "e"]
RULES = Rules(restart=RestartSettings(limit_burst=0, delay_sec=0.0))
LINKS = st.dictionaries(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), st.sampled_from("bpr"), max_size=8)
EVENTS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["crash", "stop", "start", "restart"])), max_size=8)
MOST_STEPS = 2000


class World:
    """Units whose machine, graph and relations are the real ones, and whose processes do at once what is asked."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.book = Book()
        self.states = dict.fromkeys(NAMES, UnitState())
        self.queue: deque[tuple[str, ev.Event]] = deque()
        self.by_person: dict[str, bool] = {}
        """Whether the last thing a person asked of a unit was that it runs."""
        for name in NAMES:
            self.ask(name, ev.Start("boot"))

    def ask(self, name: str, event: ev.Event) -> None:
        self.queue.append((name, event))
        self.settle()

    def person(self, name: str, what: str) -> None:
        match what:
            case "crash":
                if self.states[name].sub_state in (SubState.READY, SubState.LOADING):
                    self.ask(name, ev.Exited(None, "SIGKILL"))
            case "stop":
                named = {name, *self.graph.stopped_with(name)}
                self.book = self.book.forget(named)
                self.by_person |= dict.fromkeys(named, False)
                self.queue += [(each, ev.Stop("person", "wants it")) for each in sorted(named)]
                self.settle()
                self.book = self.book.forget(named)
            case "start" | "restart":
                self.book = self.book.forget([name])
                self.by_person[name] = True
                self.ask(name, ev.Start("person") if what == "start" else ev.Restart("person", "wants it"))

    def settle(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.queue:
                return
            self._hear(*self.queue.popleft())
        raise AssertionError("it goes round and round")

    def _hear(self, name: str, event: ev.Event) -> None:
        before = self.states[name]
        after, actions = step(RULES, before, event, 0.0, 0.0)
        self.states[name] = after
        self.book, orders = follow(self.graph, self.book, Change(name, before, after), self.states)
        assert follow(self.graph, self.book, Change(name, after, after), self.states) == (self.book, ())
        self.queue += [(name, answer) for action in actions for answer in self._answers(action)]
        self.queue += [(order.unit, self._event(order)) for order in orders]

    def _answers(self, action: ev.Action) -> list[ev.Event]:
        match action:
            case ev.AwaitDependencies():
                return [ev.DependenciesMet()]
            case ev.Spawn():
                return [ev.Spawned(7, awaits_ready=False)]
            case ev.StopTree():
                return [ev.TreeGone(ev.Exited(0, None))]
        return []

    def _event(self, order: Order) -> ev.Event:
        if order.wish is Wish.START:
            assert self.by_person.get(order.unit, True), f"{order.unit} was stopped by a person"
            return ev.Start("podvisor")
        return ev.Stop("podvisor", order.reason) if order.wish is Wish.STOP else ev.Restart("podvisor", order.reason)


def graph_of(links: dict[tuple[str, str], str]) -> Graph:
    def those(name: str, kind: str) -> tuple[str, ...]:
        return tuple(other for (each, other), what in links.items() if each == name and what == kind)

    return Graph.of(
        [
            unit(
                name,
                binds_to=those(name, "b"),
                part_of=those(name, "p"),
                requires=those(name, "r"),
                on_restart=RESTARTS,
            )
            for name in NAMES
        ]
    )


@settings(max_examples=200)
@given(LINKS, EVENTS)
def test_every_chain_of_consequences_ends_and_nobody_starts_what_a_person_stopped(
    links: dict[tuple[str, str], str], happened: list[tuple[str, str]]
) -> None:
    links = {(each, other): kind for (each, other), kind in links.items() if each > other}
    graph = graph_of(links)
    assert graph.following_circle() == ()
    world = World(graph)
    for name, what in happened:
        world.person(name, what)
        for each, state in world.states.items():
            if not world.by_person.get(each, True):
                assert state.at_rest, f"{each} is {state.sub_state} after {name} {what}"
            for other in graph.binds_to[each]:
                up = state.state is RunState.ACTIVE and world.states[other].state is not RunState.ACTIVE
                assert not up or world.by_person.get(each), f"{each} is up without {other} after {name} {what}"
    owed = {unit for unit, _ in world.book.owed}
    assert all(world.states[each].at_rest for each in owed)


@given(LINKS)
def test_circles_are_found(links: dict[tuple[str, str], str]) -> None:
    graph = graph_of(links)
    circle = graph.following_circle()
    for each, other in zip(circle, (*circle[1:], *circle[:1]), strict=True):
        assert (each, other) in links


def test_a_oneshot_that_has_done_its_work_again_is_a_relaunch() -> None:
    rules = Rules(type=ServiceType.ONESHOT)
    state = replace(COMPLETING, invocation=2)
    after, _ = step(rules, state, ev.TreeGone(ev.Exited(0, None)), 0.0, 0.0)
    states = {"store": after, "follower": UP}
    _, orders = follow(GRAPH, Book(served=frozenset({"store"})), Change("store", state, after), states)
    assert [order.wish for order in orders] == [Wish.RESTART]
