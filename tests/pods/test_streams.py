"""Clients that stream completions while an engine is killed: what they see, and that it works again afterwards."""

import re
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo.engines import LLAMA_SERVER, Engines, real_model, tiny_model
from controller.demo.sandbox import open_network
from controller.demo.tiny_model import Shape
from tests.engines.asking import status_of
from tests.pods.harness import TIMEOUT_SEC, Cluster, eventually
from tests.pods.stage import ENGINE_PORT, ONE_EACH, Stage, is_active, kill_process, pids, stdout
from tests.pods.streaming import Streamed, stream
from tests.support.installed_engines import program

pytestmark = [pytest.mark.pods, pytest.mark.engines]

SLOW_TO_ANSWER = Shape(layers=4, width=1024, feed_forward=4096, heads=16)  # 0.3 GB
TOKENS = 100
"""Some seconds of answering: long enough to be killed in the middle."""


def base(running: Cluster, rank: int) -> str:
    return f"http://{running.network.pods[rank].address}:{ENGINE_PORT}"


async def until_whole(http: httpx.AsyncClient, url: str, max_tokens: int, failures: list[Streamed]) -> Streamed:
    """Ask again until the answer is whole, as a patient client does."""
    with trio.fail_after(TIMEOUT_SEC):
        while not (answer := await stream(http, url, max_tokens)).is_whole:
            failures.append(answer)
            await trio.sleep(0.1)
    return answer


async def the_real_model(engines: Engines, directory: Path) -> Path:
    """Skips where it is not, and where llama-server's build has instructions for its weights that this CPU has not."""
    model = real_model(engines)
    if model is None:
        pytest.skip("the small real model is not here; `make engines REAL_MODEL=yes` brings it")
    async with open_network(1, directory) as network, httpx.AsyncClient() as http:
        pod = network.pods[0]
        listen = ["--host", pod.address, "--port", str(pod.port(8080))]
        argv = [program(engines, LLAMA_SERVER), "-m", str(model), *listen, "-c", "64"]
        async with pod.container(argv, log=pod.logs / "log") as container:
            health = f"http://{pod.address}:{pod.port(8080)}/health"
            await eventually(
                lambda: status_of(http, health), lambda it: it == 200 or container.exit_code is not None, "a first word"
            )
            code = container.exit_code
    if code is not None:
        pytest.skip(f"llama-server cannot run {model.name} on this CPU: exit code {code}")
    return model


@pytest.mark.parametrize("kind", ["random", "real"])
async def test_a_stream_over_a_relaunch_breaks_off_for_all_to_see_and_succeeds_when_asked_again(
    stage: Stage, kind: str, namespaces: None, tmp_path: Path
) -> None:
    """In the pod whose engine is killed, and in the one whose engine is stopped with its gang."""
    random = kind == "random"
    engines = stage.engines
    model = await (tiny_model(engines, SLOW_TO_ANSWER) if random else the_real_model(engines, tmp_path / "trial"))
    answers: list[Streamed] = []
    async with (
        stage.gang(LLAMA_SERVER, model=model, context=1024, supervisor_settings=ONE_EACH) as running,
        httpx.AsyncClient() as http,
    ):
        first = await running.instance(is_active)
        engine = (await pids(running, 0))["engine"]
        begun = [trio.Event(), trio.Event()]

        async def ask(rank: int) -> None:
            answers.append(await stream(http, base(running, rank), 10 * TOKENS, begun[rank]))

        async with trio.open_nursery() as clients:
            for rank in (0, 1):
                clients.start_soon(ask, rank)
            for each in begun:
                await each.wait()
            await kill_process(running, 0, engine)

        assert [str(answer) for answer in answers if answer.looks_whole or answer.is_said_done] == []
        assert all(answer.error and answer.tokens for answer in answers), answers

        again: list[Streamed] = []
        texts = [(await until_whole(http, base(running, rank), TOKENS, again)).text for rank in (0, 1)]
        assert [str(answer) for answer in again if answer.looks_whole] == []
        assert texts[0] == texts[1]
        for answer in answers:
            assert texts[0].startswith(answer.text) or answer.text.startswith(texts[0]), "noise between two answers"
        # Scenario 4: with a request in flight it mostly does not end on SIGTERM, and is killed.
        assert re.search(r"engine: stop-(term|kill) -> dead: stopped by controller", stdout(running, 1))
        second = await running.instance(is_active)
        assert second["epoch"] == first["epoch"] + 1
