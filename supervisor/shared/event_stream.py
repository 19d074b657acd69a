"""`GET /v1/events?since=ID&follow=0`: a ring of events as an HTTP answer.

One JSON object a line, or server-sent events for who accepts those. Each line is made when the client takes it: one
that stops reading holds up its own answer and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
import trio
from quart import Response, request

from supervisor.shared.event_ring import E, EventRing
from supervisor.shared.http_app import whole_number

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
HEARTBEAT_LINE_SEC = 15.0
"""A stream that has nothing to say sends an empty line so often: proxies and readers see it lives."""


def event_stream(events: EventRing[E]) -> Response:
    """The answer to the present request; it goes on for ever unless `follow=0` was asked for. Raise Refusal."""
    written = request.args.get("since") or request.headers.get("Last-Event-ID") or "0"
    last_id = whole_number("since", written)
    as_sse = SSE in request.headers.get("Accept", "")
    content_type = SSE if as_sse else NDJSON
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.args.get("follow") == "0":
        return Response(_encoded(events.since(last_id), as_sse), content_type=content_type, headers=headers)
    response = Response(_lines(events, last_id, as_sse), content_type=content_type, headers=headers)
    response.timeout = None  # Quart would end the stream after a minute
    return response


async def _lines(events: EventRing[E], last_id: int, as_sse: bool) -> AsyncIterator[bytes]:
    while True:
        batch: list[E] = []
        with trio.move_on_after(HEARTBEAT_LINE_SEC) as patience:
            batch = await events.next_after(last_id)
        if patience.cancelled_caught:
            yield b": still here\n\n" if as_sse else b"\n"
            continue
        if not batch:
            return
        last_id = batch[-1].id
        yield _encoded(batch, as_sse)


def _encoded(events: Sequence[E], as_sse: bool) -> bytes:
    lines = ((event.id, msgspec.json.encode(event)) for event in events)
    return b"".join(b"id: %d\ndata: %s\n\n" % line if as_sse else line[1] + b"\n" for line in lines)
