"""How much one client of the API may ask."""

from __future__ import annotations

from dataclasses import dataclass

BURST_SEC = 2.0
"""Who was quiet for so long may ask at once what he may in that time."""


@dataclass(frozen=True, slots=True)
class Limits:
    requests_per_sec: float = 50.0
    """Of one client."""
    requests_in_flight: int = 16
    """Of one client, at a time."""
    event_followers: int = 100
    """All together."""


def pay(clear_at: float, now: float, limits: Limits) -> tuple[float, float]:
    """One more request of a client whose requests so far are paid for by time at `clear_at`.

    Returns when they then will be, and for how long the client has to wait before it may ask; above 0: this request is
    refused, and costs nothing.
    """
    clear_at = max(now, clear_at)
    wait_sec = clear_at - now - BURST_SEC
    if wait_sec > 0:
        return clear_at, wait_sec
    return clear_at + 1 / limits.requests_per_sec, 0.0
