"""One recovery of one instance: what the registry hands to the strategy centre, and how it is talked to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from controller.model import canary
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import Instance
from controller.model.judgement import Underway
from controller.model.member import InstanceKey
from controller.model.outcome import Ended, Failed, Interrupted, Recovered, Withdrawn
from controller.model.relaunch import exchange
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.exchange import Cancel, CancelKind, Event, Heartbeat, Tick
from controller.model.relaunch.run import Cause, Run, RunRecord
from controller.model.relaunch.view import view as run_view
from controller.model.selection import ENGINE_RELAUNCH
from supervisor.wire import RunView


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

    def faults(self) -> list[exchange.Fault]:
        """Those that wait; they go on waiting."""
        return [event for event in self._events if isinstance(event, exchange.Fault)]

    def forget_observations(self) -> None:
        """What was seen before a run opens is in the instance on which it opens, perhaps of an earlier boot."""
        kept = [event for event in self._events if isinstance(event, exchange.Fault | Cancel)]
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
    number: int = 0
    """Counts those of this life, in the order in which they were asked for."""
    strategy: str = ENGINE_RELAUNCH
    level: FaultLevel = FaultLevel.L2
    """Of what it answers: a graver fault preempts it."""
    fault: Fault | None = None
    """What it answers, unless that is the state of the whole instance."""
    began_with: tuple[Fault, ...] = ()
    """Faults of devices that its end answers; what comes later is judged then."""
    record: RunRecord | None = None
    """Of the run, if another life of the controller opened it."""
    kept: RunRecord | None = None
    """The row of the run that this life has written last."""
    is_over: bool = False
    inbox: Inbox = field(default_factory=Inbox)
    run: Run | None = None
    """Of a relaunch, as the strategy left it last; None while it waits for its turn."""
    follow: Cause | None = None
    """The relaunch to open at its end, whatever the instance looks like then."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around what is simply cancelled when the recovery is withdrawn: a relaunch's wait for its turn, all of the
    other strategies."""
    withdrawn: Cancel | None = None
    """Who no longer wants it said so."""
    gives_way_to: Fault | None = None
    """The graver fault for which it was withdrawn, or would be if its run could be preempted."""
    _news: trio.Event = field(default_factory=trio.Event)
    """Replaced whenever a row was written, and at the end."""

    def cancel(self, kind: CancelKind, reason: str) -> None:
        """A run ends itself; one that waits for its turn, and any other strategy, need not be waited for."""
        self.withdrawn = Cancel(kind, reason)
        self.inbox.post(self.withdrawn)
        self.scope.cancel(reason=reason)

    def give_way(self, fault: Fault) -> None:
        """To a graver fault, once."""
        if fault != self.gives_way_to:
            self.gives_way_to = fault
            self.cancel(CancelKind.PREEMPT, f"preempted: {fault.message}")

    def written(self, record: RunRecord) -> None:
        """It stands in the journal."""
        self.kept = record
        self._tell_who_waits()

    def end(self) -> None:
        """The instance was handed back."""
        self.is_over = True
        self._tell_who_waits()

    async def until_written(self, is_enough: Callable[[RunRecord], bool]) -> bool:
        """Whether a row of which `is_enough` is true stands in the journal, or it is over and has left no row."""
        while not self.is_over and (self.kept is None or not is_enough(self.kept)):
            await self._news.wait()
        return self.kept is None or is_enough(self.kept)

    def _tell_who_waits(self) -> None:
        self._news.set()
        self._news = trio.Event()

    @property
    def step(self) -> str:
        if self.run is not None:
            return str(self.run.step)
        return "queued" if self.strategy == ENGINE_RELAUNCH else "running"

    @property
    def is_to_begin_on_canary(self) -> bool:
        return canary.is_to_begin(self.cause, self.run or self.record)

    @property
    def underway(self) -> Underway:
        return Underway(self.strategy, self.level, self.run)

    def view(
        self, instance: Instance, now: float, to_wall: Callable[[float], str], ended: Ended | None = None
    ) -> RunView:
        """As tools see it; `ended`: what came of it, None while it runs."""
        if self.run is not None:
            return run_view(record(self.run, now), to_wall)
        return RunView(
            id=self.run_id,
            instance_id=instance.id,
            epoch=0 if self.strategy == ENGINE_RELAUNCH else instance.epoch,
            reason=self.cause.reason,
            outcome=None if ended is None else _WORDS[type(ended)],
            phase=1,
            steps=(),
            supervisors=tuple(member.address for member in instance.members),
            message=self.cause.text if ended is None else _said(ended),
            namespace=self.instance.namespace,
            job_name=self.instance.job_name,
            strategy=self.strategy,
        )


_WORDS: Mapping[type, str] = {Recovered: "done", Failed: "failed", Withdrawn: "aborted", Interrupted: "aborted"}


def _said(ended: Ended) -> str:
    return ended.message if isinstance(ended, Recovered) else ended.reason
