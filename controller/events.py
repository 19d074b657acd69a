"""What happened, for people and for tools that follow: a bounded memory of events, each logged once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from supervisor.shared.event_ring import EventRing
from supervisor.wire import timestamp

UNWRITTEN = 1000
"""More than a controller that was killed can have numbered and not written down: no number is given twice."""

log = logging.getLogger("controller.events")

LONGEST_MESSAGE = 2000
"""What supervisors write into messages is theirs; so many are remembered that each has to be short."""


class ControllerEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `GET /v1/events`."""

    id: int
    at: str
    kind: str
    """`instance`, `identity`, `member`, `run`, `fault` or `controller`; `gap` where events were forgotten."""
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
    model_name: str | None = None
    """Of an `identity`: which model it serves."""
    role: str | None = None
    """Of an `identity`: the instance's part in disaggregated serving."""
    endpoints: tuple[str, ...] = ()
    """Of an `identity`: `IP:PORT` of those that serve."""


class EventLog:
    """Written by whoever decides, followed by any number of readers at their own pace."""

    def __init__(
        self, earlier: Sequence[ControllerEvent] = (), series: str | None = None, lines: logging.Logger = log
    ) -> None:
        """`earlier` are those of lives before, in the same series of numbers; `lines` gets one for each new one."""
        first = earlier[-1].id + 1 + UNWRITTEN if earlier else 1
        self.ring: EventRing[ControllerEvent] = EventRing(_gap, earlier=earlier, first=first, life=series)
        self._lines = lines

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
        model_name: str | None = None,
        role: str | None = None,
        endpoints: tuple[str, ...] = (),
    ) -> ControllerEvent:
        message, reason = _cut(message), None if reason is None else _cut(reason)
        event = self.ring.append(
            lambda number: ControllerEvent(
                id=number,
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
                model_name=model_name,
                role=role,
                endpoints=endpoints,
            )
        )
        fields = {name: value for name, value in msgspec.structs.asdict(event).items() if value not in (None, ())}
        for name in ("id", "at", "level", "message"):
            del fields[name]
        self._lines.log(logging.getLevelName(level.upper()), message, extra=fields)
        return event

    @property
    def last_id(self) -> int:
        return self.ring.last_id

    def since(self, last_id: int) -> list[ControllerEvent]:
        """See `EventRing.since`."""
        return self.ring.since(last_id)


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST_MESSAGE else f"{words[:LONGEST_MESSAGE]}…"


def _gap(first: int, last: int) -> ControllerEvent:
    message = f"events {first} to {last} are no longer kept"
    return ControllerEvent(id=last, at=timestamp(datetime.now(UTC)), kind="gap", level="warning", message=message)
