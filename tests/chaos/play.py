"""Strike after strike: carry it out, let the world come to rest, look, judge. The first violation ends the play.

What holds an instance is cleared as an operator would: rest must come without any other help.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import choice

import trio

from tests.chaos import looking, operators
from tests.chaos.carrying_out import carry_out
from tests.chaos.faults import Strike, kind_of
from tests.chaos.journals import open_runs
from tests.chaos.judgement import Violation, held_jobs, judge, judge_watched, unrest
from tests.chaos.seen import STORE, Look, Watched
from tests.chaos.watch import Watch
from tests.chaos.world import World

REST_SEC = 120.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
"""Until everything serves again: each limit of the settings is shorter, several may follow one another."""
QUIET_SEC = 0.7
"""More than a heartbeat: for so long nothing may change in a world at rest."""
LOOK_SEC = 0.2
HELP_SEC = 1.0
"""How long an operator looks at what is held or stopped."""


@dataclass(frozen=True, slots=True)
class Played:
    """One strike, from rest to rest."""

    strike: Strike
    before: Look
    watched: Watched
    after: Look | None
    """None: rest did not come."""
    took_sec: float
    violations: tuple[Violation, ...]


async def play(world: World, strikes: Iterable[Strike], tell: Callable[[Played], None]) -> Played | None:
    """The strike that has violated an invariant, or None: all of them were borne.

    Each is asked for when the world is at rest.
    """
    async with _watching(world) as watch:
        before = await _rest(world, watch)
        await watch.take()
        assert isinstance(before, Look), f"the world did not begin: {before}"
        for strike in strikes:
            played = await _strike(world, watch, strike, before)
            tell(played)
            if played.violations or played.after is None:
                return played
            before = played.after
    return None


@asynccontextmanager
async def _watching(world: World) -> AsyncIterator[Watch]:
    async with trio.open_nursery() as nursery:
        watch = Watch(world)
        nursery.start_soon(watch.run)
        yield watch
        nursery.cancel_scope.cancel(reason="the play is over")


async def _strike(world: World, watch: Watch, strike: Strike, before: Look) -> Played:
    began = trio.current_time()
    await carry_out(world, strike, watch.tell)
    after = await _rest(world, watch)
    watched = await watch.take()
    took_sec = trio.current_time() - began
    if not isinstance(after, Look):
        missing = Violation("convergence", f"no rest within {REST_SEC:g} s: {'; '.join(after)}")
        return Played(strike, before, watched, None, took_sec, (missing, *judge_watched(world.stage, strike, watched)))
    return Played(strike, before, watched, after, took_sec, judge(world.stage, strike, before, watched, after))


async def _rest(world: World, watch: Watch) -> Look | tuple[str, ...]:
    """The world at rest, or why it did not come to it."""
    reasons: tuple[str, ...] = ("nobody has looked",)
    with trio.move_on_after(REST_SEC):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_help, world, watch)
            while True:
                found = await looking.look(world)
                reasons = unrest(world.stage, found)
                if not reasons:
                    await _try_outdated(world, watch)
                    await trio.sleep(QUIET_SEC)
                    again = await looking.look(world)
                    reasons = unrest(world.stage, again)
                    if not reasons and _same_processes(found, again):
                        at_rest = replace(again, journal=await open_runs(world))
                        nursery.cancel_scope.cancel(reason="rest has come")
                        return at_rest
                await trio.sleep(LOOK_SEC)
    return reasons


def _same_processes(one: Look, other: Look) -> bool:
    return all(one.pods[name].processes == other.pods[name].processes for name in one.pods)


async def _help(world: World, watch: Watch) -> None:
    """The operator: lets go what is held, starts stores that somebody has stopped and could not start again."""
    while True:
        await trio.sleep(HELP_SEC)
        found = await looking.look(world)
        if held_jobs(found):
            await operators.let_go(world, watch.tell)
        for name, pod in found.pods.items():
            units = pod.view.units if pod.view is not None else ()
            if any(unit.name == STORE and unit.state in ("inactive", "failed") for unit in units):
                await operators.start_stopped(world, name, STORE, watch.tell)


async def _try_outdated(world: World, watch: Watch) -> None:
    """It must not have any effect on a world at rest, whoever hears it."""
    for asked in await operators.commands_out_of_date(world, choice(world.stage.pods)):
        watch.tell_outdated(asked)


def tally(strikes: Sequence[Strike]) -> Counter[str]:
    """Faults by kind."""
    return Counter(kind_of(timed.fault) for strike in strikes for timed in strike.faults)
