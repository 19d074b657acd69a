"""KV stores and monitors from shipped unit files, in pods, beside a real engine: who dies alone, and who follows."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest

from controller.demo.engines import (
    LLAMA_SERVER,
    MOONCAKE_CLIENT,
    MOONCAKE_MASTER,
    NODE_EXPORTER,
    REDIS_EXPORTER,
    REDIS_SERVER,
    tiny_model,
)
from controller.demo.pod import Network
from controller.demo.tiny_model import Shape
from supervisor.unit.expand import expand_unit
from tests.engines.probing import ask_http, ask_tcp, until_probed
from tests.engines.probing import shipped as shipped_unit
from tests.pods.harness import Cluster, eventually
from tests.pods.stage import (
    ENGINE,
    ONE_EACH,
    Part,
    Stage,
    complete,
    is_active,
    is_active_again,
    kill_process,
    pids,
    relaunches,
    shipped,
    stdout,
)

pytestmark = [pytest.mark.pods, pytest.mark.engines, pytest.mark.seed("S31")]

IN_EACH = ("mooncake-client", "redis", "redis-exporter", "node-exporter")
IN_THE_FIRST = ("mooncake-master", *IN_EACH)
"""One master for the nodes of both pods."""
NODE_HEALTH = "http://${POD_IP}:9300/health"
REDIS = "127.0.0.1:6379"
# The engine cannot do without Redis and copes with a Mooncake that is gone: the two kinds of edges that there are.
EDGES = """
Requires = ["redis", "mooncake-client"]
After = ["redis", "mooncake-client"]
OnDependencyRestart = { redis = "restart" }
"""


def units(rank: int, engine: str) -> dict[str, str]:
    return {"engine.toml": engine, **shipped(*(IN_EACH if rank else IN_THE_FIRST))}


def environment(network: Network) -> dict[str, str]:
    return {"MOONCAKE_MASTER": f"{network.pods[0].address}:50051", "MOONCAKE_SEGMENT_SIZE": "64MB"}


@asynccontextmanager
async def pods_with_stores(stage: Stage) -> AsyncIterator[Cluster]:
    stage.need(LLAMA_SERVER, MOONCAKE_MASTER, MOONCAKE_CLIENT, REDIS_SERVER, REDIS_EXPORTER, NODE_EXPORTER)
    engine = ENGINE.format(model=await tiny_model(stage.engines, Shape()), context=256)
    engine = engine.replace('Requires = ["redis"]\nAfter = ["redis"]\n', EDGES)
    assert EDGES in engine
    network = await stage.pods(2)
    parts = [Part(units(rank, engine), ONE_EACH, environment(network)) for rank in (0, 1)]
    async with stage.cluster(network, parts) as running:
        yield running


async def inside(running: Cluster, rank: int, question: list[str]) -> str:
    container = running.supervisors[rank].container
    assert container is not None
    return (await container.exec(question)).output


async def node_health(running: Cluster, rank: int) -> str:
    address = running.network.pods[rank].address
    return await inside(running, rank, ask_http(NODE_HEALTH.replace("${POD_IP}", address)))


async def segments(running: Cluster) -> list[str]:
    """The nodes that the master knows."""
    return (await inside(running, 0, ask_http("http://127.0.0.1:9003/get_all_segments"))).split()[1:]


async def redis(running: Cluster, rank: int, command: str) -> str:
    return (await inside(running, rank, ask_tcp(REDIS, command + "\r\n"))).strip()


async def redis_up(running: Cluster, rank: int) -> str:
    lines = (await inside(running, rank, ask_http("http://127.0.0.1:9121/metrics"))).splitlines()
    return next((line for line in lines if line.startswith("redis_up ")), "no word of it")


async def states(running: Cluster, rank: int) -> dict[str, tuple[str, int]]:
    """State and restarts of every unit."""
    view = await running.podvisor(rank, "status")
    return {unit["name"]: (unit["state"], unit["restarts"]) for unit in view["units"]}


def all_active(states: Mapping[str, tuple[str, int]]) -> bool:
    return {state for state, _ in states.values()} == {"active"}


def others(pids: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: pid for name, pid in pids.items() if name not in names}


async def test_scenario_1_stores_start_first_then_engines_and_each_is_probed_as_its_makers_say(stage: Stage) -> None:
    async with pods_with_stores(stage) as running:
        await running.instance(is_active)
        for rank, names in enumerate((IN_THE_FIRST, IN_EACH)):
            log = stdout(running, rank)
            spawned = log.index("engine: start -> loading")
            for store in ("redis", "mooncake-client"):
                assert log.index(f"{store}: loading -> ready") < spawned, store
            pod = running.network.pods[rank]
            known = environment(running.network) | {"POD_IP": pod.address, "PATH": "/usr/bin"}
            container = running.supervisors[rank].container
            assert container is not None
            for name in names:
                await until_probed(expand_unit(shipped_unit(name), known), container)
            await eventually(partial(states, running, rank), all_active, "all units")
            assert "abnormal" not in log, "not yet ready is not dead"
            assert json.loads((await node_health(running, rank)).split(maxsplit=1)[1])["status"] == "healthy"
            assert await redis(running, rank, "PING") == "+PONG"
            assert await redis_up(running, rank) == "redis_up 1"
            await complete(running, rank)
        assert '"service_ready":true' in await inside(running, 0, ask_http("http://127.0.0.1:9003/health"))
        assert len(await segments(running)) == 2


async def test_scenario_6_a_mooncake_master_dies_alone_and_its_nodes_come_back_to_the_next_one(stage: Stage) -> None:
    """A node's 503 is not its own death; the engine's edge ignores the store, so the engine stays as well."""
    async with pods_with_stores(stage) as running:
        first = await running.instance(is_active)
        before = [await pids(running, rank) for rank in (0, 1)]
        await running.podvisor(0, "stop", "mooncake-master")
        for rank in (0, 1):
            await eventually(partial(node_health, running, rank), lambda it: it.startswith("503"), "503")
            await complete(running, rank)
        await running.podvisor(0, "start", "mooncake-master")
        await eventually(partial(segments, running), lambda known: len(known) == 2, "both nodes")
        await killed_and_replaced(running, 0, "mooncake-master")
        await eventually(partial(segments, running), lambda known: len(known) == 2, "both nodes again")

        for rank in (0, 1):
            await eventually(partial(node_health, running, rank), lambda it: it.startswith("200"), "200")
            assert others(await pids(running, rank), "mooncake-master") == others(before[rank], "mooncake-master")
            assert (await states(running, rank))["mooncake-client"] == ("active", 0)

        await killed_and_replaced(running, 1, "mooncake-client")
        assert others(await pids(running, 1), "mooncake-client") == others(before[1], "mooncake-client")
        assert others(await pids(running, 0), "mooncake-master") == others(before[0], "mooncake-master")
        assert (await running.instance(is_active))["epoch"] == first["epoch"]


async def killed_and_replaced(running: Cluster, rank: int, unit: str) -> None:
    """SIGKILL to its process; its own policy starts the next."""
    killed = (await pids(running, rank))[unit]
    await kill_process(running, rank, killed)
    await eventually(lambda: pids(running, rank), lambda now: now[unit] not in (killed, None), f"another {unit}")


async def test_scenario_7_a_redis_dies_alone_and_the_gang_follows_because_its_edge_says_so(stage: Stage) -> None:
    """Exporters and the other pod's Redis, with all that it holds, are untouched."""
    async with pods_with_stores(stage) as running:
        first = await running.instance(is_active)
        before = [await pids(running, rank) for rank in (0, 1)]
        for rank in (0, 1):
            assert await redis(running, rank, "SET key value") == "+OK"

        await kill_process(running, 1, before[1]["redis"])
        second = await running.instance(is_active_again(first))

        after = [await pids(running, rank) for rank in (0, 1)]
        assert second["epoch"] == first["epoch"] + 1
        assert after[1]["redis"] != before[1]["redis"]
        assert others(after[0], "engine") == others(before[0], "engine")
        assert others(after[1], "engine", "redis") == others(before[1], "engine", "redis")
        for rank in (0, 1):
            assert after[rank]["engine"] != before[rank]["engine"]
            await complete(running, rank)
        assert [await redis(running, rank, "DBSIZE") for rank in (0, 1)] == [":1", ":0"]
        await eventually(
            lambda: redis_up(running, 1), lambda word: word == "redis_up 1", "the exporter to see the next"
        )
        (run, _) = await relaunches(running)
        assert "redis was relaunched (OnDependencyRestart)" in stdout(running, 1)
        assert run["reason"] == "operator"
