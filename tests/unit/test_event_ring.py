"""The bounded memory of events: what readers get, and what they cost."""

from __future__ import annotations

import msgspec
import trio
import trio.testing

from supervisor.shared.event_ring import BATCH, EventRing


class Happened(msgspec.Struct, frozen=True):
    id: int
    what: str = "event"


def ring(kept: int = 5) -> EventRing[Happened]:
    return EventRing(lambda first, last: Happened(last, f"gap {first}-{last}"), kept=kept)


def ids(events: list[Happened]) -> list[int]:
    return [event.id for event in events]


def test_events_are_numbered_and_found_by_number() -> None:
    events = ring()
    for _ in range(3):
        events.append(Happened)
    assert ids(events.since(0)) == [1, 2, 3]
    assert ids(events.since(2)) == [3]
    assert events.since(3) == []


def test_what_is_forgotten_is_told_as_one_gap() -> None:
    events = ring(kept=5)
    for _ in range(12):
        events.append(Happened)
    gap, *kept = events.since(3)
    assert (gap.id, gap.what) == (7, "gap 4-7")
    assert ids(kept) == [8, 9, 10, 11, 12]
    assert ids(events.since(7)) == [8, 9, 10, 11, 12]


def test_the_number_of_an_earlier_life_begins_anew() -> None:
    events = ring()
    events.append(Happened)
    assert ids(events.since(1000)) == [1]
    assert ring().since(1000) == []


async def test_a_reader_that_stops_reading_holds_no_more_than_a_batch() -> None:
    events = ring(kept=10 * BATCH)
    for _ in range(9 * BATCH):
        events.append(Happened)
    batch = await events.next_after(0)
    assert ids(batch) == list(range(1, BATCH + 1))
    for _ in range(20 * BATCH):
        events.append(Happened)
    gap, *_ = await events.next_after(batch[-1].id)
    assert gap.what == f"gap {BATCH + 1}-{19 * BATCH}"


async def test_readers_wake_for_the_next_event_and_end_with_the_ring() -> None:
    events, seen = ring(), list[int]()

    async def read() -> None:
        last = 0
        while batch := await events.next_after(last):
            seen.extend(ids(batch))
            last = batch[-1].id

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        events.append(Happened)
        await trio.testing.wait_all_tasks_blocked()
        events.append(Happened)
        events.close()
    assert seen == [1, 2]
