"""`GET /v1/events?since=ID&follow=0`: a ring of events as an HTTP answer.

One JSON object a line, or server-sent events for who accepts those. Each line is made when the client takes it: one
that stops reading holds up its own answer and nothing else.

The ids of server-sent events name the life of the program too (`3f2a9c1e-17`): a client that comes back with one, as
browsers do by themselves, gets what it has not seen, and after a restart all that the new life has.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Generic, Protocol

import msgspec
import trio
from quart import Response, request

from supervisor.shared.event_ring import E, EventRing
from supervisor.shared.http_app import MAX_DIGITS, malformed

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
POSITION = rf"(?:[0-9a-f]{{8}}-)?[0-9]{{1,{MAX_DIGITS}}}"
"""Of the last event that was seen."""
HEARTBEAT_LINE_SEC = 15.0
"""A stream that has nothing to say sends an empty line so often: proxies and readers see it lives."""
RETRY_MS = 3000
"""After so long a client whose stream broke comes back."""


class Room(Protocol):
    """How many may follow at a time."""

    def check_follower(self) -> None:
        """Raise Refusal if one more may not."""

    def follower(self) -> AbstractContextManager[bool]:
        """One follows; False: there is no room after all."""


def event_stream(
    events: EventRing[E], wanted: Callable[[E], bool] = lambda _: True, room: Room | None = None
) -> Response:
    """The answer to the present request, with the events that are `wanted`; it goes on for ever unless `follow=0` was
    asked for. Raise Refusal."""
    reader = _Reader(events, wanted, _last_seen(events))
    as_sse = SSE in request.headers.get("Accept", "")
    content_type = SSE if as_sse else NDJSON
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.args.get("follow") == "0":
        return Response(reader.encoded(reader.here(), as_sse), content_type=content_type, headers=headers)
    if room is not None:
        room.check_follower()
    response = Response(_followed(reader, as_sse, room), content_type=content_type, headers=headers)
    response.timeout = None  # Quart would end the stream after a minute
    return response


class _Reader(Generic[E]):
    """One client's place in the ring."""

    def __init__(self, events: EventRing[E], wanted: Callable[[E], bool], last_id: int) -> None:
        self._events = events
        self._wanted = wanted
        self._last_id = last_id

    @property
    def position(self) -> bytes:
        return self._events.position(self._last_id).encode()

    def here(self) -> list[E]:
        return [event for event in self._events.since(self._last_id) if self._wanted(event)]

    async def next(self) -> list[E]:
        """The next few that are wanted, once there are any; none only when the ring is closed.

        Cancelled: those that are not wanted may be passed over.
        """
        while batch := await self._events.next_after(self._last_id):
            self._last_id = batch[-1].id
            if found := [event for event in batch if self._wanted(event)]:
                return found
        return []

    def encoded(self, events: Sequence[E], as_sse: bool) -> bytes:
        lines = ((event.id, msgspec.json.encode(event)) for event in events)
        if not as_sse:
            return b"".join(line + b"\n" for _, line in lines)
        placed = ((self._events.position(number).encode(), line) for number, line in lines)
        return b"".join(b"id: %s\ndata: %s\n\n" % line for line in placed)


async def _followed(reader: _Reader[E], as_sse: bool, room: Room | None) -> AsyncIterator[bytes]:
    with nullcontext(True) if room is None else room.follower() as there_is_room:
        if there_is_room:
            async with aclosing(_lines(reader, as_sse)) as lines:
                async for some in lines:
                    yield some


async def _lines(reader: _Reader[E], as_sse: bool) -> AsyncGenerator[bytes, None]:
    if as_sse:
        yield b"retry: %d\n\n" % RETRY_MS
    while True:
        batch: list[E] = []
        with trio.move_on_after(HEARTBEAT_LINE_SEC) as patience:
            batch = await reader.next()
        if patience.cancelled_caught:
            # An id without data moves the place to which a client comes back, and is no event.
            yield b": still here\nid: %s\n\n" % reader.position if as_sse else b"\n"
            continue
        if not batch:
            return
        yield reader.encoded(batch, as_sse)


def _last_seen(events: EventRing[E]) -> int:
    """0: nothing of this life. Raise Refusal."""
    written = request.args.get("since") or request.headers.get("Last-Event-ID") or "0"
    if not re.fullmatch(POSITION, written, re.ASCII):
        raise malformed(
            f"since: found {written[:40]!r}, expected the id of an event, a number of at most {MAX_DIGITS} digits"
        )
    life, _, number = written.rpartition("-")
    return int(number) if life in ("", events.life) else 0
