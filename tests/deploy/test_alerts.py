"""The shipped alerting rules, judged by Prometheus' own promtool: which fire in which situation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.podman import PROJECT

ALERTS = PROJECT / "deploy" / "monitoring" / "alerts.yaml"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
JOB = 'namespace="serving", job_name="llama"'
POD = f'{JOB}, instance="pod-0:1027"'
CONTROLLER = 'instance="controller:1027"'

LEADS = {f"podvisor_leader{{{CONTROLLER}}}": "1"}
SERVES = {
    **LEADS,
    f'podvisor_instance_status{{{JOB}, {CONTROLLER}, status="active"}}': "1",
    f'podvisor_instance_status{{{JOB}, {CONTROLLER}, status="inactive"}}': "0",
    f"podvisor_instance_held{{{JOB}, {CONTROLLER}}}": "0",
    f"podvisor_budget_remaining{{{JOB}, {CONTROLLER}}}": "3",
    f"podvisor_heartbeat_seconds{{{JOB}, {CONTROLLER}}}": "2",
    f"podvisor_heartbeat_seconds{{{POD}}}": "2",
    f"podvisor_journal_writable{{{CONTROLLER}}}": "1",
    f"podvisor_controller_up{{{POD}}}": "1",
    f'podvisor_relaunch_total{{{JOB}, {CONTROLLER}, outcome="done"}}': "1",
    f'podvisor_relaunch_total{{{POD}, outcome="done"}}': "1",
    f'podvisor_unit_state{{{POD}, unit="engine", state="active"}}': "1",
    f'podvisor_unit_state{{{POD}, unit="engine", state="failed"}}': "0",
    f'podvisor_unit_restarts_total{{{POD}, unit="engine", cause="signal"}}': "0",
    f'podvisor_output_lost_bytes_total{{{POD}, unit="engine", stream="stdout"}}': "0",
    f'podvisor_build_info{{{POD}, version="0.1.0"}}': "1",
    f"process_start_time_seconds{{{POD}}}": "1000",
    f"up{{{POD}}}": "1",
}
"""An instance that serves, as long as it is looked at."""


@dataclass(frozen=True)
class Situation:
    name: str
    changed: Mapping[str, str]
    at: str
    fires: frozenset[str]


def firing(name: str, series: str, values: str, at: str, *alerts: str) -> Situation:
    return Situation(name, {series: values}, at, frozenset(alerts))


STATUS = f"podvisor_instance_status{{{JOB}, {CONTROLLER}, status="
INACTIVE = f'{STATUS}"inactive"}}'
INITIAL = f'{STATUS}"initial"}}'
ACTIVE = f'{STATUS}"active"}}'
HELD = f"podvisor_instance_held{{{JOB}, {CONTROLLER}}}"
LEADER = f"podvisor_leader{{{CONTROLLER}}}"
OF_RUNS = f"podvisor_relaunch_total{{{JOB}, {CONTROLLER}, outcome="
IN_POD = f'podvisor_relaunch_total{{{POD}, outcome="done"}}'
RESTARTS = f'podvisor_unit_restarts_total{{{POD}, unit="engine", cause='
OOM = f'podvisor_unit_exits_total{{{POD}, unit="engine", cause="oom-kill"}}'

SITUATIONS = (
    Situation("it serves", {}, "200m", frozenset()),
    firing("a load of ten minutes, a back-off and half a load", INACTIVE, "0x10 1x18 0x100", "28m"),
    firing("it does not come back", INACTIVE, "0x10 1x100", "40m", "PodvisorInstanceInactive"),
    Situation(
        "somebody holds it", {INACTIVE: "0x10 1x100", HELD: "0x10 1x100"}, "60m", frozenset({"PodvisorInstanceHeld"})
    ),
    Situation(
        "it has never served", {ACTIVE: "0x100", INITIAL: "1x100"}, "40m", frozenset({"PodvisorInstanceNotAssembled"})
    ),
    Situation(
        "it served, and is paused",
        {ACTIVE: "1x20 0x100", INITIAL: "0x20 1x100"},
        "80m",
        frozenset({"PodvisorInstanceInactive"}),
    ),
    Situation(
        "its engine was stopped by an operator",
        {ACTIVE: "1x20 0x100", INITIAL: "0x20 1x100", HELD: "0x20 1x100"},
        "80m",
        frozenset({"PodvisorInstanceHeld"}),
    ),
    Situation(
        "it is held and has never served",
        {ACTIVE: "0x100", INITIAL: "1x100", HELD: "1x100"},
        "80m",
        frozenset({"PodvisorInstanceHeld"}),
    ),
    firing("the first phase 2", f'{OF_RUNS}"phase2"}}', "_x30 1x100", "31m", "PodvisorPhaseTwo"),
    firing("a further phase 2", f'{OF_RUNS}"phase2"}}', "1x30 2x100", "32m", "PodvisorPhaseTwo"),
    firing("a phase 2 of long ago", f'{OF_RUNS}"phase2"}}', "1x30 2x100", "60m"),
    firing("two relaunches", f'{OF_RUNS}"done"}}', "1x10 2x10 3x100", "50m"),
    firing("three relaunches", f'{OF_RUNS}"done"}}', "1x10 2x10 3x10 4x100", "59m", "PodvisorRelaunchedOften"),
    firing("what each pod counts of the same", IN_POD, "1x10 2x10 3x10 4x100", "59m"),
    firing(
        "the next fault restarts the containers",
        f"podvisor_budget_remaining{{{JOB}, {CONTROLLER}}}",
        "0x100",
        "5m",
        "PodvisorBudgetSpent",
    ),
    firing(
        "a silent pod",
        f"podvisor_heartbeat_seconds{{{JOB}, {CONTROLLER}}}",
        "2x10 0+60x30",
        "15m",
        "PodvisorMemberSilent",
    ),
    firing("a standby takes over", LEADER, "1x10 0x1 1x100", "13m"),
    firing("all stand by", LEADER, "1x10 0x100", "20m", "PodvisorNoLeader"),
    firing("no controller is there", LEADER, "1x10 stale", "30m", "PodvisorNoLeader"),
    Situation(
        "two lead for long",
        {'podvisor_leader{instance="other:1027"}': "1x100"},
        "20m",
        frozenset({"PodvisorSeveralLeaders"}),
    ),
    firing(
        "a full disk", f"podvisor_journal_writable{{{CONTROLLER}}}", "1x10 0x100", "15m", "PodvisorJournalNotWritable"
    ),
    firing(
        "a pod is cut off", f"podvisor_controller_up{{{POD}}}", "1x10 0x100", "20m", "PodvisorControllerUnreachable"
    ),
    firing("an update", 'podvisor_build_info{instance="new", version="0.2.0"}', "1x3000", "1400m"),
    firing(
        "an update that stopped half-way",
        'podvisor_build_info{instance="new", version="0.2.0"}',
        "1x3000",
        "1560m",
        "PodvisorVersionsDiffer",
    ),
    firing("a pod that does not answer", f"up{{{POD}}}", "1x10 0x100", "20m", "PodvisorSupervisorUnreachable"),
    firing("something else that does not answer", 'up{instance="database:9187"}', "0x100", "20m"),
    firing("two restarts", f"process_start_time_seconds{{{POD}}}", "1x10 2x5 3x100", "25m"),
    firing(
        "container after container",
        f"process_start_time_seconds{{{POD}}}",
        "1x10 2x5 3x5 4x100",
        "25m",
        "PodvisorContainerRestarts",
    ),
    firing(
        "a unit that was given up",
        f'podvisor_unit_state{{{POD}, unit="engine", state="failed"}}',
        "0x10 1x100",
        "15m",
        "PodvisorUnitFailed",
    ),
    firing("a unit that flaps", f'{RESTARTS}"exit-code"}}', "0+1x100", "30m", "PodvisorUnitRestarts"),
    firing("restarts that were asked for", f'{RESTARTS}"asked"}}', "0+1x100", "30m"),
    firing("killed for memory for the first time", OOM, "_x10 1x100", "11m", "PodvisorUnitKilledForMemory"),
    firing("killed for memory again", OOM, "1x30 2x100", "32m", "PodvisorUnitKilledForMemory"),
    firing("killed for memory long ago", OOM, "1x200", "60m"),
    firing(
        "output that is lost",
        f'podvisor_output_lost_bytes_total{{{POD}, unit="engine", stream="stdout"}}',
        "0x10 5000x100",
        "15m",
        "PodvisorOutputLost",
    ),
)


@pytest.fixture(scope="module")
def promtool() -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return program


def test_promtool_takes_the_rules(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_fires_in_each_situation(promtool: str, tmp_path: Path) -> None:
    """All in one file and one process; promtool says for each that fails what it expected and what it got."""
    rules = json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [*map(as_test, SITUATIONS)]})
    (tmp_path / "rules.json").write_text(rules)  # JSON is YAML
    command = [promtool, "test", "rules", str(tmp_path / "rules.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def as_test(situation: Situation) -> dict[str, object]:
    minutes = int(situation.at.removesuffix("m"))
    series = {name: f"{value}+0x{minutes}" for name, value in SERVES.items()}
    series.update(situation.changed)
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(situation.fires)]
    return {
        "name": situation.name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": FIRING, "eval_time": situation.at, "exp_samples": samples}],
    }


def test_every_alert_fires_in_some_situation() -> None:
    named = set(re.findall(r"^      - alert: (\w+)$", ALERTS.read_text(), re.MULTILINE))
    assert len(named) >= 18
    assert set().union(*(situation.fires for situation in SITUATIONS)) == named
