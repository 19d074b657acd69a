"""One recovery of one instance: what the registry hands to the strategy centre, and how it is talked to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import trio

from controller.model.member import InstanceKey
from controller.model.relaunch.exchange import Cancel, CancelKind, Event, Fault, Heartbeat, Tick
from controller.model.relaunch.run import Cause, Run, RunRecord


class Inbox:
    """Events for a run, in order. Its length is bounded by what members can differ in: of several waiting
    heartbeats of one boot and epoch of a member only the newest is kept."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._arrived = trio.Event()

    def post(self, event: Event) -> None:
        if isinstance(event, Heartbeat):
            self._forget_older(event)
        self._events.append(event)
        self._arrived.set()

    async def next(self, deadline: float | None) -> Event:
        """The next event, or Tick once `deadline` has come. Cancelled, nothing is lost."""
        with trio.CancelScope(deadline=float("inf") if deadline is None else deadline):
            while not self._events:
                self._arrived = trio.Event()
                await self._arrived.wait()
        return self.take() or Tick()

    def take(self) -> Event | None:
        """The next event, if one is waiting."""
        return self._events.popleft() if self._events else None

    def clear(self) -> None:
        self._events.clear()

    def faults(self) -> list[Fault]:
        """Those that wait; they go on waiting."""
        return [event for event in self._events if isinstance(event, Fault)]

    def forget_observations(self) -> None:
        """What was seen before a run opens is in the instance on which it opens, perhaps of an earlier boot."""
        kept = [event for event in self._events if isinstance(event, Fault | Cancel)]
        self._events = deque(kept)

    def _forget_older(self, event: Heartbeat) -> None:
        seen = event.observation
        for waiting in self._events:
            if (
                isinstance(waiting, Heartbeat)
                and waiting.member == event.member
                and waiting.observation.boot_id == seen.boot_id
                and waiting.observation.epoch == seen.epoch
            ):
                self._events.remove(waiting)
                return


@dataclass(eq=False)
class Recovery:
    """Made by the registry, which so keeps C1: at most one for an instance."""

    instance: InstanceKey
    run_id: str
    cause: Cause
    since: float
    strategy: str = "engine_relaunch"
    record: RunRecord | None = None
    """Of the run, if another life of the controller opened it."""
    inbox: Inbox = field(default_factory=Inbox)
    run: Run | None = None
    """As the strategy left it last; None while it waits for its turn."""
    queue: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around that wait."""
    withdrawn: Cancel | None = None
    """Who no longer wants it said so."""

    def cancel(self, kind: CancelKind, reason: str) -> None:
        """The run ends itself; one that waits for its turn need not wait for that."""
        self.withdrawn = Cancel(kind, reason)
        self.inbox.post(self.withdrawn)
        self.queue.cancel(reason=reason)

    @property
    def step(self) -> str:
        return str(self.run.step) if self.run else "queued"
