"""Ticks the arbiter (seed S15). The decision is `model/arbiter.py`; the situation is the engine's and the units'."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from supervisor.engine.model.arbiter import Arbiter, ArbiterSettings, Situation, Verdict, at_once, tick
from supervisor.service.changes import Changes

log = logging.getLogger(__name__)


ArbiterObserver = Callable[[int, Sequence[str]], None]
"""Told the new count of abnormal ticks and what was counted."""


class ArbiterTask:
    """One per supervisor. `count` is for status and metrics."""

    def __init__(
        self,
        settings: ArbiterSettings,
        situation: Callable[[], Situation],
        changed: Changes,
        end_supervisor: Callable[[Verdict], None],
        observers: Sequence[ArbiterObserver] = (),
    ) -> None:
        """`changed` is announced when a unit has given up: that need not wait for a tick."""
        self._settings = settings
        self._situation = situation
        self._changed = changed
        self._end_supervisor = end_supervisor
        self._observers = tuple(observers)
        self._arbiter = Arbiter()

    @property
    def count(self) -> int:
        return self._arbiter.count

    async def run(self) -> None:
        """Until cancelled, or until it has decided that the supervisor ends."""
        due = trio.current_time() + self._settings.interval_sec
        while True:
            changed = self._changed.next()
            with trio.move_on_at(due):
                await changed.wait()
            now = trio.current_time()
            if now < due:
                verdict = at_once(self._situation())
            else:
                verdict, due = self._tick(now), now + self._settings.interval_sec
            if verdict.end_supervisor:
                self._end_supervisor(verdict)
                return

    def _tick(self, now: float) -> Verdict:
        before = self._arbiter.count
        self._arbiter, verdict = tick(self._arbiter, self._situation(), self._settings, now)
        if self._arbiter.count != before:
            self._tell()
        return verdict

    def _tell(self) -> None:
        count, counted = self._arbiter.count, self._situation().counted
        if count:
            threshold, why = self._settings.threshold, "; ".join(counted)
            log.warning("abnormal: %d of %d ticks until this container restarts: %s", count, threshold, why)
        for observer in self._observers:
            observer(count, counted)
