"""What each client of the API has asked of late, so that none keeps the others waiting.

A client is an address with what its token grants: a flood with one token does not hold up others behind the same
address, nor others with the same token elsewhere. Heartbeats and fault reports are no part of this: held back, they
would end containers that are well (`Route.vital`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from controller.model.limits import Limits, pay
from supervisor import wire
from supervisor.shared.http_app import Refusal
from supervisor.shared.tokens import Rights
from supervisor.wire import ErrorCode

MAX_CLIENTS = 4096
"""That are remembered; more cannot keep their limits for long anyhow."""
STATUS = 429
WHY = "this client asks too much, or too many follow events: come back after Retry-After seconds"

Client = tuple[str, Rights]


class Clients:
    """Counts are exact: nothing here waits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clear_at: dict[Client, float] = {}
        """When a client's requests will have been paid for by time; absent: they are."""
        self._in_flight: Counter[Client] = Counter()
        self._followers = 0

    @property
    def remembered(self) -> int:
        return len(self._clear_at)

    @contextmanager
    def request(self, client: Client, now: float) -> Iterator[None]:
        """One request is being answered. Raise Refusal."""
        self._pay(client, now)
        if self._in_flight[client] >= self._limits.requests_in_flight:
            raise _too_much(f"{self._limits.requests_in_flight} requests of yours are being answered", 1.0)
        self._in_flight[client] += 1
        try:
            yield
        finally:
            self._in_flight[client] -= 1
            if not self._in_flight[client]:
                del self._in_flight[client]

    def check_follower(self) -> None:
        """Raise Refusal if one more may not follow now."""
        if self._followers >= self._limits.event_followers:
            raise _too_much(f"{self._limits.event_followers} clients follow events", 10.0)

    @contextmanager
    def follower(self) -> Iterator[bool]:
        """One follows, if there is room: between `check_follower` and this another may have come first."""
        if self._followers >= self._limits.event_followers:
            yield False
            return
        self._followers += 1
        try:
            yield True
        finally:
            self._followers -= 1

    def _pay(self, client: Client, now: float) -> None:
        # Put last in the dict, whose first is forgotten first.
        self._clear_at[client], wait_sec = pay(self._clear_at.pop(client, now), now, self._limits)
        if len(self._clear_at) > MAX_CLIENTS:
            del self._clear_at[next(iter(self._clear_at))]
        if wait_sec > 0:
            raise _too_much(f"more than {self._limits.requests_per_sec:g} requests a second", wait_sec)


def _too_much(what: str, wait_sec: float) -> Refusal:
    after = max(1, math.ceil(wait_sec))
    body = wire.ErrorBody(error=ErrorCode.LIMITED, message=f"{what}: ask again in {after} s")
    return Refusal(STATUS, body, {"Retry-After": str(after)})
