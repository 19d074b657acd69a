"""How long a start may take."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit import start_clock
from supervisor.unit.model import StartSettings
from supervisor.unit.start_clock import ProgressKind

ENGINE = StartSettings(timeout_sec=3600.0, stall_sec=300.0, cpu_only_sec=900.0)
WORK, CPU = ProgressKind.WORK, ProgressKind.CPU


def deadline_after(settings: StartSettings, *signs: tuple[float, ProgressKind]) -> float:
    clock = start_clock.begin(settings, 0.0)
    for when, kind in signs:
        clock = start_clock.progressed(clock, kind, when)
    return start_clock.deadline(settings, clock)


@pytest.mark.parametrize(
    "signs, expected",
    [
        ([], 300.0),
        ([(200.0, WORK)], 500.0),
        ([(200.0, CPU)], 500.0),
        ([(200.0, CPU), (400.0, CPU), (600.0, CPU)], 900.0),
        ([(200.0, CPU), (400.0, CPU), (600.0, CPU), (800.0, CPU)], 900.0),
        ([(100.0, WORK), (350.0, CPU), (650.0, CPU), (900.0, CPU)], 1000.0),
        ([(when, WORK) for when in range(0, 3600, 200)], 3600.0),
    ],
)
def test_cpu_time_alone_extends_a_start_only_so_far(signs: list[tuple[float, ProgressKind]], expected: float) -> None:
    assert deadline_after(ENGINE, *signs) == expected


def test_without_a_stall_limit_only_the_hard_cap_counts() -> None:
    assert deadline_after(StartSettings(timeout_sec=90.0), (80.0, WORK)) == 90.0
    assert deadline_after(StartSettings(timeout_sec=math.inf)) == math.inf


def test_a_notification_moves_the_hard_cap_and_never_draws_it_in() -> None:
    settings = StartSettings(timeout_sec=90.0)
    clock = start_clock.extended(start_clock.begin(settings, 0.0), 300.0, 80.0)
    assert start_clock.deadline(settings, clock) == 380.0
    assert start_clock.deadline(settings, start_clock.extended(clock, 1.0, 90.0)) == 380.0


def test_the_verdict_names_the_limit_that_was_met() -> None:
    clock = start_clock.begin(ENGINE, 0.0)
    assert "StartStallSec=300" in start_clock.verdict(ENGINE, clock, 300.0)
    busy = start_clock.progressed(clock, CPU, 899.0)
    assert "StartCpuOnlySec=900" in start_clock.verdict(ENGINE, busy, 900.0)
    assert "TimeoutStartSec" in start_clock.verdict(ENGINE, clock, 3600.0)


signs = st.lists(st.tuples(st.floats(0, 5000), st.sampled_from(ProgressKind)), max_size=30).map(sorted)
limits = st.floats(0.1, 5000)


@given(signs, limits, limits, limits)
def test_progress_never_draws_the_deadline_in_and_never_passes_the_cap(
    seen: list[tuple[float, ProgressKind]], timeout: float, stall: float, cpu_only: float
) -> None:
    settings = StartSettings(timeout_sec=timeout, stall_sec=stall, cpu_only_sec=cpu_only)
    clock = start_clock.begin(settings, 0.0)
    previous = start_clock.deadline(settings, clock)
    for when, kind in seen:
        clock = start_clock.progressed(clock, kind, when)
        present = start_clock.deadline(settings, clock)
        assert previous <= present <= timeout
        previous = present
