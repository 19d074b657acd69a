"""Whose process is this? Pure rules over one scan of /proc.

A unit's processes are those below its leader, and of the orphans we adopted those that are in the leader's session,
were seen below the leader while their parents lived, or carry the invocation id. What an orphan has started is its
unit's too, and so is what lives in the unit's cgroup. Nothing else outside the supervisor's own descendants is ever
looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from supervisor.process.procfs import Identity, ProcessStat


class Marks(msgspec.Struct, frozen=True):
    """By what the processes of one unit are known."""

    leader: int | None
    """A pid that is still pinned, and so is the number of its session; None when there is no such any more."""
    invocation_ids: frozenset[str]
    seen: frozenset[Identity] = frozenset()
    claims_unowned_since: int | None = None
    """Orphans that carry no invocation id at all and started at or after these ticks count as this unit's too."""


class Surroundings(msgspec.Struct, frozen=True):
    supervisor: int
    supervisor_session: int
    managed: frozenset[int]
    """Direct children that have an owner."""
    newborn_ticks: int
    """Children that started earlier cannot be newborns of a spawn in flight."""


class Found(msgspec.Struct, frozen=True):
    members: tuple[ProcessStat, ...]
    """The living ones; zombies are past being stopped."""
    in_doubt: bool = False
    """There is an orphan that would be claimed, were it not perhaps a newborn. Look again in a moment."""
    unseen: bool = False
    """Something lives in the unit's cgroup, and the scan met none of it: it forks and ends faster than we look."""


def certainly_not_newborn(stat: ProcessStat, our_session: int, spawn_began_ticks: int) -> bool:
    """Whether a child of ours cannot have come from a spawn that began at that moment and still runs.

    A newborn is in our session until it opens its own, which then has its own number.
    """
    return stat.started_ticks < spawn_began_ticks or stat.session not in (our_session, stat.pid)


def find_members(
    stats: Mapping[int, ProcessStat],
    marks: Marks,
    around: Surroundings,
    invocation_of: Callable[[int], str | None],
    in_cgroup: Iterable[int] = (),
) -> Found:
    """The living processes of one unit. `invocation_of` is asked only about orphans that nothing else tells apart.

    `in_cgroup` was read after the scan: who is listed there and has another start time is dead, and signalled by
    nobody.
    """
    below = _children_by_parent(stats, around.supervisor)
    found: dict[int, ProcessStat] = {}
    in_doubt = False
    for child in below[around.supervisor]:
        if child.pid in around.managed:
            own = _with_all_below(child, below) if child.pid == marks.leader else ()
            found.update((stat.pid, stat) for stat in own)
            continue
        found.update((stat.pid, stat) for stat in _proven(child, below, marks, invocation_of))
        if child.pid in found or not child.alive or not _claimable(child, marks, invocation_of):
            continue
        if certainly_not_newborn(child, around.supervisor_session, around.newborn_ticks):
            found.update((stat.pid, stat) for stat in _with_all_below(child, below))
        else:
            in_doubt = True
    found.update((pid, stats[pid]) for pid in in_cgroup if pid in stats)
    return Found(tuple(stat for stat in found.values() if stat.alive), in_doubt)


def all_below(pid: int, stats: Mapping[int, ProcessStat]) -> tuple[ProcessStat, ...]:
    """The living descendants of a process, itself not included."""
    below = _children_by_parent(stats, pid)
    return tuple(stat for child in below[pid] for stat in _with_all_below(child, below) if stat.alive)


def _proven(
    orphan: ProcessStat,
    below: Mapping[int, list[ProcessStat]],
    marks: Marks,
    invocation_of: Callable[[int], str | None],
) -> Iterator[ProcessStat]:
    """From the orphan down, every process that bears a mark, with all that it started."""
    pending = [orphan]
    while pending:
        stat = pending.pop()
        if (
            (marks.leader is not None and stat.session == marks.leader)
            or stat.identity in marks.seen
            or (stat.alive and invocation_of(stat.pid) in marks.invocation_ids)
        ):
            yield from _with_all_below(stat, below)
        else:
            pending += below.get(stat.pid, ())


def _claimable(orphan: ProcessStat, marks: Marks, invocation_of: Callable[[int], str | None]) -> bool:
    since = marks.claims_unowned_since
    return since is not None and orphan.started_ticks >= since and invocation_of(orphan.pid) is None


def _with_all_below(top: ProcessStat, below: Mapping[int, list[ProcessStat]]) -> Iterator[ProcessStat]:
    pending = [top]
    while pending:
        stat = pending.pop()
        yield stat
        pending += below.get(stat.pid, ())


def _children_by_parent(stats: Mapping[int, ProcessStat], top: int) -> defaultdict[int, list[ProcessStat]]:
    """A forest in which `top` is nobody's child.

    A scan is no snapshot: numbers used again while it ran can close a circle of parents. A circle that can be
    reached from `top` goes through `top`, since everybody has one parent; so here there is none.
    """
    below: defaultdict[int, list[ProcessStat]] = defaultdict(list)
    for stat in stats.values():
        if stat.pid != top:
            below[stat.parent].append(stat)
    return below
