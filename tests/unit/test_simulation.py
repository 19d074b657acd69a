"""`podvisor simulate`: what a scenario may say, what comes out of it, and that it is the same every time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.simulation import kubelet, scenarios
from controller.simulation.comparison import compare
from controller.simulation.faults import FaultKind, drawn
from controller.simulation.kubelet import BackOff
from controller.simulation.outcome import Comparison
from controller.simulation.picture import CannotDraw, draw
from controller.simulation.scenario import SECTIONS, TimesSection
from controller.simulation.scenario_file import load
from supervisor.cli import podvisor
from supervisor.settings_file import ConfigurationError, keys_of

DAY = 86400.0
BUSY = """
[simulation]
duration = "1d"
seed = 7
[fleet]
instances = 2
pods = 2
[faults]
engine_crash_every = "12h"
engine_hang_every = "1d"
device_fault_every = "4d"
container_death_every = "2d"
pod_loss_every = "3d"
network_cut_every = "2d"
controller_death_every = "1d"
poisoned_at = "20h"
poisoned_lasts = "10min"
"""


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    path = tmp_path / "busy.toml"
    path.write_text(BUSY)
    return path


def comparison(tmp_path: Path, text: str) -> Comparison:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return compare(load(path))


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", scenarios.shipped(), ids=lambda path: path.stem)
def test_the_shipped_scenarios_are_read_by_their_names(path: Path) -> None:
    assert scenarios.find(Path(path.stem)) == path
    assert load(path).name == path.stem


def test_there_are_shipped_scenarios() -> None:
    assert [path.stem for path in scenarios.shipped()] == ["demo", "flapping-engine", "shared-cause", "steady-fleet"]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_tells_every_key(section: str) -> None:
    page = (Path(__file__).parents[2] / "docs/simulation.md").read_text()
    missing = [key for key in keys_of(SECTIONS[section]) if not re.search(rf"\b{key}\b", page)]
    assert not missing


def test_every_mistake_is_named_with_its_line_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        "[fleet]\npods = 0\n[faults]\nengine_crash_evry = 3\n"
        "[fault_tolerance_config]\nengine_relaunch_max_attemps = 3\n[supervisor]\nsuicide_threshold = 0\n[flet]\n"
    )
    with pytest.raises(ConfigurationError) as raised:
        load(path)
    assert sorted((problem.line, problem.key) for problem in raised.value.problems) == [
        (2, "fleet.pods"),
        (4, "faults.engine_crash_evry"),
        (6, "fault_tolerance_config.engine_relaunch_max_attemps"),
        (8, "supervisor.suicide_threshold"),
        (9, "flet"),
    ]


def test_a_wrong_scenario_exits_with_78(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[times]\nbackoff_first = 400\n")
    result = CliRunner().invoke(podvisor, ["simulate", str(path)])
    assert result.exit_code == 78
    assert "times.backoff_max" in result.stderr
    assert "backoff_first (400 s)" in result.stderr


def test_the_settings_of_both_programs_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(
        "[supervisor]\nheartbeat_interval_seconds = 1\nsuicide_threshold = 2\ngrace_period_sec = 7\n"
        "[fault_tolerance_config]\nengine_relaunch_max_attempts = 9\nengine_restart_freeze_sec = 1000\n"
        "[instance]\nheartbeat_timeout_active_sec = 20\n"
    )
    scenario = load(path)
    assert (scenario.arbiter.interval_sec, scenario.arbiter.threshold, scenario.grace_sec) == (1.0, 2, 7.0)
    assert scenario.operation.freeze.duration_sec == 1000.0
    assert scenario.policy.relaunch.engine_relaunch_max_attempts == 9
    assert scenario.policy.instance.heartbeat_timeout_active_sec == 20.0


# --- chance ----------------------------------------------------------------------------------------------------------


def test_a_fleet_that_grows_keeps_the_faults_of_its_first_instances(busy: Path) -> None:
    scenario = load(busy)
    larger = replace(scenario, fleet=replace(scenario.fleet, instances=5))
    of_both = [fault for fault in drawn(larger) if fault.instance < 2 and fault.kind is not FaultKind.CONTROLLER_DEATH]
    assert of_both == [fault for fault in drawn(scenario) if fault.kind is not FaultKind.CONTROLLER_DEATH]
    assert len(drawn(larger)) > len(drawn(scenario)) > 5


def test_another_seed_draws_other_faults(busy: Path) -> None:
    scenario = load(busy)
    assert drawn(scenario) != drawn(replace(scenario, simulation=replace(scenario.simulation, seed=8)))


def test_the_same_scenario_gives_the_same_output_byte_for_byte(busy: Path) -> None:
    """Whatever order sets of text have in a process."""
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "supervisor", "simulate", str(busy), "--json"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    said = json.loads(outputs.pop())
    assert said["podvisor"]["outages"] > 3


# --- the kubelet -----------------------------------------------------------------------------------------------------


def test_the_kubelet_waits_twice_as_long_each_time_and_forgets_it_after_ten_minutes() -> None:
    back_off, waits = BackOff(), []
    for ran in (1000.0, *([5.0] * 7), 599.0, 600.0, 1.0):
        back_off, wait = kubelet.restart(back_off, ran, TimesSection())
        waits.append(wait)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300, 0, 10]


# --- what comes out --------------------------------------------------------------------------------------------------


def test_a_crash_costs_a_load_in_place_here_and_an_arbitration_and_a_cold_load_there(tmp_path: Path) -> None:
    exact = "[fleet]\ninstances = 1\n[times]\nload_spread = 1\nload_in_place = 60\nload_in_container = 120\n"
    found = comparison(tmp_path, f'{exact}[simulation]\nduration = "20d"\n[faults]\nengine_crash_every = "10d"\n')
    ours, theirs = found.podvisor, found.containers_only
    assert found.faults == {"engine crash": ours.outages}
    assert ours.outages == theirs.outages > 2
    assert 60 < ours.lost_sec / ours.outages < 64
    assert 12 <= theirs.lost_by_phase["detect"] / theirs.outages <= 15
    assert theirs.lost_by_phase["load"] == pytest.approx(120 * theirs.outages, rel=0.01)
    assert (ours.kv_stores_lost, ours.restarts.containers, theirs.restarts.engines_in_place) == (0, 0, 0)
    assert theirs.kv_stores_lost == theirs.restarts.containers == ours.restarts.engines_in_place == 2 * ours.outages


@pytest.mark.parametrize("kind", ["engine_crash", "engine_hang"])
def test_where_only_the_engine_fails_containers_alone_are_worse(tmp_path: Path, kind: str) -> None:
    found = comparison(tmp_path, f'[simulation]\nduration = "4d"\n[faults]\n{kind}_every = "1d"\n')
    assert found.podvisor.availability > found.containers_only.availability
    assert found.podvisor.kv_stores_lost == 0 < found.containers_only.kv_stores_lost


def test_where_the_pod_is_lost_both_lose_about_the_same(tmp_path: Path) -> None:
    found = comparison(tmp_path, '[simulation]\nduration = "4d"\n[faults]\npod_loss_every = "2d"\n')
    assert found.podvisor.outages > 3
    assert found.podvisor.lost_sec == pytest.approx(found.containers_only.lost_sec, rel=0.05)


def test_who_waits_in_place_for_a_lost_member_keeps_its_container_and_its_store(tmp_path: Path) -> None:
    lost = '[simulation]\nduration = "4d"\n[faults]\ncontainer_death_every = "2d"\n[fault_tolerance_config]\n'
    rejoined = comparison(tmp_path, f'{lost}on_member_lost = "rejoin"\n').podvisor
    all_restarted = comparison(tmp_path, f'{lost}on_member_lost = "restart-all"\n').podvisor
    assert rejoined.outages == all_restarted.outages > 3
    assert rejoined.kv_stores_lost == rejoined.outages
    assert all_restarted.kv_stores_lost == 2 * all_restarted.outages


def test_what_dies_again_and_again_is_held_until_an_operator_comes(tmp_path: Path) -> None:
    faults = '[faults]\npoisoned_at = "2h"\npoisoned_lasts = "30min"\n'
    poisoned = faults + "[fleet]\ninstances = 1\n[times]\noperator = {}\n"
    mended, unmended = comparison(tmp_path, poisoned.format(1800)), comparison(tmp_path, poisoned.format(0))
    assert mended.podvisor.held >= 1
    assert mended.podvisor.not_serving_at_the_end == 0
    assert unmended.podvisor.not_serving_at_the_end == 1
    assert unmended.podvisor.lost_by_phase["held"] > 20 * 3600
    assert unmended.containers_only.held == unmended.containers_only.not_serving_at_the_end == 0


def test_who_never_serves_has_lost_everything(tmp_path: Path) -> None:
    never = '[simulation]\nduration = "1h"\n[fleet]\ninstances = 1\n[times]\nload_in_pod = "2h"\nload_spread = 1\n'
    found = comparison(tmp_path, never).podvisor
    assert (found.availability, found.lost_by_cause) == (0.0, {"cold start": 3600.0})


def test_all_that_is_lost_has_a_cause_and_a_phase(busy: Path) -> None:
    found = compare(load(busy))
    for outcome in (found.podvisor, found.containers_only):
        assert sum(outcome.lost_by_cause.values()) == pytest.approx(outcome.lost_sec, abs=0.1)
        assert sum(outcome.lost_by_phase.values()) == pytest.approx(outcome.lost_sec, abs=0.1)
        assert outcome.availability == pytest.approx(1 - outcome.lost_sec / outcome.measured_sec)


def test_the_table_names_the_scenario_and_shows_both(busy: Path) -> None:
    result = CliRunner().invoke(podvisor, ["simulate", str(busy)])
    assert result.exit_code == 0
    first, *_ = result.stdout.splitlines()
    assert first == "busy: 2 instances of 2 pods, 1d 0h, seed 7"
    assert "availability" in result.stdout
    assert "containers only" in result.stdout


def test_a_picture_needs_what_draws_it(busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(load(busy))
    monkeypatch.setattr("controller.simulation.picture.find_spec", lambda _: None)
    with pytest.raises(CannotDraw, match=r"pip install matplotlib"):
        draw(found, tmp_path / "lost.png")


def test_a_picture_is_drawn_where_it_can_be(busy: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(compare(load(busy)), tmp_path / "lost.png")
    assert (tmp_path / "lost.png").read_bytes().startswith(b"\x89PNG")
