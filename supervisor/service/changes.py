""" "The state changed", level-triggered: the state lives in a plain object, this tells when to look again.

A reader takes the event *before* it reads the state, so that a change in between is not missed::

    while True:
        changed = changes.next()
        if wanted(state): return state
        await changed.wait()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

State = TypeVar("State")


class Changes:
    """Replaces its event at every change. Readers that come late see the state, not the past."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def next(self) -> trio.Event:
        """Set at the next change from now on."""
        return self._event

    def announce(self) -> None:
        changed, self._event = self._event, trio.Event()
        changed.set()

    async def wait_until(self, read: Callable[[], State], wanted: Callable[[State], bool]) -> State:
        """The first state from now on that is wanted; the present one counts. Cancelled: nothing happened."""
        while True:
            changed = self.next()
            state = read()
            if wanted(state):
                return state
            await changed.wait()
