"""One vLLM over two pods, tensor parallel: whatever of it dies, all of it is relaunched in place."""

import time

import pytest

from tests.engines.vllm.faults import (
    CORE,
    DEATHS,
    FOLLOWER,
    LEADER,
    MAIN,
    NO_GRACE,
    OVER_TWO_PODS,
    QUICK_CANARY,
    WORKER,
    Fault,
    relaunch_after,
)
from tests.engines.vllm.gang import LOAD_SEC, Gang, Look, Stage, check_relaunched, report, timeline
from tests.pods.harness import eventually

pytestmark = [pytest.mark.pods, pytest.mark.vllm, pytest.mark.timeout(3600)]

HANGS = (
    Fault("SIGSTOP of EngineCore", LEADER, [CORE], "STOP"),
    Fault("SIGSTOP of the follower", FOLLOWER, [MAIN, WORKER], "STOP"),
)


async def test_whatever_of_a_gang_dies_or_hangs_all_of_it_is_relaunched_in_place(stage: Stage) -> None:
    """One gang for all, because a start takes a minute."""
    async with stage.gang(
        2,
        drop_in=QUICK_CANARY,
        environment=OVER_TWO_PODS,
        supervisor_settings=NO_GRACE,
    ) as gang:
        await gang.active()
        said = await gang.complete()
        assert len(said) == 8
        for fault in DEATHS:
            await relaunch_after(fault, gang, said)
        for fault in HANGS:
            await relaunch_after(fault, gang, said)
        await a_term_while_it_loads(gang, said)
        await a_death_while_it_loads(gang, said)


async def a_term_while_it_loads(gang: Gang, said: str) -> None:
    """vLLM swallows it or dies of it; either way it is there in the end, after one more relaunch at most."""
    before = await gang.look()
    epoch = await gang.active()
    await gang.kill(LEADER, before.pods[LEADER].titled(MAIN).pid)
    loading = await until_core_loads(gang, before)
    await gang.kill(LEADER, loading.pods[LEADER].titled(MAIN).pid, "TERM")
    now = await gang.active(epoch)
    report(f"SIGTERM while loading: {'swallowed' if now == epoch + 1 else 'it died, and was relaunched'}")
    assert now - epoch <= 2
    assert await gang.complete() == said
    check_relaunched(before, await gang.look(), gang)


async def a_death_while_it_loads(gang: Gang, said: str) -> None:
    """The leader waits for its follower then and heeds no SIGTERM."""
    before = await gang.look()
    epoch = await gang.active()
    await gang.kill(FOLLOWER, before.pods[FOLLOWER].titled(MAIN).pid)
    loading = await until_core_loads(gang, before)
    struck_at = time.time()
    await gang.kill(FOLLOWER, loading.pods[FOLLOWER].titled(MAIN).pid)
    assert await gang.active(epoch) == epoch + 2
    _, run = await gang.runs(epoch)
    report(f"kill -9 of the follower while loading: {timeline(run, struck_at)}")
    assert await gang.complete() == said
    check_relaunched(loading, await gang.look(), gang)


async def until_core_loads(gang: Gang, before: Look) -> Look:
    """Until the leader's next engine has come as far as its EngineCore."""
    old = {process.pid for process in before.pods[LEADER].processes}

    def has_core(look: Look) -> bool:
        return any(
            one.pid not in old and one.title.startswith("VLLM::EngineCore") for one in look.pods[LEADER].processes
        )

    return await eventually(gang.look, has_core, "a new EngineCore", timeout_sec=LOAD_SEC)
