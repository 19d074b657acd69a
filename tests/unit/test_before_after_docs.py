"""docs/benchmarks.md and the text of its picture say what docs/before-after.json holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import before_after

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "benchmarks.md").read_text()
(MEASURED,) = json.loads((DOCS / "before-after.json").read_text())["benchmarks"]


def figure(side: str, name: str) -> dict[str, float]:
    found: dict[str, float]
    (found,) = [each for each in MEASURED["figures"] if (each["subject"], each["name"]) == (side, name)]
    return found


def seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def spread(found: dict[str, float]) -> str:
    return f"{seconds(found['median'])} s ({seconds(found['min'])}–{seconds(found['max'])})"


@pytest.mark.parametrize("side", before_after.SIDES)
def test_the_page_tells_the_times_that_were_measured(side: str) -> None:
    assert spread(figure(side, before_after.BACK)) in PAGE
    assert f"{seconds(figure(side, before_after.SECOND)['median'])} s" in PAGE


def test_the_page_tells_what_the_wait_of_containers_is_made_of() -> None:
    for name in (before_after.ENDING, before_after.RESTARTING, before_after.STARTING):
        assert spread(figure(before_after.CONTAINERS, name)) in PAGE, name


def test_the_page_tells_what_was_lost() -> None:
    for side in before_after.SIDES:
        failed = figure(side, before_after.FAILED)
        assert f"{failed['median']:.0f} ({failed['min']:.0f}–{failed['max']:.0f})" in PAGE
    entries = [figure(side, before_after.KEPT)["median"] for side in before_after.SIDES]
    restarts = [figure(side, before_after.RESTARTED)["median"] for side in before_after.SIDES]
    assert (entries, restarts) == ([before_after.PODS * before_after.ENTRIES, 0], [0, before_after.PODS])
    assert MEASURED["failure"] is None
