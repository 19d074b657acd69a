"""llama-server and ggml-rpc-server work here, and behave as the supervisor counts on."""

import signal

import httpx
import pytest

from controller.demo.engines import GGML_RPC_SERVER, LLAMA_SERVER, Engines, tiny_model
from controller.demo.pod import Network, Pod
from controller.demo.tiny_model import Shape
from tests.engines.asking import complete, status_of, until_listening, until_ready
from tests.pods.harness import eventually
from tests.support.installed_engines import program, the_real_model

pytestmark = pytest.mark.engines

SLOW_TO_LOAD = Shape(layers=4, width=1024, feed_forward=4096, heads=16)  # 0.3 GB


def llama_server(path: str, model: object, pod: Pod, *flags: str) -> list[str]:
    """One thread and a small context: many of these start on few cores."""
    listen = ["--host", pod.address, "--port", str(pod.port(8080))]
    return [path, "-m", str(model), *listen, "-c", "256", "-t", "1", "--metrics", *flags]


def base_url(pod: Pod) -> str:
    return f"http://{pod.address}:{pod.port(8080)}"


async def test_it_answers_the_same_completion_in_every_life(
    network: Network, client: httpx.AsyncClient, engines: Engines
) -> None:
    pod = network.pods[0]
    argv = llama_server(program(engines, LLAMA_SERVER), await tiny_model(engines, Shape()), pod)
    texts = []
    for life in range(2):
        async with pod.container(argv, log=pod.logs / f"{life}") as container:
            await until_ready(client, f"{base_url(pod)}/health", container)
            texts.append(await complete(client, base_url(pod)))
            container.kill(signal.SIGKILL)
            assert await container.wait() == 137
            assert await status_of(client, f"{base_url(pod)}/health") is None
    assert len(texts[0]) == 8
    assert texts[0].isprintable()
    assert texts[0] == texts[1]


async def test_the_real_model_says_words_on_whatever_cpu_this_is(
    network: Network, client: httpx.AsyncClient, engines: Engines
) -> None:
    pod = network.pods[0]
    argv = llama_server(program(engines, LLAMA_SERVER), the_real_model(engines), pod)
    async with pod.container(argv, log=pod.logs / "log") as container:
        await until_ready(client, f"{base_url(pod)}/health", container)
        text = await complete(client, base_url(pod), max_tokens=24, prompt="The capital of France is")
    assert "city" in text


async def test_it_says_503_while_it_loads(network: Network, client: httpx.AsyncClient, engines: Engines) -> None:
    """Some lives may load between two looks of ours, so we watch a few."""
    pod = network.pods[0]
    model = await tiny_model(engines, SLOW_TO_LOAD)
    argv = llama_server(program(engines, LLAMA_SERVER), model, pod, "--no-mmap")
    seen: set[int | None] = set()
    for life in range(5):
        async with pod.container(argv, log=pod.logs / f"{life}"):

            async def health() -> int | None:
                status = await status_of(client, f"{base_url(pod)}/health")
                seen.add(status)
                return status

            await eventually(health, lambda status: status == 200, "the end of loading")
        if 503 in seen:
            break
    assert seen <= {None, 503, 200}
    assert 503 in seen


async def test_two_pods_serve_one_model_over_rpc(network: Network, client: httpx.AsyncClient, engines: Engines) -> None:
    head, worker = network.pods
    model = await tiny_model(engines, Shape())
    listen = ["-H", worker.address, "-p", str(worker.port(50052)), "-t", "1"]
    remote = ["--rpc", f"{worker.address}:{worker.port(50052)}", "-ngl", "99"]
    serving = llama_server(program(engines, LLAMA_SERVER), model, head, *remote)
    async with worker.container([program(engines, GGML_RPC_SERVER), *listen], log=worker.logs / "log") as rpc_server:
        await until_listening(worker, worker.port(50052))
        async with head.container(serving, log=head.logs / "log") as server:
            await until_ready(client, f"{base_url(head)}/health", server)
            assert len(await complete(client, base_url(head))) == 8
            # What makes the relaunch of the whole gang necessary: health is good, and the next request kills it.
            rpc_server.kill(signal.SIGKILL)
            await rpc_server.wait()
            assert await status_of(client, f"{base_url(head)}/health") == 200
            with pytest.raises(httpx.TransportError):
                await complete(client, base_url(head))
            # abort() as PID 1: the kernel ignores its SIGABRT, and the trap that abort() falls back on is a SIGSEGV.
            assert await server.wait() - 128 in (signal.SIGABRT, signal.SIGSEGV)
