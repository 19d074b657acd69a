"""What happened, for people and for tools that follow: a bounded memory of events, each logged once."""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime

import msgspec
import trio

from supervisor.wire import timestamp

KEPT = 2000
"""Events that a reader may be behind; one that is further behind is told that there is a gap."""

log = logging.getLogger("controller.events")


class ControllerEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/events`."""

    id: int
    at: str
    kind: str
    """`instance`, `member`, `run`, `fault` or `controller`; `gap` where events were forgotten."""
    level: str
    message: str
    namespace: str | None = None
    job_name: str | None = None
    instance_id: int | None = None
    status: str | None = None
    """The instance's, after this."""
    run_id: str | None = None
    step: str | None = None
    epoch: int | None = None
    reason: str | None = None
    member: str | None = None


class EventLog:
    """Written by whoever decides, followed by any number of readers at their own pace."""

    def __init__(self) -> None:
        self._events: deque[ControllerEvent] = deque(maxlen=KEPT)
        self._next = 1
        self._appended = trio.Event()
        self._closed = False

    def append(
        self,
        kind: str,
        message: str,
        *,
        level: str = "info",
        namespace: str | None = None,
        job_name: str | None = None,
        instance_id: int | None = None,
        status: str | None = None,
        run_id: str | None = None,
        step: str | None = None,
        epoch: int | None = None,
        reason: str | None = None,
        member: str | None = None,
    ) -> ControllerEvent:
        event = ControllerEvent(
            id=self._next,
            at=timestamp(datetime.now(UTC)),
            kind=kind,
            level=level,
            message=message,
            namespace=namespace,
            job_name=job_name,
            instance_id=instance_id,
            status=status,
            run_id=run_id,
            step=step,
            epoch=epoch,
            reason=reason,
            member=member,
        )
        self._next += 1
        self._events.append(event)
        fields = {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}
        for name in ("id", "at", "level", "message"):
            del fields[name]
        log.log(logging.getLevelName(level.upper()), message, extra=fields)
        self._appended.set()
        self._appended = trio.Event()
        return event

    def since(self, last_id: int) -> list[ControllerEvent]:
        """Events after `last_id`, oldest first; begins with a `gap` if some were forgotten.

        An id of the future (of an earlier life of this controller) counts as 0.
        """
        if last_id >= self._next:
            last_id = 0
        found = [event for event in self._events if event.id > last_id]
        oldest = self._events[0].id if self._events else self._next
        if oldest > last_id + 1:
            gap = ControllerEvent(
                id=oldest - 1,
                at=timestamp(datetime.now(UTC)),
                kind="gap",
                level="warning",
                message=f"events {last_id + 1} to {oldest - 1} are no longer kept",
            )
            found.insert(0, gap)
        return found

    async def next_after(self, last_id: int) -> list[ControllerEvent]:
        """`since`, once it has something to say; empty only when the log is closed."""
        while True:
            # Taken before the look, so that nothing falls between the two.
            appended = self._appended
            batch = self.since(last_id)
            if batch or self._closed:
                return batch
            await appended.wait()

    def close(self) -> None:
        """Readers end once they have read everything: an open stream must not hold up a shutdown."""
        self._closed = True
        self._appended.set()
