"""How a modelled supervisor keeps the controller informed, as `supervisor.engine.heartbeat` does.

A heartbeat that says nothing new is not sent one by one. It leaves a trace only in how fresh its sender is, and that
is known without it: the last moment of its rhythm at which the controller could hear it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Protocol

from controller.model.assembly import Rejected
from controller.reception import Unknown
from controller.simulation.surroundings import Life, Link
from supervisor import wire
from supervisor.engine.model import progress
from supervisor.wire import ErrorCode

MIN_GAP_SEC = 0.2
ROUNDING = 1e-9
"""Of a beat: whoever looks at the very moment of one has heard it."""
FIRST_RETRY_SEC = 1.0
MAX_RETRY_SEC = 30.0


class Speaker(Protocol):
    """Who has something to say."""

    @property
    def now(self) -> float: ...

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg: ...

    def registration(self) -> wire.RegisterMsg | wire.ReregisterMsg: ...

    def feed(self, event: progress.Event) -> None: ...

    def heard(self, run_id: str | None, term: int) -> None: ...

    def abandon(self, reason: str, then: Callable[[], None]) -> None: ...

    def obey(self, order: wire.Order) -> None: ...


class Pulse:
    def __init__(self, life: Life, link: Link, speaker: Speaker, interval_sec: float, chance: Random) -> None:
        self._life = life
        self._link = link
        self._speaker = speaker
        self._interval_sec = interval_sec
        self._chance = chance
        self.registered = False
        self._hears = False
        self._taken_at = 0.0
        self._tried_at = -math.inf
        self._sequence = 0
        self._news: tuple[object, ...] = ()
        self._waits_for_gap = False
        self._retry_sec = FIRST_RETRY_SEC

    def last_taken(self, now: float) -> float:
        """When the controller has heard the last heartbeat until `now`."""
        if not self.is_heard:
            return self._taken_at
        beats = math.floor((now - self._taken_at) / self._interval_sec + ROUNDING)
        return self._taken_at + beats * self._interval_sec

    @property
    def is_heard(self) -> bool:
        """The controller takes what its rhythm sends."""
        return self.registered and self._hears

    def next(self, now: float) -> float:
        """The next heartbeat of its rhythm."""
        return self.last_taken(now) + self._interval_sec

    def link_lost(self) -> None:
        """Or its sender's life is over: from now on the controller hears nothing."""
        self._taken_at, self._hears = self.last_taken(self._speaker.now), False
        self._tried_at = max(self._tried_at, self._taken_at)

    def link_back(self) -> None:
        if self.registered:
            missed = math.floor((self._speaker.now - self._tried_at) / self._interval_sec) + 1
            self._life.at(self._tried_at + missed * self._interval_sec, self.beat)

    def introduce(self) -> None:
        """Until the controller has taken it: for ever, at its own pace."""
        controller = self._link()
        if controller is None:
            self._introduce_later()
            return
        message = self._speaker.registration()
        if isinstance(message, wire.RegisterMsg):
            answer = controller.register(message)
        else:
            answer = controller.reregister(message)
        if isinstance(answer, Rejected):
            self._rejected(answer, message)
            return
        self._retry_sec = FIRST_RETRY_SEC
        self.registered = True
        self._taken_at = self._speaker.now
        if isinstance(message, wire.RegisterMsg):
            self._speaker.feed(progress.ControllerFound())
        else:
            self._speaker.feed(progress.Adopted(answer.instance.id))
        self._speaker.heard(None, controller.term)
        self.beat()

    def look(self) -> None:
        """What is new must not wait for the next interval."""
        if not self.registered or _news(self._speaker.heartbeat(0)) == self._news:
            return
        earliest = max(self._tried_at, self.last_taken(self._speaker.now)) + MIN_GAP_SEC
        if self._speaker.now >= earliest:
            self.beat()
        elif not self._waits_for_gap:
            self._waits_for_gap = True
            self._life.at(earliest, self._after_the_gap)

    def beat(self) -> None:
        if not self.registered:
            return
        self._sequence += 1
        message = self._speaker.heartbeat(self._sequence)
        self._news, self._tried_at = _news(message), self._speaker.now
        controller = self._link()
        if controller is None:
            return
        try:
            answer = controller.heartbeat(message)
        except Unknown:
            self.registered = self._hears = False
            self.introduce()
            return
        self._taken_at, self._hears = self._speaker.now, True
        self._speaker.heard(answer.run_id, answer.term)
        for order in answer.orders:
            self._speaker.obey(order)

    def _after_the_gap(self) -> None:
        self._waits_for_gap = False
        self.look()

    def _introduce_later(self) -> None:
        self._life.after(self._retry_sec * self._chance.uniform(0.5, 1.0), self.introduce)
        self._retry_sec = min(2 * self._retry_sec, MAX_RETRY_SEC)

    def _rejected(self, answer: Rejected, message: wire.RegisterMsg | wire.ReregisterMsg) -> None:
        if isinstance(message, wire.ReregisterMsg) and answer.code is ErrorCode.STALE_EPOCH:
            self._speaker.abandon(answer.message, self.introduce)
        else:
            self._introduce_later()


def _news(message: wire.HeartbeatMsg) -> tuple[object, ...]:
    return (message.status, message.step, message.epoch, message.prepared, message.run_id, message.leaving)
