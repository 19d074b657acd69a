"""What the benchmarks say of their samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import Figure, Goal, Sheet


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_p90_is_a_sample_below_which_nine_tenths_lie(values: list[float]) -> None:
    p90 = Figure("one", "time", "ms", tuple(values)).p90

    assert p90 in values
    assert sum(value <= p90 for value in values) >= 0.9 * len(values)
    assert sum(value < p90 for value in values) < 0.9 * len(values)


@pytest.mark.parametrize(
    "goal, value, verdict",
    [
        (None, 1, ""),
        (Goal(10), 10, "met"),
        (Goal(10), 10.1, "missed"),
        (Goal(300, at_least=True), 300, "met"),
        (Goal(300, at_least=True), 299, "missed"),
    ],
)
def test_a_goal_is_compared_with_the_median(goal: Goal | None, value: float, verdict: str) -> None:
    assert Figure("one", "time", "ms", (0, value, 1e9), goal).verdict == verdict


def test_a_quantity_without_samples_leaves_a_remark_instead() -> None:
    sheet = Sheet()

    sheet.add("one", "time", "ms", [])

    assert sheet.figures == []
    assert sheet.remarks == ["one: no sample of: time"]
