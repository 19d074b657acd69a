"""Of an error that comes through many nurseries, what is told."""

from __future__ import annotations

import logging

import pytest

from supervisor.shared.causes import causes, log_causes

DEEP = 40
"""Nurseries within each other; Python prints ten."""


def through_nurseries(*errors: Exception) -> Exception:
    error: Exception = ExceptionGroup("nursery", errors)
    for _ in range(DEEP):
        error = ExceptionGroup("nursery", [error])
    return error


def test_an_error_that_is_no_group_is_its_own_cause() -> None:
    error = KeyError("a")
    assert list(causes(error)) == [error]


def test_all_causes_are_found_in_their_order() -> None:
    first, second, third = KeyError("a"), IndexError("b"), OSError("c")
    assert list(causes(through_nurseries(first, ExceptionGroup("more", [second]), third))) == [first, second, third]


def test_each_cause_is_told_with_its_own_trace(caplog: pytest.LogCaptureFixture) -> None:
    def culprit() -> None:
        raise IndexError("list index out of range")

    with pytest.raises(IndexError) as raised:
        culprit()
    log_causes(logging.getLogger("test"), "ends: %r", through_nurseries(raised.value, KeyError("port")))
    assert [record.getMessage() for record in caplog.records] == [
        "ends: IndexError('list index out of range')",
        "ends: KeyError('port')",
    ]
    assert "in culprit" in caplog.text
