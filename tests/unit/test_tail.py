"""The tail that is kept of a unit's output, over all its lives."""

from __future__ import annotations

from supervisor.process.tail import FOLLOWER_BYTES, Gap, Line, Tail, follow, merged


def test_what_an_earlier_life_wrote_is_not_the_evidence_of_this_one() -> None:
    tail = Tail(1000)
    tail.append(b"old 1\nold 2\n")
    tail.begin_life()
    assert tail.lines_of_life(10) == []
    tail.append(b"new 1\nnew 2\n")
    assert tail.lines_of_life(10) == ["new 1", "new 2"]
    assert tail.lines_of_life(1) == ["new 2"]
    assert tail.lines(10) == ["old 1", "old 2", "new 1", "new 2"]


def test_a_life_that_wrote_more_than_is_kept_shows_what_is_kept() -> None:
    tail = Tail(12)
    tail.append(b"old\n")
    tail.begin_life()
    for number in range(5):
        tail.append(b"new %d\n" % number)
    assert tail.lines_of_life(10) == tail.lines(10) == ["new 3", "new 4"]


def test_before_the_first_life_begins_everything_is_of_it() -> None:
    tail = Tail(1000)
    tail.append(b"a\n")
    assert tail.lines_of_life(10) == ["a"]


def test_each_line_knows_its_stream_and_its_life() -> None:
    tail = Tail(1000, "web")
    tail.begin_life()
    tail.append(b"out\n", "stdout")
    tail.append(b"err 1\nerr 2\n", "stderr")
    tail.begin_life()
    tail.append(b"again\n", "stdout")
    found = [(line.unit, line.stream, line.invocation, line.text) for line in tail.newest(3)]
    assert found == [("web", "stderr", 1, "err 1"), ("web", "stderr", 1, "err 2"), ("web", "stdout", 2, "again")]


def test_a_unit_that_writes_byte_by_byte_costs_no_more_memory() -> None:
    tail = Tail(64 * 1024)
    for _ in range(100_000):
        tail.append(b"\n")
    assert len(tail._pieces) == 1024


def test_several_tails_are_merged_by_time() -> None:
    one, other = Tail(1000, "one"), Tail(1000, "other")
    for number in range(3):
        one.append(b"%d\n" % number)
        other.append(b"%d\n" % number)
    lines = [(line.unit, line.text) for line in merged([one.newest(2), other.newest(2)])]
    assert lines == [("one", "1"), ("other", "1"), ("one", "2"), ("other", "2")]


async def test_a_follower_of_several_that_stops_reading_is_bounded_and_told_how_much_it_lost() -> None:
    tails = [Tail(1000, name) for name in ("one", "other")]
    follower = follow(tails)
    for number in range(100_000):
        tails[number % 2].append(b"%d\n" % number)
    assert sum(len(piece.block) for piece in follower._pieces) <= FOLLOWER_BYTES
    assert len(follower._pieces) <= FOLLOWER_BYTES // 64
    gap = await follower.next()
    assert isinstance(gap, Gap)
    first = await follower.next()
    assert isinstance(first, Line)
    assert (first.unit, first.text) == (("one", "other")[gap.lost_lines % 2], str(gap.lost_lines))
    kept = [first, *[await follower.next() for _ in range(99_999 - gap.lost_lines)]]
    assert isinstance(kept[-1], Line)
    assert kept[-1].text == "99999"


async def test_a_tail_of_no_bytes_keeps_nothing_and_is_followed_all_the_same() -> None:
    tail = Tail(1000)
    tail.append(b"kept\n")
    tail.resize(0)
    follower = tail.follow()
    tail.append(b"followed\n")
    assert tail.lines(10) == []
    assert await anext(follower) == "followed"
