"""What a reload does: how the units stand, and what the files say now -> what is done to each of them. Pure.

A cold start is the same with nothing standing yet. How it is carried out, and in which order, is
`supervisor.service.units`' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from supervisor.unit.differences import KeyChange, Takes, differences, with_in_place
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit


class Change(StrEnum):
    """What the files say of a unit."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Deed(StrEnum):
    """What a reload does about it."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    APPLY = "apply"
    """What has changed holds from now on; no process is touched."""
    HOLD = "hold"
    """Shown as changed, and left to those who may decide about it."""
    NOTHING = "nothing"


class Standing(msgspec.Struct, frozen=True):
    """A unit that is here."""

    unit: Unit
    """As it is in force, which need not be what the files last said."""
    kept_down_by: str | None = None
    """Who stopped it: it rests until somebody starts it."""
    gave_up: bool = False
    """It failed for good, or a condition was not met: with another declaration it is worth another try."""
    gang: bool = False
    """One rank of a gang: the others would wait for ever for one that is restarted alone."""


class Verdict(msgspec.Struct, frozen=True):
    """About one unit."""

    name: str
    change: Change
    deed: Deed
    keys: tuple[KeyChange, ...] = ()
    reason: str = ""
    """Where the deed is not what one would expect."""
    becomes: Unit | None = None
    """The declaration that is in force afterwards; None when it is here no more."""
    waits: Unit | None = None
    """The declaration that a rollout by the controller brings into force."""

    @property
    def held(self) -> tuple[str, ...]:
        """The keys in which the files differ from what is in force afterwards."""
        if self.deed is not Deed.HOLD:
            return ()
        return tuple(change.key for change in self.keys if change.takes is Takes.RESTART) or ("Unit",)


GANG = "one rank of a gang is never restarted alone: what takes a restart waits for a rollout by the controller"
ENGINE = "an engine comes, goes or changes hands only when podvisor itself is started anew: restart the container"
_CHANGES_HANDS = frozenset({"Engine", "Engine.Endpoints", "Engine.RestartWith", "Engine.Start"})
"""What the engine's supervision is built upon."""
_WORDS = frozenset({"Unit.Description", "Unit.Documentation"})
"""They mend nothing."""


def judge(standing: Mapping[str, Standing], declared: Sequence[Unit]) -> tuple[Verdict, ...]:
    """One verdict for each unit that is here or declared, by name."""
    files = {unit.name: unit for unit in declared}
    waits = _waiting(standing, files)
    kept = dict(_needed_by_those_that_stay(standing, files, waits))
    return tuple(
        _judge(name, standing.get(name), files.get(name), kept.get(name), waits.get(name))
        for name in sorted(standing.keys() | files.keys())
    )


def graph_of(verdicts: Sequence[Verdict]) -> Graph:
    """Of the units that are here afterwards."""
    return Graph.of([verdict.becomes for verdict in verdicts if verdict.becomes is not None])


def _judge(
    name: str, here: Standing | None, declared: Unit | None, kept_for: str | None, waits_for: str | None
) -> Verdict:
    if here is None:
        assert declared is not None, f"{name} is neither here nor declared"
        return _added(declared, waits_for)
    if declared is None:
        return _removed(here, kept_for)
    return _compared(here, declared) if waits_for is None else _held_whole(here, declared, waits_for)


def _added(declared: Unit, waits_for: str | None) -> Verdict:
    if declared.engine is not None:
        return Verdict(declared.name, Change.ADDED, Deed.HOLD, reason=ENGINE)
    if waits_for is not None:
        return Verdict(declared.name, Change.ADDED, Deed.HOLD, reason=_not_here_yet(waits_for))
    return Verdict(declared.name, Change.ADDED, Deed.START, becomes=declared)


def _held_whole(here: Standing, declared: Unit, waits_for: str) -> Verdict:
    """Its dependencies cannot be had yet, and what else has changed may have been written for them."""
    keys = tuple(replace(change, takes=Takes.RESTART) for change in differences(here.unit, declared))
    reason = _not_here_yet(waits_for)
    return Verdict(declared.name, Change.CHANGED, Deed.HOLD, keys, reason, becomes=here.unit)


def _not_here_yet(name: str) -> str:
    return f"it names {name}, which comes only when podvisor itself is started anew"


def _removed(here: Standing, kept_for: str | None) -> Verdict:
    name = here.unit.name
    if here.unit.engine is not None:
        return Verdict(name, Change.REMOVED, Deed.HOLD, reason=ENGINE, becomes=here.unit)
    if kept_for is not None:
        reason = f"{kept_for} needs it, and stays as it is until podvisor itself is started anew"
        return Verdict(name, Change.REMOVED, Deed.HOLD, reason=reason, becomes=here.unit)
    return Verdict(name, Change.REMOVED, Deed.STOP)


def _compared(here: Standing, declared: Unit) -> Verdict:
    found = differences(here.unit, declared)
    if not found:
        return Verdict(declared.name, Change.UNCHANGED, Deed.NOTHING, becomes=here.unit)
    verdict = Verdict(declared.name, Change.CHANGED, Deed.APPLY, found, becomes=with_in_place(here.unit, declared))
    if all(change.takes is Takes.NOTHING for change in found):
        return replace(verdict, deed=Deed.RESTART) if _worth_another_try(here, found) else verdict
    if any(change.key in _CHANGES_HANDS for change in found):
        return replace(verdict, deed=Deed.HOLD, reason=ENGINE)
    if here.gang:
        return replace(verdict, deed=Deed.HOLD, reason=GANG, waits=declared)
    if here.kept_down_by is not None:
        return replace(verdict, reason=f"stays down: stopped by {here.kept_down_by}", becomes=declared)
    return replace(verdict, deed=Deed.RESTART, becomes=declared)


def _worth_another_try(here: Standing, found: tuple[KeyChange, ...]) -> bool:
    return here.gave_up and not here.gang and any(change.key not in _WORDS for change in found)


def _waiting(standing: Mapping[str, Standing], files: Mapping[str, Unit]) -> Mapping[str, str]:
    """(unit, the one it names that is not here yet): an engine comes with another supervisor, and so do its users."""
    away = {name for name, unit in files.items() if name not in standing and unit.engine is not None}
    waits: dict[str, str] = {}
    while found := {name: other for name in files.keys() - away - waits.keys() for other in _named(files[name], away)}:
        waits |= found
        away |= found.keys() - standing.keys()
    return waits


def _named(unit: Unit, among: AbstractSet[str]) -> Sequence[str]:
    """The first of these, if any, that the unit names in a dependency."""
    each = unit.dependencies
    named = {*each.after, *each.before, *each.requires, *each.wants, *each.binds_to, *each.part_of, *each.conflicts}
    return sorted(named & among)[:1]


def _needed_by_those_that_stay(
    standing: Mapping[str, Standing], files: Mapping[str, Unit], waits: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(unit, who needs it): an engine that is gone from the files stays all the same, and so does what it needs."""
    graph = Graph.of([here.unit for here in standing.values()])
    for name, here in standing.items():
        if name in waits or (here.unit.engine is not None and name not in files):
            yield from ((other, name) for other in graph.pulled_in_by(name) - {name})
