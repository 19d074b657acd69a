"""Who leads: one notion for all stores. How each kind of store decides it stands with the store.

A leadership is a cancel scope. Whatever commands runs in it; when it is lost, all of that ends at its next
checkpoint, nothing is cleaned up, and what was in memory is dropped: another controller may lead already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import trio

from controller.store.base import Store
from controller.store.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Leader:
    """Whom a standby knows to lead."""

    url: str
    """At which supervisors reach it."""
    term: int | None
    """None: it is not known here."""


@dataclass(eq=False)
class Leadership:
    """Ours, until it is lost or given up. A deadline of `scope` is a moment after which another may lead."""

    store: Store
    url: str = ""
    """Ours, as others are told."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _reason: str = "it could not be renewed in time"

    @property
    def is_lost(self) -> bool:
        """True from the very moment on, also where a clock passed the deadline while this process was stopped."""
        return self.scope.cancel_called

    @property
    def reason(self) -> str:
        """Why it is lost."""
        return self._reason

    def lose(self, reason: str) -> None:
        """Another leads, or may: nothing more is sent or written. What was lost stays lost, for its first reason."""
        if not self.is_lost:
            self._reason = reason
            self.scope.cancel(reason=reason)


class Election(Protocol):
    @property
    def leader(self) -> Leader | None:
        """The other controller that leads, as far as is known; None while we lead, or nobody, or nobody knows."""

    def campaign(self) -> AbstractAsyncContextManager[Leadership]:
        """Waits, for ever if need be, until this process leads; leaving the block gives the leadership up.

        Cancelled while it waits, this process leads nothing.
        """


class MemoryElection:
    """Of the only controller there is: it leads at once. Its store goes on, so that no term is taken twice."""

    leader = None

    def __init__(self, url: str, store: MemoryStore) -> None:
        self._url = url
        self._store = store

    @asynccontextmanager
    async def campaign(self) -> AsyncIterator[Leadership]:
        yield Leadership(self._store, self._url)
