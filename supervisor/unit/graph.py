"""Which unit needs which, and in what order they start and stop.

Requirement and order are two things, as in systemd.unit(5): `Requires` and `Wants` say what is started along,
`After` and `Before` say who waits for whom. `Before` is the other's `After`, and a conflict is mutual. Names that are
no unit are left out of the order; a missing requirement is reported. What a change of one unit means for the others
is in `relations.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import Dependencies, OnDependencyRestart, Unit

Names = frozenset[str]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The edges between units, by name. Made by `Graph.of`."""

    requires: Mapping[str, Names] = msgspec.field(default_factory=dict)
    """BindsTo included: it is a requirement, and more."""
    wants: Mapping[str, Names] = msgspec.field(default_factory=dict)
    after: Mapping[str, Names]
    """For every unit those that must be active first; `Before` of others included, unknown names not."""
    binds_to: Mapping[str, Names] = msgspec.field(default_factory=dict)
    part_of: Mapping[str, Names] = msgspec.field(default_factory=dict)
    conflicts: Mapping[str, Names] = msgspec.field(default_factory=dict)
    """In both directions, unknown names not."""
    restarts_with: Mapping[str, Names] = msgspec.field(default_factory=dict)
    """For every unit those whose relaunch restarts it (OnDependencyRestart)."""

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Graph:
        by_name = {unit.name: unit.dependencies for unit in units}
        after = {name: set(each.after) & by_name.keys() for name, each in by_name.items()}
        conflicts = {name: set(each.conflicts) & by_name.keys() for name, each in by_name.items()}
        for name, each in by_name.items():
            for later in by_name.keys() & each.before:
                after[later].add(name)
            for other in by_name.keys() & each.conflicts:
                conflicts[other].add(name)
        return cls(
            requires={name: frozenset(each.requires) | set(each.binds_to) for name, each in by_name.items()},
            wants={name: frozenset(each.wants) for name, each in by_name.items()},
            after={name: frozenset(earlier) for name, earlier in after.items()},
            binds_to={name: frozenset(each.binds_to) for name, each in by_name.items()},
            part_of={name: frozenset(each.part_of) for name, each in by_name.items()},
            conflicts={name: frozenset(others) for name, others in conflicts.items()},
            restarts_with={name: _restarts_with(each, after[name]) for name, each in by_name.items()},
        )

    def missing_requirements(self, known: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
        """(unit, required name that is no unit); `known` are names that count as units all the same."""
        present = self.after.keys() | set(known)
        for name in sorted(self.requires):
            for required in sorted(self.requires[name] - present):
                yield name, required

    def requirements_of(self, name: str) -> Names:
        """The units whose failure is this one's failure: directly required."""
        return self.requires[name]

    def required_by(self, name: str) -> Names:
        """The units that directly require this one."""
        return _pointing_at(name, self.requires)

    def bound_to(self, name: str) -> Names:
        return _pointing_at(name, self.binds_to)

    def parts_of(self, name: str) -> Names:
        return _pointing_at(name, self.part_of)

    def restarted_with(self, name: str) -> Names:
        return _pointing_at(name, self.restarts_with)

    def stopped_with(self, name: str) -> Names:
        """Those that a stop of this unit stops too, at any distance: they require it, are bound to it or part of it."""
        return self._reached(name, lambda each: self.required_by(each) | self.parts_of(each))

    def restart_stops(self, name: str) -> Names:
        """Those that are down while this unit is restarted, at any distance: bound to it or part of it."""
        return self._reached(name, lambda each: self.bound_to(each) | self.parts_of(each))

    def follows(self, name: str) -> Names:
        """The units whose changes are this one's too (`relations.py`)."""
        return (self.binds_to[name] | self.part_of[name] | self.restarts_with[name]) & self.after.keys()

    def pulled_in_by(self, name: str) -> Names:
        """The unit itself and all that starting it starts, at any distance."""
        pulled: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in self.after and each not in pulled:
                pulled.add(each)
                waiting += self.requires[each] | self.wants[each]
        return frozenset(pulled)

    def order_after(self, name: str) -> Names:
        """The units that must be active before this one starts."""
        return self.after[name]

    def start_order(self) -> tuple[str, ...]:
        """All units, each after those it waits for, else by name. Raise ValueError if they wait in a circle."""
        missing = {name: len(earlier) for name, earlier in self.after.items()}
        later: dict[str, list[str]] = {name: [] for name in self.after}
        for name, earlier in self.after.items():
            for each in earlier:
                later[each].append(name)
        ready = sorted(name for name, count in missing.items() if not count)
        order: list[str] = []
        while ready:
            name = heapq.heappop(ready)
            order.append(name)
            for each in later[name]:
                missing[each] -= 1
                if not missing[each]:
                    heapq.heappush(ready, each)
        if len(order) < len(self.after):
            raise ValueError(f"the units wait in a circle: {' after '.join(self.cycle())}")
        return tuple(order)

    def giving_way_to(self, later: Graph) -> Graph:
        """The order in which units stop while this graph is replaced: what has gone is known to this one alone.

        Where both together would be a circle, what has gone is stopped in no order.
        """
        gone = self.after.keys() - later.after.keys()
        after = {name: set(earlier) for name, earlier in later.after.items()} | {name: set() for name in gone}
        for name, earlier in self.after.items():
            after.setdefault(name, set()).update(earlier if name in gone else earlier & gone)
        both = replace(later, after={name: frozenset(earlier) for name, earlier in after.items()})
        return both if not both.cycle() else replace(later, after={**dict.fromkeys(gone, frozenset()), **later.after})

    def longest_chain(self, durations: Mapping[str, float]) -> float:
        """How long the units take one after the other where they wait for each other, else at once."""
        return sum(durations[name] for name in self.slowest_chain(durations))

    def slowest_chain(self, durations: Mapping[str, float]) -> tuple[str, ...]:
        """The units, each after the one before, that together take longest."""
        chains: dict[str, tuple[float, tuple[str, ...]]] = {}
        for name in self.start_order():
            spent, earlier = max((chains[each] for each in sorted(self.after[name])), default=(0.0, ()))
            chains[name] = spent + durations[name], (*earlier, name)
        return max(chains.values(), default=(0.0, ()))[1]

    def cycle(self) -> tuple[str, ...]:
        """Units each of which waits for the next, the last for the first; empty if there is no circle."""
        return _circle(self.after)

    def following_circle(self) -> tuple[str, ...]:
        """Units each of which follows the next, the last the first: what happened to one would go round for ever."""
        return _circle({name: self.follows(name) for name in self.after})

    def _reached(self, name: str, next_to: Callable[[str], Names]) -> Names:
        """At any distance, itself excluded."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = (next_to(waiting.pop()) & self.after.keys()) - found - {name}
            found |= new
            waiting += new
        return frozenset(found)


def _restarts_with(each: Dependencies, after: set[str]) -> Names:
    known = after | set(each.requires) | set(each.wants) | set(each.binds_to)
    return frozenset(name for name in known if each.on_restart.of(name) is OnDependencyRestart.RESTART)


def _pointing_at(name: str, edges: Mapping[str, Names]) -> Names:
    return frozenset(other for other, named in edges.items() if name in named)


def _circle(edges: Mapping[str, Names]) -> tuple[str, ...]:
    done: set[str] = set()
    for start in sorted(edges):
        path: list[str] = []
        pending = [iter([start])]
        while pending:
            name = next(pending[-1], None)
            if name is None:
                pending.pop()
                if path:
                    done.add(path.pop())
            elif name in path:
                return tuple(path[path.index(name) :])
            elif name not in done:
                path.append(name)
                pending.append(iter(sorted(edges[name])))
    return ()


def start_order(units: Iterable[Unit]) -> tuple[str, ...]:
    """The names of the units in the order in which they start."""
    return Graph.of(units).start_order()
