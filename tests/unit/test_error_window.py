"""Errors that repeat: told once a window, with the number of those in between; none is lost silently."""

from __future__ import annotations

import pytest

from supervisor.shared.error_window import DEFAULT_WINDOW_SEC, MAX_KEYS, ErrorWindow


@pytest.mark.seed("S30")
def test_a_flood_is_told_once_a_window_with_the_number_held_back() -> None:
    window = ErrorWindow(30.0)
    told = [(second, window.admit("controller", float(second))) for second in range(100)]
    assert [one for one in told if one[1] is not None] == [(0, 0), (30, 29), (60, 29), (90, 29)]


@pytest.mark.seed("S30")
def test_another_error_and_one_that_was_mended_are_news_at_once() -> None:
    window = ErrorWindow()
    assert window.admit("controller", 0.0) == 0
    assert window.admit("disk", 1.0) == 0
    assert window.admit("controller", 2.0) is None
    window.clear("controller")
    assert window.admit("controller", 3.0) == 0


def test_the_keys_are_bounded_and_the_oldest_is_forgotten() -> None:
    window = ErrorWindow()
    for number in range(MAX_KEYS + 1):
        assert window.admit(f"error {number}", number / 1000) == 0
    assert window.admit("error 0", 1.0) == 0, "forgotten, so it is told again"
    assert window.admit(f"error {MAX_KEYS}", 1.0) is None
    assert DEFAULT_WINDOW_SEC > 1.0
