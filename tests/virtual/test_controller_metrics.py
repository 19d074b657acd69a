"""/metrics of the controller, as Prometheus' own parser reads it."""

from __future__ import annotations

import httpx
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from controller.api.exposition import FleetCollector, snapshot
from controller.api.probe_routes import probe_app
from controller.run_metrics import MAX_JOBS, RunMetrics
from supervisor import wire
from supervisor.shared.exposition import exposition
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import Script

# httpx leaves its generators to the garbage collector when a request is cut off.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def measured(world: World) -> Samples:
    seen = snapshot(world.it.sources, lambda _: True, trio.current_time())
    return parsed(exposition(FleetCollector(seen), None)[0].decode())


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(({"namespace": "default", "job_name": "job"} | given).items()))


async def test_an_instance_is_measured_and_its_runs_are_counted(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(load_sec=20))
        await world.until_active()
        await world.until_run_closed()
        gang[0].kill_engine()
        await world.until_active(epoch=2)
        await world.until_run_closed(2)
        found = measured(world)
        assert found["podvisor_leader", ()] == 1
        statuses = {
            status: found["podvisor_instance_status", labels(status=status)]
            for status in ("initial", "active", "inactive", "deleted")
        }
        assert statuses == {"initial": 0, "active": 1, "inactive": 0, "deleted": 0}
        assert found["podvisor_relaunch_total", labels(outcome="done")] == 2
        assert found["podvisor_budget_remaining", labels()] == 2
        assert found["podvisor_instance_held", labels()] == 0
        assert 0 <= found["podvisor_heartbeat_seconds", labels()] <= 3.5
        loading = {"namespace": "default", "step": "await"}
        assert found["podvisor_relaunch_step_seconds_count", tuple(sorted(loading.items()))] == 2
        assert found["podvisor_relaunch_step_seconds_sum", tuple(sorted(loading.items()))] >= 40
        at_most_10 = tuple(sorted((loading | {"le": "10.0"}).items()))
        at_most_60 = tuple(sorted((loading | {"le": "60.0"}).items()))
        assert (found["podvisor_relaunch_step_seconds_bucket", at_most_10]) == 0
        assert (found["podvisor_relaunch_step_seconds_bucket", at_most_60]) == 2
        named = {name for _, given in found for name, _ in given}
        assert named <= {"namespace", "job_name", "status", "outcome", "step", "le", "version"}


async def test_the_api_and_the_probe_port_serve_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.network.listen("controller", 1027, probe_app(lambda: True, lambda: world.it.sources))
        world.network.listen("standby", 1027, probe_app(lambda: True))
        for url, leads in (("", 1), ("http://controller:1027", 1), ("http://standby:1027", 0)):
            # A thread works while this clock jumps, so that no time-out may be running.
            answer = await world.client.get(f"{url}/metrics", timeout=None)
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert parsed(answer.text)["podvisor_leader", ()] == leads
            assert ("process_resident_memory_bytes", ()) in parsed(answer.text)
        answer = await _as_openmetrics(world.client)
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = openmetrics(answer.text)  # type: ignore[no-untyped-call]  # alone among the library's parsers
        assert "podvisor_leader" in {family.name for family in families}


async def _as_openmetrics(client: httpx.AsyncClient) -> httpx.Response:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    return await client.get("/metrics", headers=headers, timeout=None)


def test_what_is_kept_of_jobs_is_bounded() -> None:
    counted = RunMetrics()
    for number in range(MAX_JOBS + 10):
        counted.closed(run(f"job-{number}"))
    counted.closed(run("job-10"))
    assert len(counted.outcomes) == MAX_JOBS
    (last,) = list(counted.outcomes)[-1:]
    assert (last.job_name, counted.outcomes[last]["done"]) == ("job-10", 2)
    assert len(counted.steps) == 1


def run(job_name: str) -> wire.RunView:
    step = wire.RunStepView(name="await", started_at="2026-01-01T00:00:00.000Z", ended_at="2026-01-01T00:00:07.500Z")
    return wire.RunView(
        id="1",
        instance_id=1,
        epoch=1,
        reason="fault",
        outcome="done",
        phase=1,
        steps=(step,),
        supervisors=(),
        job_name=job_name,
    )
