"""Ticks the supervisor's arbiter (`supervisor.engine.model.arbiter`) as its task does, but only while something counts.

A tick that has nothing to count changes nothing but when the last one was: such ticks are made up for when they matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from controller.simulation.surroundings import Life
from supervisor.engine.model.arbiter import Arbiter, ArbiterSettings, Situation, tick


class Ticks:
    def __init__(
        self,
        life: Life,
        settings: ArbiterSettings,
        began: float,
        situation: Callable[[], Situation],
        end_supervisor: Callable[[str], None],
    ) -> None:
        self._life = life
        self._settings = settings
        self._began = began
        self._situation = situation
        self._end_supervisor = end_supervisor
        self._arbiter = Arbiter()
        self._ticking = False
        self._generation = (0, 0, began)
        """The one before, the present one, and since when."""

    def look(self, now: float) -> None:
        """Whatever may have changed the situation."""
        situation = self._situation()
        if situation.generation != self._generation[1]:
            self._generation = (self._generation[1], situation.generation, now)
        if self._ticking or not situation.counted:
            return
        self._ticking = True
        last = self._began + math.floor((now - self._began) / self._settings.interval_sec) * self._settings.interval_sec
        before, present, since = self._generation
        unburdened = Situation(generation=present if since <= last else before)
        self._arbiter, _ = tick(self._arbiter, unburdened, self._settings, last)
        self._next(last)

    def _next(self, last: float) -> None:
        moment = last + self._settings.interval_sec
        self._life.at(moment, lambda: self._tick(moment))

    def _tick(self, now: float) -> None:
        situation = self._situation()
        self._arbiter, verdict = tick(self._arbiter, situation, self._settings, now)
        if verdict.end_supervisor:
            self._end_supervisor(verdict.reason)
        elif situation.counted:
            self._next(now)
        else:
            self._ticking = False
