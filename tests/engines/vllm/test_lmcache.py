"""vLLM with LMCache's server beside it: what the death of the store costs is the edge's to say."""

import json
import time

import pytest

from controller.demo.engines import LMCACHE, Engines
from tests.engines.vllm.gang import ANSWER_SEC, ENGINE, LOAD_SEC, Gang, Stage, report
from tests.pods.harness import eventually
from tests.pods.stage import shipped
from tests.support.installed_engines import program

pytestmark = [pytest.mark.pods, pytest.mark.vllm, pytest.mark.timeout(3600)]

STORE = "lmcache"
SMALL_STORE = """
[Service.Environment]
LMCACHE_TRACK_USAGE = "false"
LMCACHE_TRANSFER_MODE = "auto"
LMCACHE_CHUNK_SIZE = "128"
LMCACHE_L1_SIZE_GB = "0.25"
"""
RESTARTS_WITH_IT = 'OnDependencyRestart = { lmcache = "restart" }'
DEGRADES_WITHOUT_IT = 'kv_connector_extra_config = { "lmcache.mp.mq_timeout" = 5, "lmcache.mp.heartbeat_interval" = 2 }'
DEGRADES_SEC = 30.0
LONG_PROMPT = "Hello " * 60
"""More than a chunk, so that there is something to be stored."""


def with_store(edge: str = "", connector: str = "") -> str:
    """A drop-in for the engine."""
    return f"""
[Unit]
Requires = ["{STORE}"]
After = ["{STORE}"]
{edge}

[Service.Environment]
LMCACHE_TRACK_USAGE = "false"

[Engine.Args.kv-transfer-config]
kv_connector = "LMCacheMPConnector"
kv_role = "kv_both"
{connector}
"""


@pytest.fixture
def store(engines: Engines) -> dict[str, str]:
    """The shipped unit file and, as a drop-in, what fits a CPU."""
    program(engines, LMCACHE)
    return {**shipped(STORE), "lmcache.toml.d/small.toml": SMALL_STORE}


async def kill_store(gang: Gang) -> None:
    """And wait until its own policy has put another one there."""
    before = (await gang.look()).units[0][STORE]
    assert before is not None
    await gang.kill(0, before)

    async def pid() -> int | None:
        return (await gang.look()).units[0][STORE]

    await eventually(pid, lambda now: now not in (None, before), "another store", timeout_sec=LOAD_SEC, poll_sec=0.5)


async def objects_stored(gang: Gang) -> int:
    url = "http://127.0.0.1:8766/status"
    answer = await gang.inside(0, "python3", "-I", "-c", ASK, url)
    return int(json.loads(answer)["storage_manager"]["l1_manager"]["total_object_count"])


ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


async def test_with_the_stores_own_time_outs_the_engine_is_relaunched_after_it(
    stage: Stage, store: dict[str, str]
) -> None:
    """Left alone it would let every request hang for 300 s, though the store is back."""
    drop_in = with_store(edge=RESTARTS_WITH_IT)
    async with stage.gang(1, drop_in=drop_in, further_units=store) as gang:
        epoch = await gang.active()
        said = await gang.complete(prompt=LONG_PROMPT)
        assert await objects_stored(gang) > 0
        before = await gang.look()

        killed_at = time.time()
        await kill_store(gang)
        assert await gang.active(epoch) == epoch + 1

        report(f"kill -9 of the store: ACTIVE again {time.time() - killed_at:+.1f} s, with another engine")
        assert await gang.complete(prompt=LONG_PROMPT) == said
        assert await objects_stored(gang) > 0
        now = await gang.look()
        changed = {name for name, pid in before.units[0].items() if now.units[0][name] != pid}
        assert changed == {STORE, ENGINE}
        assert gang.running.supervisors[0].restart_count == 0


async def test_with_short_time_outs_the_engine_goes_on_without_it_and_is_left_alone(
    stage: Stage, store: dict[str, str]
) -> None:
    drop_in = with_store(connector=DEGRADES_WITHOUT_IT)
    async with stage.gang(1, drop_in=drop_in, further_units=store) as gang:
        epoch = await gang.active()
        said = await gang.complete(prompt=LONG_PROMPT)
        assert await objects_stored(gang) > 0
        before = await gang.look()

        killed_at = time.time()
        await kill_store(gang)
        assert await gang.complete(prompt=LONG_PROMPT, timeout_sec=DEGRADES_SEC + ANSWER_SEC) == said

        report(f"kill -9 of the store: answered again {time.time() - killed_at:+.1f} s, by the same engine")
        now = await gang.look()
        changed = {name for name, pid in before.units[0].items() if now.units[0][name] != pid}
        assert changed == {STORE}
        assert await gang.active() == epoch
        assert len(await gang.runs()) == 1

        async def stored_by_another_request() -> int:
            await gang.complete(prompt=LONG_PROMPT)
            return await objects_stored(gang)

        await eventually(stored_by_another_request, lambda count: count > 0, "something in the new store", poll_sec=1.0)
