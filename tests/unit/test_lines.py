"""Cutting lines, limiting their rate, dressing them."""

from __future__ import annotations

import json
import math
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from supervisor.process.line_format import bare, json_object, prefixed
from supervisor.process.lines import CONTINUES, LineSplitter
from supervisor.process.rate_limit import LineLimiter, RateLimit
from supervisor.process.stream import packed

chunks = st.lists(st.binary(min_size=1, max_size=12) | st.sampled_from([b"\n", b"\r", b"\r\n", b"ab\n", b"\xc3\xa4"]))


def cut(pieces: list[bytes], max_line_bytes: int = 8, progress_interval_sec: float = 0.0) -> list[bytes]:
    splitter = LineSplitter(max_line_bytes, progress_interval_sec)
    lines = [line for number, piece in enumerate(pieces) for line in splitter.feed(piece, float(number))]
    return lines + splitter.finish()


@given(chunks)
def test_how_the_bytes_arrive_makes_no_difference(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert cut(pieces) == cut([whole[at : at + 1] for at in range(len(whole))])


@given(chunks)
def test_nothing_is_lost_and_no_line_is_too_long(pieces: list[bytes]) -> None:
    lines = cut(pieces)
    kept = b"".join(line.removesuffix(CONTINUES) for line in lines)
    assert kept == b"".join(pieces).translate(None, b"\r\n")
    assert all(len(line.removesuffix(CONTINUES)) <= 8 for line in lines)


@given(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1))
def test_a_long_line_is_never_cut_inside_a_character(text: str) -> None:
    for piece in cut([text.encode() + b"\n"]):
        piece.removesuffix(CONTINUES).decode()


def test_empty_lines_stay_and_windows_ends_go() -> None:
    assert cut([b"a\r\n\n", b"b\r", b"\nc"]) == [b"a", b"", b"b", b"c"]


def test_a_progress_bar_is_collapsed_to_its_newest_state_an_interval() -> None:
    splitter = LineSplitter(progress_interval_sec=1.0)
    assert splitter.due == math.inf
    assert splitter.feed(b"\r 1%\r 2%\r 3%\r", 10.0) == [b" 1%"]
    assert splitter.due == 11.0
    assert splitter.overdue(10.9) == []
    assert splitter.overdue(11.0) == [b" 3%"]
    assert splitter.due == math.inf
    assert splitter.feed(b" 4%\r 5%\r 6%", 11.5) == []
    assert splitter.feed(b"\rdone\n", 11.6) == [b"done"]  # overtaken by what came after it
    assert splitter.overdue(99.0) == []
    assert splitter.finish() == []


def test_progress_at_the_very_end_is_told() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b" 1%\r 2%\r 3%", 10.0) == [b" 1%"]
    assert splitter.finish() == [b" 2%", b" 3%"]


def test_a_line_without_end_does_not_grow() -> None:
    splitter = LineSplitter(max_line_bytes=100)
    pieces = [piece for _ in range(1000) for piece in splitter.feed(b"x" * 37, 0.0)]
    assert len(pieces) == 369
    assert len(splitter._rest) <= 100


def test_lines_beyond_the_rate_are_suppressed_and_counted() -> None:
    limiter = LineLimiter(RateLimit(interval_sec=10, burst=3))
    line = [b"x"]
    assert limiter.admit(line * 2, 0.0) == (line * 2, 0)
    assert limiter.admit(line * 5, 9.0) == (line, 0)
    assert limiter.admit(line * 5, 9.9) == ([], 0)
    assert limiter.admit(line, 10.0) == (line, 9)
    assert limiter.admit(line, 11.0) == (line, 0)


def test_no_rate_limit_admits_all() -> None:
    assert LineLimiter(None).admit([b"x"] * 1000, 0.0) == ([b"x"] * 1000, 0)


def test_prefix() -> None:
    assert prefixed("engine", {})(b"hello") == b"[engine] hello\n"
    assert prefixed("engine", {"epoch": 3, "rank": 0})(b"hello") == b"[engine epoch=3 rank=0] hello\n"
    assert bare(b"mark") == b"\nmark\n"


def test_json_is_one_object_a_line_whatever_the_bytes() -> None:
    written = json_object("engine", "stderr", {"epoch": 3})(b'a "quoted" \xff\x00 line')
    assert written.count(b"\n") == 1
    assert written.endswith(b"\n")
    found = json.loads(written)
    assert datetime.fromisoformat(found.pop("time")).utcoffset() is not None
    assert found == {"unit": "engine", "stream": "stderr", "message": 'a "quoted" \\xff\x00 line', "epoch": 3}
    assert json.loads(json_object("engine", "stdout", {})(b""))["message"] == ""


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_packets_hold_whole_lines_and_only_a_lone_one_exceeds_the_limit(lines: list[bytes], limit: int) -> None:
    packets = list(packed(lines, limit))
    assert b"".join(packets) == b"".join(lines)
    assert all(len(packet) <= limit or packet in lines for packet in packets)
