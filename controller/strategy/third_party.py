"""Strategies of other distributions: entry points of the group `podvisor.strategies`, each naming an Offer.

One that cannot be used is named in an error and left out; the controller and all other strategies go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from controller.model.fault import ENGINE_DEAD
from controller.model.outcome import Outcome
from controller.model.selection import ENGINE_RELAUNCH, RELAUNCH_OF_THE_DEAD, Choices, Rule
from controller.recovery import Recovery
from controller.strategy.base import Strategy
from controller.strategy.tools import Tools

GROUP = "podvisor.strategies"
TAKEN = {ENGINE_RELAUNCH} | {rule.strategy for rule in Choices(frozenset()).rules}


@dataclass(frozen=True, slots=True)
class Offer:
    """What an entry point names; the entry point's name is the strategy's."""

    rules: tuple[Rule, ...]
    """Which faults it answers: they stand above the controller's own, but for a dead engine's."""
    build: Callable[[Tools], Strategy]
    """Called for each recovery anew."""


class Offered:
    def __init__(self, offer: Offer, tools: Tools) -> None:
        self._offer = offer
        self._tools = tools

    async def execute(self, recovery: Recovery) -> Outcome:
        return await self._offer.build(self._tools).execute(recovery)


@dataclass(frozen=True, slots=True)
class Found:
    offers: Mapping[str, Offer]
    errors: tuple[str, ...]
    """One for each that is left out: which, of which distribution, why."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for offer in self.offers.values() for rule in offer.rules)


def find(points: Iterable[EntryPoint] | None = None) -> Found:
    """What is installed beside the controller, in the order of the names. Never raises for what it finds there."""
    offers: dict[str, Offer] = {}
    errors: list[str] = []
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=lambda point: point.name):
        loaded = _load(point, offers)
        if isinstance(loaded, Offer):
            offers[point.name] = loaded
        else:
            of = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
            errors.append(f"the strategy {point.name}{of} is left out: {loaded}")
    return Found(offers, tuple(errors))


def _load(point: EntryPoint, offers: Mapping[str, Offer]) -> Offer | str:
    if point.name in TAKEN or point.name in offers:
        return "there is another strategy of this name"
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001 - whatever its modules do when they are imported
        return f"{point.value} cannot be loaded: {error!r}"
    if not isinstance(found, Offer):
        return f"{point.value} is of type {type(found).__name__}, expected {Offer.__module__}.{Offer.__name__}"
    if foreign := [rule.strategy for rule in found.rules if rule.strategy != point.name]:
        return f"one of its rules names the strategy {foreign[0]}, not its own name"
    if any(rule.codes & RELAUNCH_OF_THE_DEAD.codes for rule in found.rules):
        return f"a dead engine ({ENGINE_DEAD:#x}) is always the relaunch's"
    return found
