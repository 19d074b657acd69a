"""Pods of another configuration come while a run of the old gang is open; and a run whose own code breaks."""

from __future__ import annotations

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import Holder, InstanceStatus
from controller.model.relaunch import dispatch
from controller.model.relaunch.run import Progress, Run
from supervisor import wire
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor, Script

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def steps(world: World) -> list[str]:
    return [recovery.step for recovery in world.it.registry.recoveries()]


async def test_a_gang_that_grows_while_its_run_waits_for_a_member_is_not_started_in_part(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        old = world.add_gang()
        await world.until_active()
        for fake in old:
            fake.change(container_restart_sec=None)
        old[1].kill_container()
        await world.until(lambda: steps(world) == ["rejoin"])
        old[0].kill_container()
        await trio.sleep(15)
        began = trio.current_time()
        new = [a_pod(world, rank, nnodes=3, dependencies_sec=40.0 if rank == 2 else 0.0) for rank in range(3)]
        await trio.sleep(35)
        assert world.did("prepare", "start", since=began) == [], "the third is not ready"
        assert world.instance().status is not InstanceStatus.ACTIVE
        instance = await world.until_active(epoch=3)
        assert (instance.spec.nnodes, [fake.boots for fake in new]) == (3, [1, 1, 1])
        assert {who for who, _ in world.did("start", since=began)} == {fake.ip for fake in new}


def a_pod(world: World, rank: int, *, nnodes: int, dependencies_sec: float) -> FakeSupervisor:
    """Of the next generation of the job."""
    fake = FakeSupervisor(
        world.network,
        ip=f"10.9.0.{rank}",
        job_name="job",
        node_index=rank,
        nnodes=nnodes,
        script=Script(dependencies_sec=dependencies_sec),
        history=world.history,
    )
    world.nursery.start_soon(fake.run)
    return fake


class WithEndpoints(FakeSupervisor):
    """Its engine has as many as the test says."""

    endpoints = 2

    async def _post(self, route: str, message: msgspec.Struct) -> httpx.Response | None:
        if isinstance(message, wire.RegisterMsg):
            ports = tuple(str(8000 + number) for number in range(self.endpoints))
            message = msgspec.structs.replace(message, business_port=ports, mgmt_port=ports)
        if isinstance(message, wire.HeartbeatMsg):
            status = {str(number): self.status for number in range(self.endpoints)}
            message = msgspec.structs.replace(message, status=status)
        return await super()._post(route, message)


@pytest.mark.parametrize("step", ["prepare", "start", "await"])
async def test_a_pod_that_comes_back_with_fewer_endpoints_in_the_middle_of_its_run_is_started_with_these(
    autojump_clock: MockClock, step: str
) -> None:
    async with open_world() as world:
        pod = WithEndpoints(
            world.network, ip="10.8.0.0", job_name="job", node_index=0, nnodes=1, script=Script(), history=world.history
        )
        world.nursery.start_soon(pod.run)
        await world.until_active()
        pod.change(prepare_sec=3.0, spawn_sec=3.0)
        pod.kill_engine()
        await world.until(lambda: steps(world) == [step])
        pod.endpoints = 1
        pod.kill_container()
        await world.until_active(epoch=2)
        assert world.instance().spec.endpoints_per_node == 1
        outcomes = [view.outcome for view in reversed(world.it.registry.closed_runs)]
        assert outcomes == ["done", "aborted", "done"]


@pytest.mark.parametrize("hold_breaks", [False, True], ids=["the hold goes well", "so does the hold"])
async def test_a_run_that_breaks_by_a_bug_costs_its_own_instance_the_service_and_nobody_else_s(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, hold_breaks: bool
) -> None:
    async with open_world() as world:
        job, other = world.add_gang(), world.add_gang("other")
        await world.until_active()
        await world.until_active("other")
        command = dispatch._command

        def broken(run: Run, row: Progress, action: wire.Action) -> wire.EngineRestartMsg:
            is_job = run.instance.key.job_name == "job"
            if is_job and (action is wire.Action.PREPARE or (hold_breaks and action is wire.Action.HOLD)):
                raise IndexError("for the test")
            return command(run, row, action)

        monkeypatch.setattr(dispatch, "_command", broken)
        job[0].kill_engine()
        other[0].kill_engine()
        await world.until_active("other", epoch=2)
        await world.until(lambda: not any(fake.engine_alive for fake in job))
        held = world.instance().held
        assert held is not None
        assert held.by is Holder.FLEET
        await trio.sleep(60)
        assert len(world.it.registry.closed_runs) <= 6, "it does not break again and again"
        assert all(view.outcome for view in world.it.registry.closed_runs)
        alarms = [event for event in world.it.events.since(0) if event.level == "error" and "a bug" in event.message]
        assert len(alarms) == 1 + hold_breaks
        monkeypatch.setattr(dispatch, "_command", command)
        await world.client.post(f"/v1/instances/{world.instance().id}/release")
        await world.until_active(epoch=2)
