"""Clients that stream completions while an engine is killed: what they see, and that it works again afterwards."""

import re

import httpx
import pytest
import trio

from controller.demo.engines import LLAMA_SERVER, tiny_model
from controller.demo.tiny_model import Shape
from tests.pods.harness import TIMEOUT_SEC, Cluster
from tests.pods.stage import ENGINE_PORT, ONE_EACH, Stage, is_active, is_active_again, kill_process, pids, stdout
from tests.pods.streaming import Streamed, stream
from tests.support.installed_engines import the_real_model

pytestmark = [pytest.mark.pods, pytest.mark.engines]

SLOW_TO_ANSWER = Shape(layers=4, width=1024, feed_forward=4096, heads=16)  # 0.3 GB
LONG = 1000
"""Tokens: many seconds of answering, to be killed in the middle."""
SHORT = 20
"""Tokens: enough to see that it says the same again."""


def base(running: Cluster, rank: int) -> str:
    return f"http://{running.network.pods[rank].address}:{ENGINE_PORT}"


async def until_whole(http: httpx.AsyncClient, url: str, max_tokens: int, failures: list[Streamed]) -> Streamed:
    """Ask again until the answer is whole, as a patient client does."""
    with trio.fail_after(TIMEOUT_SEC):
        while not (answer := await stream(http, url, max_tokens)).is_whole:
            failures.append(answer)
            await trio.sleep(0.1)
    return answer


@pytest.mark.parametrize("kind", ["random", "real"])
async def test_a_stream_over_a_relaunch_breaks_off_for_all_to_see_and_succeeds_when_asked_again(
    stage: Stage, kind: str, namespaces: None
) -> None:
    """In the pod whose engine is killed, and in the one whose engine is stopped with its gang."""
    random = kind == "random"
    model = await tiny_model(stage.engines, SLOW_TO_ANSWER) if random else the_real_model(stage.engines)
    answers: list[Streamed] = []
    async with (
        stage.gang(LLAMA_SERVER, model=model, context=1024, supervisor_settings=ONE_EACH) as running,
        httpx.AsyncClient() as http,
    ):
        first = await running.instance(is_active)
        engine = (await pids(running, 0))["engine"]
        begun = [trio.Event(), trio.Event()]

        async def ask(rank: int) -> None:
            answers.append(await stream(http, base(running, rank), LONG, begun[rank]))

        async with trio.open_nursery() as clients:
            for rank in (0, 1):
                clients.start_soon(ask, rank)
            for each in begun:
                await each.wait()
            await kill_process(running, 0, engine)

        assert [str(answer) for answer in answers if answer.looks_whole or answer.is_said_done] == []
        assert all(answer.error and answer.tokens for answer in answers), answers

        again: list[Streamed] = []
        texts = [(await until_whole(http, base(running, rank), SHORT, again)).text for rank in (0, 1)]
        assert [str(answer) for answer in again if answer.looks_whole] == []
        assert texts[0] == texts[1]
        for answer in answers:
            assert texts[0].startswith(answer.text) or answer.text.startswith(texts[0]), "noise between two answers"
        # Scenario 4: with a request in flight it mostly does not end on SIGTERM, and is killed.
        assert re.search(r"engine: stop-(term|kill) -> dead: stopped by controller", stdout(running, 1))
        second = await running.instance(is_active_again(first))
        assert second["epoch"] == first["epoch"] + 1
