"""Two gangs of one model whose canaries fail at the same moment, by the supervisors and the controller that ship."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from controller.model.settings import FleetSettings
from supervisor.service import http_check
from supervisor.service.http_check import HttpAnswer
from supervisor.unit.model import HttpCheck
from tests.support.virtual_gang import Gang, open_gang

INTERVAL = FleetSettings().canary_min_interval_sec
CANARY = '[Canary]\nHttp = "http://router:8000/v1/completions"\n'


@dataclass
class Router:
    """Before all engines: when it breaks they all look stuck, and none is."""

    is_broken: bool = False
    tokens: int = 0

    async def fetch(self, check: HttpCheck, **_: object) -> HttpAnswer:
        if check.url.endswith("/metrics"):
            return HttpAnswer(200, f"vllm:generation_tokens_total {self.tokens}\n".encode())
        return HttpAnswer(500 if self.is_broken else 200, b"")


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Router:
    router = Router()
    monkeypatch.setattr(http_check, "fetch", router.fetch)
    return router


@asynccontextmanager
async def one_relaunches_and_one_waits(router: Router) -> AsyncIterator[tuple[Gang, Gang]]:
    async with open_gang(sections=CANARY) as one, open_gang(sections=CANARY, beside=one) as other:
        for gang in (one, other):
            await gang.until_active()
        router.is_broken = True
        await one.until(lambda: "put_off" in steps(one), within=60)
        await one.until(lambda: any(spawns(gang) == [2, 2] for gang in (one, other)), within=20)
        yield (one, other) if spawns(one) == [2, 2] else (other, one)


def steps(gang: Gang) -> list[str]:
    return [recovery.step for recovery in gang.world.it.registry.recoveries()]


def spawns(gang: Gang) -> list[int]:
    return [pod.spawns() for pod in gang.pods]


def no_container_ended(*gangs: Gang) -> bool:
    return all(len(pod.boots) == 1 for gang in gangs for pod in gang.pods)


async def test_one_is_relaunched_and_the_other_is_left_alone_when_their_router_is_mended(
    router: Router, autojump_clock: MockClock
) -> None:
    async with one_relaunches_and_one_waits(router) as (relaunched, waits):
        await trio.sleep(100)
        assert any(pod.is_frozen for pod in waits.pods), "five ticks of its arbiter would have ended its container"
        router.is_broken = False
        await waits.until_active(within=60)
        await relaunched.until_active(epoch=2, within=60)
        assert (spawns(relaunched), spawns(waits)) == ([2, 2], [1, 1])
        assert no_container_ended(relaunched, waits)
        await waits.until(lambda: all(pod.settled for pod in waits.pods), within=60)
        assert {view.outcome for view in waits.runs} == {"done", "recovered_itself"}


async def test_while_it_stays_broken_they_come_one_after_the_other(router: Router, autojump_clock: MockClock) -> None:
    """The first is stuck again soon after, and takes its turn after the other."""
    async with one_relaunches_and_one_waits(router) as (relaunched, waits):
        first = relaunched.did("step:stopping")[-1].at
        await waits.until(lambda: bool(waits.did("step:stopping", since=first)))
        assert INTERVAL <= waits.did("step:stopping", since=first)[0].at - first < INTERVAL + 10
        assert spawns(relaunched) == [2, 2]
        router.is_broken = False
        await waits.until_active(epoch=2)
        await relaunched.until_active(epoch=2)
        assert no_container_ended(relaunched, waits)
