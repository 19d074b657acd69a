"""From the monotonic clock, by which everything is decided, to wall time, which only people read."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import trio

from controller.store.codec import Clocks
from supervisor.wire import timestamp


def wall_clock(now: float) -> Callable[[float], str]:
    """Turns a monotonic time into RFC 3339 UTC, given what the monotonic clock says now."""
    wall = datetime.now(UTC)
    return lambda moment: timestamp(wall + timedelta(seconds=moment - now))


def clocks() -> Clocks:
    """Both, at this moment."""
    return Clocks(trio.current_time(), time.time())
