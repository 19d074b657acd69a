"""Readiness means the instance: what readyz of each pod says while others of its gang load, die and leave."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.support.virtual_gang import Gang, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def not_ready(gang: Gang) -> list[str]:
    return [pod.not_ready for pod in gang.pods]


async def test_no_pod_is_ready_before_its_whole_gang_is(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        gang.pods[1].change(load_sec=60.0)
        await gang.until(lambda: gang.pods[0].serves)
        await trio.sleep(20)
        assert not_ready(gang) == ["the instance is initial", "endpoint is initial"]
        await gang.until_active()
        await gang.until(lambda: not_ready(gang) == ["", ""], within=2)


async def test_a_death_in_one_pod_takes_all_out_until_the_relaunch_is_done(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.until(lambda: not_ready(gang) == ["", ""], within=2)
        gang.pods[1].kill_engine()
        await gang.until(lambda: all(not_ready(gang)), within=3)
        while not gang.is_active(epoch=2):
            assert all(not_ready(gang))
            await trio.sleep(0.2)
        await gang.until(lambda: not_ready(gang) == ["", ""], within=2)


async def test_a_controller_that_restarts_takes_nobody_out(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        await gang.until(lambda: not_ready(gang) == ["", ""], within=2)
        await gang.crash_controller()
        for _ in range(100):
            assert not_ready(gang) == ["", ""]
            await trio.sleep(0.5)
        await gang.start_controller()
        for _ in range(200):
            assert not_ready(gang) == ["", ""]
            await trio.sleep(0.1)
        assert gang.is_active()
