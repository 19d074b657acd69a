"""Which death report is due: two signals, each told once (seed S14, S16, S25)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.engine.model.reports import DeathReport, Delivered, Observation, delivered, due, observed
from supervisor.wire import ExitInfo, FaultCategory, Step

WELL = Observation(epoch=1, endpoint_id=0, step=Step.DONE, pid=100, dead=False, unhealthy=None, ever_normal=True)
KILLED = ExitInfo(signal="SIGKILL", cause="killed by SIGKILL")
DEAD = replace(WELL, dead=True, exit=KILLED)
SICK = replace(WELL, unhealthy="3 probes timed out")


def told(*reports: Observation) -> Delivered:
    """What the controller has taken after these were seen."""
    known = Delivered()
    for seen in reports:
        known = observed(known, seen)
        report = due(known, seen)
        known = known if report is None else delivered(known, report)
    return known


# --- (a) a process is gone ----------------------------------------------------------------------------------------


@pytest.mark.seed("S25")
def test_a_dead_process_is_due_at_once() -> None:
    assert due(Delivered(), DEAD) == DeathReport(1, 0, "engine_dead", "killed by SIGKILL", 100, KILLED)


@pytest.mark.seed("S25")
def test_a_process_that_never_was_normal_is_reported_too() -> None:
    """F16: only the probe's signal needs a once-normal endpoint."""
    assert due(Delivered(), replace(DEAD, ever_normal=False, step=Step.FAILED)) is not None


def test_a_process_whose_exit_is_not_known() -> None:
    report = due(Delivered(), replace(DEAD, exit=None))
    assert report is not None
    assert report.message == "its process is gone"


@pytest.mark.seed("S25")
def test_it_stays_due_until_it_is_delivered() -> None:
    assert due(Delivered(), DEAD) == due(Delivered(), DEAD)
    assert due(told(DEAD), DEAD) is None


@pytest.mark.seed("S25")
@pytest.mark.parametrize(
    "news",
    [
        pytest.param(replace(DEAD, pid=101), id="another process"),
        pytest.param(replace(DEAD, epoch=2), id="another epoch, though the pid came round again"),
        pytest.param(replace(DEAD, endpoint_id=1), id="another endpoint"),
    ],
)
def test_death_is_told_once_per_epoch_endpoint_and_pid(news: Observation) -> None:
    assert due(told(DEAD), news) is not None


@pytest.mark.seed("S25")
def test_a_dead_engine_that_is_also_sick_is_one_piece_of_news() -> None:
    both = replace(DEAD, unhealthy="3 probes timed out")
    report = due(Delivered(), both)
    assert report is not None
    assert report.exception_type == "engine_dead"
    assert due(told(both), both) is None


# --- (b) a probe found it sick --------------------------------------------------------------------------------------


@pytest.mark.seed("S25")
@pytest.mark.parametrize("probe", ["liveness", "canary"])
def test_a_sick_endpoint_is_due_and_names_its_probe(probe: str) -> None:
    report = due(Delivered(), replace(SICK, probe=probe))
    assert report == DeathReport(1, 0, f"unhealthy:{probe}", "3 probes timed out", 100)


@pytest.mark.seed("S16")
def test_an_endpoint_that_never_was_normal_is_loading_however_long_it_takes() -> None:
    assert due(Delivered(), replace(SICK, ever_normal=False)) is None
    assert due(Delivered(), replace(SICK, ever_normal=False, step=Step.LOADING)) is None


@pytest.mark.seed("S25")
def test_sickness_is_told_once_until_it_recovers() -> None:
    assert due(told(SICK), SICK) is None
    assert due(told(SICK), replace(SICK, pid=101, unhealthy="connection refused")) is None
    assert due(told(SICK, WELL), SICK) is not None


@pytest.mark.seed("S25")
def test_that_another_probe_fails_too_is_news_and_told_once() -> None:
    canary = replace(SICK, probe="canary")
    assert due(told(canary), canary) is None
    news = due(told(canary), SICK)
    assert news is not None
    assert news.exception_type == "unhealthy:liveness"
    assert due(told(canary, SICK), SICK) is None
    assert due(told(canary, SICK), canary) is None, "which is left when the other has recovered"
    assert due(told(canary, SICK, WELL), canary) is not None


def test_a_recovery_before_the_delivery_takes_the_report_back() -> None:
    assert due(Delivered(), WELL) is None


def test_the_recovery_of_one_endpoint_does_not_forget_another() -> None:
    other = replace(SICK, endpoint_id=1)
    known = told(SICK, other, WELL)
    assert due(known, other) is None
    assert due(known, SICK) is not None


@pytest.mark.seed("S25")
def test_sickness_that_ends_in_death_is_two_pieces_of_news() -> None:
    assert due(told(SICK), DEAD) is not None


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", list(Step))
def test_a_well_endpoint_is_never_reported(step: Step) -> None:
    assert due(Delivered(), replace(WELL, step=step)) is None


@pytest.mark.seed("S14")
@pytest.mark.parametrize("seen", [DEAD, SICK])
@pytest.mark.parametrize("step", [Step.STOPPING, Step.CLEANING, Step.PREPARED])
def test_the_watch_is_paused_while_engines_are_replaced(seen: Observation, step: Step) -> None:
    assert due(Delivered(), replace(seen, step=step)) is None


@pytest.mark.seed("S14")
@pytest.mark.parametrize("seen", [DEAD, SICK])
def test_a_newer_epoch_overtakes_and_begins_with_a_clean_slate(seen: Observation) -> None:
    known = told(seen)
    assert due(known, replace(WELL, epoch=2)) is None
    assert due(known, replace(seen, epoch=2, pid=200)) is not None


@pytest.mark.seed("S25")
@given(
    st.lists(
        st.tuples(
            st.sampled_from([WELL, DEAD, SICK]),
            st.integers(0, 1),
            st.sampled_from([100, 101]),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_nothing_is_told_twice_and_no_death_is_left_untold(
    history: list[tuple[Observation, int, int, bool]],
) -> None:
    """Any history of one epoch's endpoints, over a controller that does not always answer."""
    known, deaths, sick = Delivered(), set(), set()
    for template, endpoint, pid, answers in history:
        seen = replace(template, endpoint_id=endpoint, pid=pid)
        known = observed(known, seen)
        if seen.unhealthy is None:
            sick.discard(endpoint)
        report = due(known, seen)
        if seen.dead:
            assert (report is None) is ((endpoint, pid) in deaths)
        elif seen.unhealthy is not None:
            assert (report is None) is (endpoint in sick)
        else:
            assert report is None
        if report is not None and answers:
            known = delivered(known, report)
            (deaths.add((endpoint, pid)) if seen.dead else sick.add(endpoint))


# --- a device is gone with it -----------------------------------------------------------------------------------

GONE = replace(DEAD, device_fault="hardware: engine: DeviceHealthProbe nvidia-smi: exit status 9")


def test_a_device_that_is_found_gone_after_a_death_is_told_as_hardware_once_more_and_once() -> None:
    report = due(told(DEAD), GONE)
    assert report is not None
    assert (report.exception_type, report.category) == ("device_fault", FaultCategory.HARDWARE)
    assert report.message == GONE.device_fault
    assert due(told(DEAD, GONE), GONE) is None
    assert due(told(GONE), GONE) is None


def test_every_other_report_is_of_software() -> None:
    for seen in (DEAD, SICK):
        report = due(Delivered(), seen)
        assert report is not None
        assert report.category is FaultCategory.SOFTWARE
