"""The KV stores and monitors that the demo and the end-to-end tests use work here."""

import signal

import httpx
import pytest
import trio

from controller.demo.engines import (
    MOONCAKE_CLIENT,
    MOONCAKE_MASTER,
    NODE_EXPORTER,
    REDIS_EXPORTER,
    REDIS_SERVER,
    Engines,
)
from controller.demo.pod import Network, Pod
from tests.engines.asking import status_of, until_listening, until_ready
from tests.pods.harness import TIMEOUT_SEC, eventually
from tests.support.installed_engines import program

pytestmark = [pytest.mark.engines, pytest.mark.seed("S31")]


async def test_a_mooncake_node_is_healthy_with_its_master_and_says_so_without(
    network: Network, client: httpx.AsyncClient, engines: Engines
) -> None:
    master_pod, node_pod = network.pods
    rpc, metrics, http = master_pod.port(50051), master_pod.port(9003), node_pod.port(9300)
    master_argv = [program(engines, MOONCAKE_MASTER), f"--rpc_address={master_pod.address}", f"--rpc_port={rpc}"]
    master_argv += [f"--metrics_host={master_pod.address}", f"--metrics_port={metrics}", "--client_ttl=5"]
    node_argv = [program(engines, MOONCAKE_CLIENT), f"--host={node_pod.address}", f"--port={node_pod.port(50052)}"]
    node_argv += [f"--master_server_address={master_pod.address}:{rpc}", "--metadata_server=P2PHANDSHAKE"]
    node_argv += ["--protocol=tcp", "--global_segment_size=64MB", "--enable_http_server=true", f"--http_port={http}"]
    async with master_pod.container(master_argv, log=master_pod.logs / "log") as master:
        await until_ready(client, f"http://{master_pod.address}:{metrics}/health", master)
        async with node_pod.container(node_argv, log=node_pod.logs / "log") as node:
            health = f"http://{node_pod.address}:{http}/health"
            await until_ready(client, health, node)
            master.kill(signal.SIGKILL)
            await master.wait()
            await eventually(lambda: status_of(client, health), lambda status: status == 503, "503 without a master")
            assert node.exit_code is None


async def ping(pod: Pod, port: int) -> bytes:
    with trio.fail_after(TIMEOUT_SEC):
        async with await trio.open_tcp_stream(pod.address, port) as stream:
            await stream.send_all(b"PING\r\n")
            return await stream.receive_some(64)


async def test_redis_answers_ping_and_its_exporter_outlives_it(
    network: Network, client: httpx.AsyncClient, engines: Engines
) -> None:
    pod, monitor_pod = network.pods
    port, exporter_port = pod.port(6379), monitor_pod.port(9121)
    redis_argv = [program(engines, REDIS_SERVER), "--bind", pod.address, "--port", str(port)]
    redis_argv += ["--save", "", "--appendonly", "no", "--dir", str(pod.volume), "--protected-mode", "no"]
    exporter_argv = [program(engines, REDIS_EXPORTER), f"--web.listen-address={monitor_pod.address}:{exporter_port}"]
    exporter_argv += [f"--redis.addr=redis://{pod.address}:{port}"]
    metrics = f"http://{monitor_pod.address}:{exporter_port}/metrics"

    async def redis_up() -> bool:
        return "redis_up 1" in (await client.get(metrics)).text

    async with monitor_pod.container(exporter_argv, log=monitor_pod.logs / "log") as exporter:
        async with pod.container(redis_argv, log=pod.logs / "log"):
            await until_listening(pod, port)
            assert await ping(pod, port) == b"+PONG\r\n"
            await until_ready(client, metrics, exporter)
            await eventually(redis_up, lambda up: up, "the exporter to see its store")
        await eventually(redis_up, lambda up: not up, "the exporter to miss its store")
        assert exporter.exit_code is None


async def test_the_node_exporter_serves_metrics(network: Network, client: httpx.AsyncClient, engines: Engines) -> None:
    pod = network.pods[0]
    argv = [program(engines, NODE_EXPORTER), f"--web.listen-address={pod.address}:{pod.port(9100)}"]
    metrics = f"http://{pod.address}:{pod.port(9100)}/metrics"
    async with pod.container(argv, log=pod.logs / "log") as container:
        await until_ready(client, metrics, container)
        assert "node_cpu_seconds_total" in (await client.get(metrics)).text
