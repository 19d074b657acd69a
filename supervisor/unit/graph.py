"""Which unit needs which, and in what order they start and stop.

Requirement and order are two things, as in systemd.unit(5): `Requires` and `Wants` say what is started along,
`After` and `Before` say who waits for whom. `Before` is the other's `After`. Names that are no unit are left out
of the order; a missing requirement is reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from supervisor.unit.model import Unit


class Graph(msgspec.Struct, frozen=True):
    """The edges between units, by name. Made by `Graph.of`."""

    requires: Mapping[str, frozenset[str]]
    wants: Mapping[str, frozenset[str]]
    after: Mapping[str, frozenset[str]]
    """For every unit those that must be active first; `Before` of others included, unknown names not."""

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Graph:
        by_name = {unit.name: unit.dependencies for unit in units}
        after = {name: set(each.after) & by_name.keys() for name, each in by_name.items()}
        for name, each in by_name.items():
            for later in by_name.keys() & each.before:
                after[later].add(name)
        return cls(
            {name: frozenset(each.requires) for name, each in by_name.items()},
            {name: frozenset(each.wants) for name, each in by_name.items()},
            {name: frozenset(earlier) for name, earlier in after.items()},
        )

    def missing_requirements(self, known: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
        """(unit, required name that is no unit); `known` are names that count as units all the same."""
        present = self.after.keys() | set(known)
        for name in sorted(self.requires):
            for required in sorted(self.requires[name] - present):
                yield name, required

    def requirements_of(self, name: str) -> frozenset[str]:
        """The units whose failure is this one's failure: directly required."""
        return self.requires[name]

    def required_by(self, name: str) -> frozenset[str]:
        """The units that directly require this one."""
        return frozenset(other for other, required in self.requires.items() if name in required)

    def pulled_in_by(self, name: str) -> frozenset[str]:
        """The unit itself and all that starting it starts, at any distance."""
        pulled: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in self.after and each not in pulled:
                pulled.add(each)
                waiting += self.requires[each] | self.wants[each]
        return frozenset(pulled)

    def order_after(self, name: str) -> frozenset[str]:
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
        both = Graph({}, {}, {name: frozenset(earlier) for name, earlier in after.items()})
        return both if not both.cycle() else Graph({}, {}, {**dict.fromkeys(gone, frozenset()), **later.after})

    def longest_chain(self, durations: Mapping[str, float]) -> float:
        """How long the units take one after the other where they wait for each other, else at once."""
        ended: dict[str, float] = {}
        for name in self.start_order():
            begun = max((ended[earlier] for earlier in self.after[name]), default=0.0)
            ended[name] = begun + durations[name]
        return max(ended.values(), default=0.0)

    def cycle(self) -> tuple[str, ...]:
        """Units each of which waits for the next, the last for the first; empty if there is no circle."""
        done: set[str] = set()
        for start in sorted(self.after):
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
                    pending.append(iter(sorted(self.after[name])))
        return ()


def start_order(units: Iterable[Unit]) -> tuple[str, ...]:
    """The names of the units in the order in which they start."""
    return Graph.of(units).start_order()
