"""Dashboard and alerts name what running programs export, and nothing else: a real controller and a real supervisor."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.demo.cluster import PROBE_PORT, Cluster, Tables, cluster, eventually
from controller.demo.kubelet import open_kubelet
from controller.demo.pod import Pod
from controller.demo.processes import open_process_network
from controller.model.relaunch.run import Outcome
from supervisor.pod_metrics import ASKED, OOM_KILL, OUTCOMES
from supervisor.unit.restart import Result
from tests.deploy.podman import PROJECT
from tests.deploy.promql import Named, named_in
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import free_port, program

MONITORING = PROJECT / "deploy" / "monitoring"
GUIDE = PROJECT / "docs" / "operations.md"
RUNBOOK = PROJECT / "docs" / "runbook.md"
OF_TARGETS = frozenset({"instance", "namespace"})
"""Labels that Prometheus gives a target, as the PodMonitor has them."""
OF_PROMETHEUS = {"up": OF_TARGETS}
UNITS = {
    "engine.toml": '[Engine]\nLauncher = "exec"\n[Service]\nExecStart = ["sleep", "600"]\nRestartSec = "10ms"\n',
    "noisy.toml": """[Service]
ExecStart = ["sh", "-c", "echo one; echo two; echo three; exit 3"]
RestartSec = "10ms"
StartLimitBurst = 2
LogRateLimitIntervalSec = "1h"
LogRateLimitBurst = 1
""",
}


@dataclass(frozen=True)
class Exported:
    """Of each metric its labels, and of each label the values that were seen or can be."""

    labels: Mapping[str, Set[str]]
    values: Mapping[str, Set[str]]


@asynccontextmanager
async def relaunched(directory: Path) -> AsyncIterator[tuple[Cluster, dict[str, Pod]]]:
    """An instance that was relaunched once, beside a unit that was given up, with the Kubernetes client on.

    Once that is counted; and the two of which each has a probe port.
    """
    account = directory / "account"
    account.mkdir()
    for name, content in (("token", "token"), ("namespace", "default")):
        (account / name).write_text(content)
    settings: Tables = {
        "kubernetes": {
            "enable": True,
            "api_url": "http://127.0.0.1:9",
            "service_account_dir": str(account),
            "timeout_sec": 1,
        },
        "fault_tolerance_config": {"engine_relaunch_poll_interval_sec": 0.2, "engine_relaunch_backoff_sec": 0},
    }
    async with (
        open_process_network(1, directory / "network") as network,
        open_kubelet() as kubelet,
        cluster(network, kubelet, UNITS, controller_settings=settings) as running,
    ):
        pods: dict[str, Pod] = {"controller": network.hub, "pod": network.pods[0]}
        await running.instance(lambda found: found["status"] == "active" and found["epoch"] == 1)
        os.kill(await pid_of_engine(running), signal.SIGKILL)
        await running.instance(lambda found: found["status"] == "active" and found["epoch"] == 2)
        for pod in pods.values():
            await metrics(running, pod)
        yield running, pods


async def exported_by_real_programs(directory: Path) -> Exported:
    async with relaunched(directory) as (running, pods):
        texts = [await metrics(running, pod) for pod in pods.values()]
    labels: dict[str, set[str]] = defaultdict(set)
    values: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for family in text_string_to_metric_families(text):
            labels[family.name if family.type != "counter" else f"{family.name}_total"] |= OF_TARGETS
            for sample in family.samples:
                labels[sample.name] |= OF_TARGETS | sample.labels.keys()
                for label, value in sample.labels.items():
                    values[label].add(value)
    causes = {ASKED, OOM_KILL, *Result}
    return Exported(labels, {**values, "outcome": {*Outcome, *OUTCOMES}, "cause": causes})


async def pid_of_engine(running: Cluster) -> int:
    (engine,) = [unit for unit in (await running.podvisor(0, "status"))["units"] if unit["name"] == "engine"]
    return int(engine["pid"])


async def metrics(running: Cluster, pod: Pod) -> str:
    """Once what is counted a moment later than it happens has been counted."""

    async def ask() -> str:
        return (await running.http.get(f"http://{pod.address}:{pod.port(PROBE_PORT)}/metrics")).text

    return await eventually(ask, lambda text: "podvisor_relaunch_step_seconds_bucket" in text, "a relaunch, counted")


def alerts() -> Iterator[dict[str, str]]:
    """Name, expression, runbook."""
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            told = {**rule["annotations"], "severity": rule["labels"]["severity"]}
            yield {"name": rule["alert"], "expr": rule["expr"], **told}


def panels() -> list[dict[str, object]]:
    return list(json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"])


def drawn() -> Iterator[tuple[str, str, str]]:
    """Panel, expression, legend."""
    for panel in panels():
        targets = panel.get("targets", ())
        assert isinstance(targets, list | tuple)
        for target in targets:
            yield str(panel["title"]), target["expr"], target["legendFormat"]


def mistakes(where: str, named: Named, exported: Exported, shown: Set[str]) -> Iterator[str]:
    """`shown`: labels in what people read."""
    known: set[str] = {"le"}
    for selector in named.selectors:
        labels = OF_PROMETHEUS.get(selector.metric) or exported.labels.get(selector.metric)
        if labels is None:
            yield f"{where}: nobody exports {selector.metric}"
            continue
        known |= labels
        for label, operator, value in selector.matchers:
            if label not in labels:
                yield f"{where}: {selector.metric} has no label {label}"
            elif operator in ("Equal", "NotEqual") and value not in exported.values[label]:
                yield f"{where}: {label} is never {value!r}"
    for label in (named.labels | shown) - known:
        yield f"{where}: no metric of it has a label {label}"


async def test_dashboard_and_alerts_name_what_is_exported(tmp_path: Path) -> None:
    exported = await exported_by_real_programs(tmp_path)
    found: list[str] = []
    named: set[str] = set()
    for alert in alerts():
        told = named_in(alert["expr"])
        shown = set(re.findall(r"\$labels\.(\w+)", alert["summary"]))
        found += mistakes(alert["name"], told, exported, shown)
        named |= {selector.metric for selector in told.selectors}
    for title, expression, legend in drawn():
        told = named_in(expression)
        found += mistakes(title, told, exported, set(re.findall(r"{{(\w+)}}", legend)))
        named |= {selector.metric for selector in told.selectors}
    assert found == []
    ours = {
        re.sub(r"_(sum|count|bucket|created)$", "", name) for name in exported.labels if name.startswith("podvisor_")
    }
    unseen = ours - {re.sub(r"_(sum|count|bucket)$", "", name) for name in named}
    assert unseen == set(), "neither drawn nor watched"


EMPTY_WHILE_ALL_IS_WELL = {"Freezes", "Abnormal ticks in a row", "Pods that cannot reach the controller"}


async def test_a_real_prometheus_evaluates_every_rule_and_fills_every_panel(tmp_path: Path) -> None:
    """As it is scraped in a cluster: a target label namespace, and labels that are honoured."""
    async with relaunched(tmp_path) as (running, pods), prometheus(running, pods, tmp_path) as server:

        async def ask(path: str, **query: str) -> Any:
            answer = await server.get(f"/api/v1/{path}", params=query)
            assert answer.status_code == 200, answer.text
            return answer.json()["data"]

        async def missing() -> set[str]:
            """Panels of which no expression has a value."""
            filled = {
                title for title, expression, _ in drawn() if (await ask("query", query=shown_now(expression)))["result"]
            }
            return {title for title, _, _ in drawn()} - filled

        await eventually(missing, lambda found: found == EMPTY_WHILE_ALL_IS_WELL, "all panels to be filled", poll_sec=1)
        rules = [rule for group in (await ask("rules"))["groups"] for rule in group["rules"]]
        assert {rule["name"]: rule["health"] for rule in rules} == {alert["name"]: "ok" for alert in alerts()}
        serving = await ask("query", query='podvisor_instance_status{namespace="default", status="active"}')
        assert [(one["metric"]["job_name"], one["value"][1]) for one in serving["result"]] == [("job", "1")]
        assert await firing(server) <= {"PodvisorUnitFailed"}, "the unit that was given up, once that lasts"


def shown_now(expression: str) -> str:
    """As the dashboard asks with everything chosen."""
    return re.sub(r"\$(namespace|job_name)", ".*", expression.replace("$__rate_interval", "1m"))


async def firing(server: httpx.AsyncClient) -> set[str]:
    alerts = (await server.get("/api/v1/alerts")).json()["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@asynccontextmanager
async def prometheus(running: Cluster, pods: Mapping[str, Pod], directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The real server with the shipped rules, scraping every second."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    targets = [f"{pod.address}:{pod.port(PROBE_PORT)}" for pod in pods.values()]
    scraped = {
        "job_name": "podvisor",
        "honor_labels": True,
        "static_configs": [{"targets": targets, "labels": {"namespace": "of-the-pods"}}],
    }
    quick = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": quick, "rule_files": [str(MONITORING / "alerts.yaml")], "scrape_configs": [scraped]}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "series"}
    arguments = [f"--{name}={value}" for name, value in {**options, "web.listen-address": address}.items()]
    async with (
        program("prometheus", *arguments) as server,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=TIMEOUT_SEC, trust_env=False) as client,
    ):
        await server.stderr.saw("Server is ready to receive web requests")
        yield client


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("podvisor_unit_states == 1", "nobody exports podvisor_unit_states"),
        ('podvisor_unit_state{unit_name="x"}', "podvisor_unit_state has no label unit_name"),
        ('podvisor_unit_state{state="dead"}', "state is never 'dead'"),
        ("sum by (pod_name) (podvisor_unit_state)", "no metric of it has a label pod_name"),
        ("a and on (rank) podvisor_unit_state", "no metric of it has a label rank"),
    ],
)
def test_each_kind_of_mistake_is_found(expression: str, mistake: str) -> None:
    exported = Exported({"podvisor_unit_state": OF_TARGETS | {"unit", "state"}}, {"state": {"active"}})
    assert f"here: {mistake}" in list(mistakes("here", named_in(expression), exported, frozenset()))


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() -> None:
    text = RUNBOOK.read_text()
    sections = re.findall(r"^## (Podvisor\w+)$", text, re.MULTILINE)
    assert sections == [alert["name"] for alert in alerts()], "in the order of the file"
    for alert in alerts():
        assert alert["runbook"] == f"docs/runbook.md#{alert['name'].lower()}"
        section = text.split(f"\n## {alert['name']}\n")[1].split("\n## ")[0]
        for part in ("**Means**", "**Look**", "**Do**", "**Escalate**"):
            assert part in section, (alert["name"], part)


def test_the_recipe_of_the_guide_makes_a_rule_of_the_prometheus_operator() -> None:
    (recipe,) = re.findall(r"^  (\{ printf .*\}) \| kubectl apply", GUIDE.read_text(), re.MULTILINE)
    made = subprocess.run(["sh", "-c", recipe], cwd=PROJECT, check=True, capture_output=True).stdout
    rule = yaml.safe_load(made)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((MONITORING / "alerts.yaml").read_text())


def test_the_dashboard_can_be_drawn() -> None:
    shown = panels()
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        assert isinstance(place, dict)
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)\b", json.dumps(dashboard))) - {"__rate_interval", "__all"}
    assert used == variables
