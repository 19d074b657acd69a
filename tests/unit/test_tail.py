"""The tail that is kept of a unit's output, over all its lives."""

from __future__ import annotations

from supervisor.process.tail import Tail


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
