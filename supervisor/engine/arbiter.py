"""Ticks the arbiter (seed S15). The decision is `model/arbiter.py`, the situation comes from the engine's status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from supervisor.engine.model.arbiter import Arbiter, ArbiterSettings, Situation, tick

log = logging.getLogger(__name__)


ArbiterObserver = Callable[[int, Sequence[str]], None]
"""Told the new count of abnormal ticks and what was counted."""


class ArbiterTask:
    """One per supervisor. `count` is for status and metrics."""

    def __init__(
        self,
        settings: ArbiterSettings,
        situation: Callable[[], Situation],
        end_supervisor: Callable[[str], None],
        observers: Sequence[ArbiterObserver] = (),
    ) -> None:
        self._settings = settings
        self._situation = situation
        self._end_supervisor = end_supervisor
        self._observers = tuple(observers)
        self._arbiter = Arbiter()

    @property
    def count(self) -> int:
        return self._arbiter.count

    async def run(self) -> None:
        """Until cancelled, or until it has decided that the supervisor ends."""
        while True:
            await trio.sleep(self._settings.interval_sec)
            before = self._arbiter.count
            self._arbiter, verdict = tick(self._arbiter, self._situation(), self._settings, trio.current_time())
            if self._arbiter.count != before:
                self._tell()
            if verdict.end_supervisor:
                self._end_supervisor(verdict.reason)
                return

    def _tell(self) -> None:
        count, counted = self._arbiter.count, self._situation().counted
        if count:
            threshold, why = self._settings.threshold, "; ".join(counted)
            log.warning("abnormal: %d of %d ticks until this container restarts: %s", count, threshold, why)
        for observer in self._observers:
            observer(count, counted)
