"""Drives a pure machine over all its moves from all states that the moves reach, and notes where each leads.

Machines count and keep times, so they have endlessly many states; `essence` says which of them the decisions treat
alike. Of each such class one state is driven, the first that is reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import msgspec

S = TypeVar("S")


class Edge(msgspec.Struct, frozen=True, order=True):
    source: str
    target: str
    label: str


def explore(
    starts: Iterable[S],
    moves: Callable[[S], Iterable[tuple[S, Iterable[Edge]]]],
    essence: Callable[[S], Hashable],
) -> frozenset[Edge]:
    """`moves` are the states that follow upon one, each with the edges that were gone along on the way."""
    waiting = deque(starts)
    known = {essence(state) for state in waiting}
    found: set[Edge] = set()
    while waiting:
        for reached, edges in moves(waiting.popleft()):
            found.update(edges)
            if (kind := essence(reached)) not in known:
                known.add(kind)
                waiting.append(reached)
    return frozenset(found)
