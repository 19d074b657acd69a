"""How an engine parts from its requests before it is stopped in good order (design 8, Leaving and draining).

The engine of node rank 0 takes the requests of its gang: routers are given a moment to learn that it leaves, then it
is asked to end, which an engine does when its requests are done, within `drain_sec`. The engines of other ranks do
those requests' work: they stay until the controller says that nobody needs them, or the same time is over.
"""

from __future__ import annotations

import msgspec


class DrainSettings(msgspec.Struct, frozen=True):
    delay_sec: float
    """`drain_delay_sec`."""
    drain_sec: float
    """`drain_sec`; 0: no longer than the unit's own TimeoutStopSec."""


class Draining(msgspec.Struct, frozen=True):
    """What one tick of a drain sees."""

    began: float
    running: bool
    """The engine that served when it began has not ended since."""
    takes_requests: bool
    """Node rank 0."""
    released: bool
    """The controller has said that nobody needs it."""


class Wait(msgspec.Struct, frozen=True):
    until: float
    """Or until what is seen changes."""
    reason: str


class StopEngine(msgspec.Struct, frozen=True):
    grace_sec: float
    """At least; the unit's own TimeoutStopSec may be longer."""
    reason: str


class Over(msgspec.Struct, frozen=True):
    """The engine may be stopped like any unit."""

    reason: str


Move = Wait | StopEngine | Over


def next_move(draining: Draining, settings: DrainSettings, now: float) -> Move:
    """Ask again whenever something changes, and at the end of each wait."""
    if not draining.running:
        return Over("the engine has ended")
    routers_know = draining.began + settings.delay_sec
    if draining.takes_requests:
        if now < routers_know:
            return Wait(routers_know, f"for {settings.delay_sec:g} s, until routers know that it leaves")
        return StopEngine(settings.drain_sec, "draining: it ends when its requests are done")
    if draining.released:
        return Over("released by the controller: no request needs this rank")
    ends = routers_know + settings.drain_sec
    if now < ends:
        return Wait(ends, "until the rank that takes the requests has finished them")
    return Over(f"not released within {settings.delay_sec + settings.drain_sec:g} s")
