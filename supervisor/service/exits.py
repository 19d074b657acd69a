"""The last exits of a unit, kept for people: how, who asked, and the last lines it wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

import msgspec

from supervisor.unit.restart import Ending
from supervisor.wire import ExitView, timestamp

EXITS_KEPT = 20
TAIL_LINES = 40


class ExitRecord(msgspec.Struct, frozen=True):
    ending: Ending
    at: datetime
    epoch: int | None
    oom_killed: bool
    log_tail: tuple[str, ...]
    diagnosis: tuple[str, ...] = ()

    @property
    def view(self) -> ExitView:
        ending = self.ending
        return ExitView(
            pid=ending.pid or 0,  # 0: it never got as far as a process
            code=ending.code,
            signal=ending.signal,
            asked=ending.asked,
            asked_by=ending.asked_by,
            cause=ending.cause + (" (out of memory)" if self.oom_killed else ""),
            uptime_sec=round(ending.ended_at - ending.began_at, 3),
            at=timestamp(self.at),
            epoch=self.epoch,
            oom_killed=self.oom_killed,
            core_dumped=ending.core_dumped,
            log_tail=self.log_tail,
            diagnosis=self.diagnosis,
        )


class Exits:
    """The newest last; bounded."""

    def __init__(self, earlier: tuple[ExitView, ...] = ()) -> None:
        """`earlier` are those of containers before, newest first."""
        self._records: deque[ExitRecord] = deque(maxlen=EXITS_KEPT)
        self._earlier = earlier

    def add(self, record: ExitRecord) -> None:
        self._records.append(record)

    @property
    def views(self) -> tuple[ExitView, ...]:
        """The newest first, those of earlier containers among them."""
        own = tuple(record.view for record in reversed(self._records))
        return (*own, *self._earlier)[:EXITS_KEPT]

    def __iter__(self) -> Iterator[ExitRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last(self) -> ExitRecord | None:
        return self._records[-1] if self._records else None
