"""ElasticScaling against an endpoint with vLLM's form: down without the lost device's ranks, and up again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from quart import Response, request
from quart_trio import QuartTrio
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from controller.model.settings import StrategySettings
from controller.policy import Policy
from controller.recovery import Recovery
from supervisor import wire
from tests.support.cancel_sweep import sweep
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor, Script

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

POLICY = Policy(strategies=StrategySettings(switches=frozenset({"enable_elastic_scaling"})))
LOST = 0x80DE1801


@dataclass
class Vllm:
    """What it checks of a request, and what it answers, is vLLM's (vllm/entrypoints/serve/elastic_ep)."""

    status: int = 200
    takes_sec: float = 20.0
    asked: list[dict[str, object]] = field(default_factory=list)

    def application(self) -> QuartTrio:
        app = QuartTrio("vllm")

        @app.post("/scale_elastic_ep")
        async def scale() -> tuple[dict[str, object], int]:
            if request.content_type != "application/json":
                return {"detail": "Unsupported Media Type"}, 415
            body = await request.get_json()
            for name in ("new_data_parallel_size", "drain_timeout"):
                if not isinstance(body[name], int) or body[name] <= 0:
                    return {"detail": f"{name} must be a positive integer"}, 400
            self.asked.append(body)
            await trio.sleep(self.takes_sec)
            if self.status != 200:
                return {"detail": "Scale failed"}, self.status
            return {"message": f"Scaled to {body['new_data_parallel_size']} data parallel engines"}, 200

        @app.get("/health")
        async def health() -> Response:
            return Response("")

        return app

    @property
    def sizes(self) -> list[object]:
        return [body["new_data_parallel_size"] for body in self.asked]


@asynccontextmanager
async def serving(vllm: Vllm | None = None) -> AsyncIterator[tuple[World, list[FakeSupervisor], Vllm]]:
    async with open_world(POLICY) as world:
        gang = world.add_gang(
            size=4, script=Script(freeze_sec=30.0), role="decode", parallel_config=wire.ParallelConfig(dp_size=8)
        )
        await world.until_active()
        vllm = vllm or Vllm()
        world.network.listen(gang[0].ip, 8000, vllm.application())
        yield world, gang, vllm


async def report(world: World, member: FakeSupervisor, level: str = "L5") -> wire.FaultAnswer:
    message = {"fault_code": LOST, "fault_level": level, "pod_ip": member.ip, "device": "3"}
    answer = await world.client.post("/controller/report_hardware_fault", json=message)
    assert answer.status_code == 200, answer.text
    return wire.decode(wire.FaultAnswer, answer.content)


def closed(world: World) -> list[tuple[str, str | None]]:
    return [(view.strategy, view.outcome) for view in reversed(world.it.registry.closed_runs)][1:]


async def test_it_serves_on_without_the_ranks_of_the_lost_device_and_takes_them_back(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (world, gang, vllm):
        answer = await report(world, gang[2])
        assert (answer.recovery, answer.strategy) == (wire.Recovery.PENDING, "elastic_scaling")
        assert world.instance().status is InstanceStatus.INACTIVE
        await world.until(lambda: closed(world) == [("elastic_scaling", "done")], within=30)
        assert vllm.asked == [{"new_data_parallel_size": 4, "drain_timeout": 120}]
        assert (world.instance().status, world.instance().scaled_to) == (InstanceStatus.ACTIVE, 4)
        # The next device that is lost is below the ranks that serve.
        await report(world, gang[1])
        await world.until(lambda: len(closed(world)) == 2, within=30)
        assert (world.instance().status, world.instance().scaled_to) == (InstanceStatus.ACTIVE, 2)
        for member in (gang[1], gang[2]):
            await report(world, member, "HEALTHY")
        await world.until(lambda: len(closed(world)) == 3, within=30)
        assert vllm.sizes == [4, 2, 8]
        assert (world.instance().status, world.instance().scaled_to) == (InstanceStatus.ACTIVE, None)
        assert [fake.boots for fake in gang] == [1] * 4
        assert world.instance().epoch == 1


@pytest.mark.seed("S08")
@pytest.mark.parametrize("status, why", [(408, "answers 408"), (500, "answers 500"), (404, "has no /scale_elastic_ep")])
async def test_S08_what_vllm_cannot_do_is_relaunched(autojump_clock: MockClock, status: int, why: str) -> None:
    async with serving(Vllm(status)) as (world, gang, _):
        await report(world, gang[2])
        await world.until(lambda: closed(world) == [("elastic_scaling", "failed")], within=30)
        assert why in world.instance().prev_strategy_failed
        await world.until(lambda: world.instance().epoch == 2 and len(closed(world)) == 2)
        # The engines are new and have all their ranks; the device is lost still.
        assert closed(world)[1] == ("engine_relaunch", "done")
        assert world.instance().status is InstanceStatus.INACTIVE
        assert "has fault 0x80de1801" in world.instance().reason


async def test_rank_0_s_device_cannot_be_scaled_away(autojump_clock: MockClock) -> None:
    async with serving() as (world, gang, vllm):
        await report(world, gang[0])
        await world.until(lambda: closed(world)[:1] == [("elastic_scaling", "failed")], within=5)
        assert vllm.asked == []
        assert "rank 0" in world.instance().prev_strategy_failed


async def test_a_relaunch_meanwhile_has_all_ranks(autojump_clock: MockClock) -> None:
    async with serving() as (world, gang, vllm):
        await report(world, gang[2])
        await world.until(lambda: len(closed(world)) == 1, within=30)
        gang[3].kill_engine()
        await world.until(lambda: world.instance().epoch == 2 and len(closed(world)) == 2)
        assert world.instance().scaled_to is None
        assert world.instance().status is InstanceStatus.INACTIVE
        assert vllm.sizes == [4]


@asynccontextmanager
async def with_its_own_hand() -> AsyncIterator[World]:
    async with serving(Vllm(takes_sec=2.0)) as (world, _, _):
        world.pause_center()
        yield world


async def one_scaling(world: World) -> None:
    await report(world, world.gangs["job"][2])
    recovery = world.notes["recovery"] = world.it.registry.opened.popleft()
    await world.it.center.recover(recovery)


async def handed_back(world: World, cancelled: bool) -> None:
    recovery = world.notes.get("recovery")
    if not isinstance(recovery, Recovery):
        return
    assert recovery not in world.it.registry.recoveries(), "C1: the instance is handed back"
    instance = world.instance()
    # Only what vLLM has confirmed counts; without it the instance stays out of routing.
    assert instance.scaled_to in ({None, 4} if cancelled else {4})
    assert bool(instance.separated) is (instance.scaled_to is None)
    if instance.separated:
        assert instance.status is InstanceStatus.INACTIVE


@pytest.mark.seed("S33")
def test_a_scaling_may_be_cancelled_at_every_checkpoint() -> None:
    assert sweep(with_its_own_hand, one_scaling, handed_back) > 10
