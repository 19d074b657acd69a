"""`/metrics` of a real supervisor, read by Prometheus' own parser."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import FOREVER, Sections, service, shell, supervisor

ENGINE: dict[str, dict[str, object]] = {
    "Unit": {},
    "Service": {"ExecStart": FOREVER},
    "Engine": {"Launcher": "exec"},
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SETTINGS: Sections = {"supervisor": {"job_name": "job"}}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in classic(text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    own = {"namespace": "default", "job_name": "job"} | labels
    return found[name, frozenset(own.items())]


async def test_what_happened_can_be_scraped(tmp_path: Path) -> None:
    failing = service(*shell("exit 3"), RestartSec="10ms", StartLimitBurst=3)
    units = {"web": service(*FOREVER), "failing": failing, "engine": ENGINE}
    async with supervisor(tmp_path, units, SETTINGS, PORT="0") as running:
        await running.moved("failing", "cleaning", "start-limit-hit")
        await running.started("web")
        url = await running.online()
        assert (await running.command("restart", "web")).returncode == 0
        async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
            plain = await client.get(f"{url}/metrics")
            modern = await client.get(f"{url}/metrics", headers={"Accept": OPENMETRICS})
        async with running.api() as api:
            local = await api.get("/metrics")
        descriptors = len(os.listdir(f"/proc/{running.pid}/fd"))
    assert plain.headers["content-type"].startswith("text/plain; version=")
    found = samples(plain.text)
    assert of(found, "podvisor_unit_state", unit="web", state="active") == 1
    assert of(found, "podvisor_unit_state", unit="web", state="failed") == 0
    assert of(found, "podvisor_unit_state", unit="failing", state="failed") == 1
    assert of(found, "podvisor_unit_exits_total", unit="failing", cause="exit-code") == 3
    assert of(found, "podvisor_unit_restarts_total", unit="failing", cause="exit-code") == 2
    assert of(found, "podvisor_unit_exits_total", unit="web", cause="asked") == 1
    assert of(found, "podvisor_unit_restarts_total", unit="web", cause="asked") == 1
    assert of(found, "podvisor_freeze_seconds") == 0
    assert of(found, "podvisor_arbiter_count") == 0
    assert of(found, "podvisor_relaunch_total", outcome="done") == 0
    assert found["process_open_fds", frozenset()] <= descriptors + 5
    assert found["process_resident_memory_bytes", frozenset()] > 10_000_000
    assert not any(name.startswith("podvisor_controller") for name, _ in found)
    forbidden = {"pid", "epoch", "run_id"}
    assert not [name for name, labels in found if forbidden & dict(labels).keys()]
    families = openmetrics(modern.text)  # type: ignore[no-untyped-call]  # alone among the library's parsers
    assert {family.name for family in families} > {"podvisor_unit_exits", "podvisor_relaunch"}
    assert samples(local.text).keys() == found.keys()


async def test_output_that_nobody_reads_is_counted_and_told(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    loud = service(*shell("yes 'a line of log' | head -c 30000000; echo the end; exec sleep 600"))
    limited = service(*shell("seq 100; exec sleep 600"), LogRateLimitIntervalSec="1h", LogRateLimitBurst=10)
    async with supervisor(tmp_path, {"loud": loud, "limited": limited}, SETTINGS, stdout=write_end) as running:
        os.close(write_end)
        url = await running.online()
        lost = 0.0
        async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
            with trio.fail_after(TIMEOUT_SEC):
                while not lost:
                    found = samples((await client.get(f"{url}/metrics")).text)
                    labels = frozenset(
                        {"namespace": "default", "job_name": "job", "unit": "loud", "stream": "stdout"}.items()
                    )
                    lost = found.get(("podvisor_output_lost_bytes_total", labels), 0.0)
        assert of(found, "podvisor_output_suppressed_lines_total", unit="limited", stream="stdout") == 90
        told = (await running.command("events")).stdout
        assert "stdout of loud: " in told
        assert "could not be written in time" in told
        assert "stdout of limited: 90 lines were more than LogRateLimitBurst in an interval" in told
    os.close(read_end)
