"""What a real llama-server does beside dying while it serves: it is slow to load, dies in it, hangs."""

import re

import httpx
import pytest

from controller.demo.engines import LLAMA_SERVER, tiny_model
from controller.demo.tiny_model import Shape
from tests.engines.asking import status_of
from tests.pods.harness import FALLBACK_ENGINE, Cluster, Tables, eventually
from tests.pods.stage import (
    ENGINE,
    ENGINE_PORT,
    NO_LIMITS,
    QUICK,
    Stage,
    banners,
    complete,
    is_active,
    is_active_again,
    is_later_than,
    kill_engine,
    kill_process,
    pids,
    stdout,
)

pytestmark = [pytest.mark.pods, pytest.mark.engines]

SLOW_TO_LOAD = Shape(layers=4, width=1024, feed_forward=4096, heads=16)  # 0.3 GB
TRIES = 5
LIVENESS = """
[Liveness]
Http = "http://127.0.0.1:${PORT}/health"
PeriodSec = 0.2
TimeoutSec = 1
FailureThreshold = 2
"""
SLOW_ENGINE = f"""
[Service]
ExecStart = ["python3", "-I", "{FALLBACK_ENGINE}", "--host=${{POD_IP}}", "--port=${{PORT}}", "--load-sec=2"]
[Engine]
Launcher = "exec"
[Liveness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
PeriodSec = 0.1
# While it loads it answers 503 at once; an engine that serves may be slow on a busy machine, and 3 s are the default.
TimeoutSec = 20
FailureThreshold = 1
[Readiness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
PeriodSec = 0.1
"""
IMPATIENT: Tables = {
    "supervisor": {"heartbeat_interval_seconds": 0.1, "grace_period_sec": 0.2, "role": "union"},
    "parallel": {"dp_size": 2},
}
"""The arbiter counts to five in half a second: a load of two would be death many times over."""


async def health(running: Cluster, http: httpx.AsyncClient) -> int | None:
    return await status_of(http, f"http://{running.network.pods[0].address}:{ENGINE_PORT}/health")


async def test_scenario_2_an_engine_that_dies_while_it_loads_is_relaunched(stage: Stage) -> None:
    model = await tiny_model(stage.engines, SLOW_TO_LOAD)
    engine = ENGINE.format(model=model, context=256) + "no-mmap = true\n"
    async with (
        stage.gang(
            LLAMA_SERVER, pods=1, engine=engine, supervisor_settings=QUICK, controller_settings=NO_LIMITS
        ) as running,
        httpx.AsyncClient() as http,
    ):
        await running.instance(is_active)
        for signal_name in ("TERM", "KILL"):
            loading = await caught_loading(running, http, signal_name)
            assert (await pids(running, 0))["engine"] != loading
            assert running.supervisors[0].restart_count == 0
            await complete(running, 0)


async def caught_loading(running: Cluster, http: httpx.AsyncClient, signal_name: str) -> int:
    """Sends the signal to an engine that loads, and returns its pid once the next one serves. A life may load between
    two looks of ours, so a few are tried."""
    for _ in range(TRIES):
        served = await running.instance(is_active)
        await kill_engine(running, 0)
        loads = await running.instance(is_later_than(served))
        await eventually(lambda: health(running, http), lambda status: status is not None, "the next engine")
        loading = (await pids(running, 0))["engine"]
        await kill_process(running, 0, loading, signal_name)
        again = await running.instance(is_active_again(loads))
        if re.search(rf"engine: loading -> .*pid={loading}\b", stdout(running, 0)):
            assert again["epoch"] == loads["epoch"] + 1
            return loading
    pytest.fail(f"it was never caught loading in {TRIES} lives")


async def test_scenario_5_an_engine_that_hangs_is_noticed_by_its_silence_killed_and_relaunched(stage: Stage) -> None:
    """A stopped process goes on accepting connections."""
    engine = ENGINE.format(model=await tiny_model(stage.engines, Shape()), context=256) + LIVENESS
    settings: Tables = {**QUICK, "supervisor": {**QUICK["supervisor"], "grace_period_sec": 0}}
    async with stage.gang(LLAMA_SERVER, pods=1, engine=engine, supervisor_settings=settings) as running:
        first = await running.instance(is_active)
        said = await complete(running, 0)
        hung = (await pids(running, 0))["engine"]
        await kill_process(running, 0, hung, "STOP")
        second = await running.instance(is_active_again(first))

        assert second["epoch"] == first["epoch"] + 1
        assert (await pids(running, 0))["engine"] != hung
        assert re.search(rf"pid={hung} .*cause=no answer within 1 s", stdout(running, 0))
        assert running.supervisors[0].restart_count == 0
        assert await complete(running, 0) == said


@pytest.mark.seed("S16")
async def test_S16_a_model_that_loads_longer_than_the_grace_period_is_never_reported(stage: Stage) -> None:
    """At a cold start and in a relaunch: nobody calls it dead, though its liveness probe would fail all the time."""
    async with stage.gang(engine=SLOW_ENGINE, supervisor_settings=IMPATIENT) as running:
        first = await running.instance(is_active)
        for rank in (0, 1):
            assert not re.search("death report|abnormal|frozen", stdout(running, rank))
        await kill_engine(running, 0)
        second = await running.instance(is_active_again(first))

        assert second["epoch"] == first["epoch"] + 1
        reports = [stdout(running, rank).count("death report taken") for rank in (0, 1)]
        assert reports == [1, 0], "of the engine that was killed, and of none that loads"
        for rank in (0, 1):
            assert len(banners(running, rank)) == 1
            assert running.supervisors[rank].restart_count == 0
