"""Runs that wait for their turn: what they keep promising, and how they end before it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.model.budget import spend_run
from controller.model.instance import InstanceStatus
from controller.model.settings import OnMemberLost, RelaunchSettings, StrategySettings
from controller.policy import Policy
from supervisor import wire
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor
from tests.support.killed_journal import journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

TURN_SEC = 400.0
QUEUE = Policy(
    max_concurrent_runs=1,
    relaunch=RelaunchSettings(engine_relaunch_backoff_sec=TURN_SEC, engine_relaunch_backoff_max_sec=TURN_SEC),
)
LOST_STEPS = ("rejoin", "phase2")


async def takes_the_turn(world: World, job_name: str = "slow") -> None:
    """The only one, for TURN_SEC: it was relaunched before, and waits in its back-off."""
    budgets = world.it.registry.budgets
    budgets.put(spend_run(budgets.of(world.instance(job_name)), "an earlier start"))
    world.gangs[job_name][0].kill_engine()
    await world.until(lambda: "backoff" in [run.step for run in world.it.registry.recoveries()])


@asynccontextmanager
async def one_has_the_turn_and_one_waits() -> AsyncIterator[tuple[World, list[FakeSupervisor]]]:
    """The only turn is that of the job `slow`; the engines of `waiting` are dead."""
    async with open_world(QUEUE) as world:
        world.add_gang("slow")
        waiting = world.add_gang("waiting")
        await world.until_active("slow")
        await world.until_active("waiting")
        await takes_the_turn(world)
        waiting[0].kill_engine()
        waiting[1].kill_engine()
        await world.until(lambda: all(fake.answers for fake in waiting))
        yield world, waiting


async def queued_run(world: World) -> str:
    views = (await world.client.get("/v1/instances")).json()["instances"]
    (recovery,) = [view["recovery"] for view in views if view["job_name"] == "waiting"]
    assert recovery["step"] == "queued"
    return str(recovery["run_id"])


async def test_it_is_out_of_routing_and_visible_and_its_reporters_stay_frozen(autojump_clock: MockClock) -> None:
    async with one_has_the_turn_and_one_waits() as (world, gang):
        await world.until(lambda: world.instance("waiting").status is InstanceStatus.INACTIVE, within=5)
        assert [fake.answers[0].recovery for fake in gang] == [wire.Recovery.ENGINE_RELAUNCH] * 2
        run_id = await queued_run(world)
        runs = (await world.client.get("/v1/relaunches")).json()["relaunches"]
        assert run_id in [run["id"] for run in runs if run["outcome"] is None]
        await trio.sleep(300)
        assert all(fake.is_frozen for fake in gang)
        await world.until_active("waiting", epoch=2)
        assert [fake.boots for fake in gang] == [1, 1]
        statuses = [
            event.status
            for event in world.it.events.since(0)
            if event.kind == "instance" and event.job_name == "waiting"
        ]
        assert statuses == ["active", "inactive", "active"]


async def test_an_operator_need_not_wait_for_its_turn_to_abort_it(autojump_clock: MockClock) -> None:
    async with one_has_the_turn_and_one_waits() as (world, gang):
        run_id = await queued_run(world)
        answer = await world.client.post(f"/v1/relaunches/{run_id}/abort")
        assert answer.status_code == 202
        await world.until(lambda: world.it.registry.closed_runs[0].id == run_id, within=5)
        assert world.it.registry.closed_runs[0].outcome == "aborted"
        # Whoever froze itself for it was told.
        assert {who for who, _ in world.did("abort")} == {fake.ip for fake in gang}
        assert not any(fake.is_frozen for fake in gang)


async def test_its_instance_can_be_terminated(autojump_clock: MockClock) -> None:
    async with one_has_the_turn_and_one_waits() as (world, gang):
        await queued_run(world)
        for fake in gang:
            fake.change(container_restart_sec=None)
        message = wire.TerminateInstanceMsg(instance_id=world.instance("waiting").id, reason="scaled in")
        await world.client.post("/controller/terminate_instance", content=wire.encode(message))
        await world.until(lambda: len(world.it.registry.entries()) == 1, within=10)
        await world.until(lambda: not any(fake.is_running for fake in gang), within=10)


@pytest.mark.parametrize("lost", OnMemberLost)
async def test_who_waits_for_containers_lets_the_next_one_start(autojump_clock: MockClock, lost: OnMemberLost) -> None:
    policy = replace(QUEUE, relaunch=replace(QUEUE.relaunch, on_member_lost=lost))
    async with open_world(policy) as world:
        gone, waiting = world.add_gang("gone"), world.add_gang("waiting")
        await world.until_active("gone")
        await world.until_active("waiting")
        gone[0].change(container_restart_sec=None)
        gone[0].kill_container()
        await world.until(lambda: any(recovery.step in LOST_STEPS for recovery in world.it.registry.recoveries()))
        died = trio.current_time()
        waiting[0].kill_engine()
        await world.until_active("waiting", epoch=2)
        assert trio.current_time() - died < 30, "the other one waits for 300 s"


async def test_who_is_complete_again_waits_for_its_turn_in_place(autojump_clock: MockClock) -> None:
    async with open_world(QUEUE) as world:
        gone, slow = world.add_gang("gone"), world.add_gang("slow")
        await world.until_active("gone")
        await world.until_active("slow")
        gone[0].change(container_restart_sec=10.0)
        gone[0].kill_container()
        await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["rejoin"])
        began = trio.current_time()
        await takes_the_turn(world)
        await trio.sleep(350)
        assert gone[1].is_frozen
        assert world.did("start", since=began) == [], "the only turn is the other's"
        await world.until_active("gone", epoch=2)
        assert [fake.boots for fake in gone + slow] == [2, 1, 1, 1]


async def test_what_a_container_said_before_it_restarted_in_the_queue_breaks_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_world(QUEUE) as world:
        slow = world.add_gang("slow")
        await world.until_active("slow")
        await takes_the_turn(world)
        cold = world.add_gang("cold")
        await world.until(lambda: len(world.it.registry.recoveries()) == 2)
        await trio.sleep(30)
        cold[0].kill_container()
        await world.until_active("slow", epoch=2)
        await world.until_active("cold")
        assert world.did("stop", "abort") == []
        assert [fake.boots for fake in slow + cold] == [1, 1, 2, 1]


async def test_a_gang_that_lost_a_member_while_it_waited_is_not_started_in_part(autojump_clock: MockClock) -> None:
    async with open_world(QUEUE) as world:
        world.add_gang("slow")
        await world.until_active("slow")
        await takes_the_turn(world)
        message = wire.RegisterMsg(
            job_name="job", model_name="tiny", role="union", pod_ip="10.9.0.1", nm_port="1026",
            business_port=("8000",), mgmt_port=("8001",), nnodes=1, features=wire.FEATURES, boot_id="old",
        )  # fmt: skip
        assert (await world.client.post("/controller/register", content=wire.encode(message))).is_success
        beat = wire.HeartbeatMsg(
            job_name="job", ins_id=0, ip="10.9.0.1", status={}, nm_port="1026", boot_id="old", prepared=True
        )
        assert (await world.client.post("/controller/heartbeat", content=wire.encode(beat))).is_success
        await world.until(lambda: len(world.it.registry.recoveries()) == 2)
        # A rollout: the same job has two nodes now, of which one is here when the turn comes.
        await trio.sleep(60)
        gang = world.add_gang("job", size=2)
        world.network.partition(gang[1].ip, "controller")
        await world.until(lambda: gang[0].registrations == 1)
        await world.until_active("slow", epoch=2)
        await trio.sleep(60)
        assert gang[0].did("prepare") == gang[0].did("start") == []
        world.network.heal(gang[1].ip, "controller")
        world.network.heal("controller", gang[1].ip)
        await world.until_active("job")


async def test_a_hold_starts_nothing_and_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with open_world(QUEUE) as world:
        world.add_gang("slow")
        held = world.add_gang("held")
        await world.until_active("slow")
        instance = await world.until_active("held")
        await takes_the_turn(world)
        answer = await world.client.post(f"/v1/instances/{instance.id}/hold")
        assert answer.status_code == 202
        await world.until(lambda: not any(fake.engine_alive for fake in held), within=5)
        assert world.instance("held").status is not InstanceStatus.ACTIVE


@pytest.mark.parametrize("lost", OnMemberLost)
async def test_who_has_lost_a_member_waits_for_it_and_not_for_a_turn(
    autojump_clock: MockClock, lost: OnMemberLost
) -> None:
    policy = replace(QUEUE, relaunch=replace(QUEUE.relaunch, on_member_lost=lost))
    async with open_world(policy) as world:
        world.add_gang("slow")
        gone = world.add_gang("gone")
        await world.until_active("slow")
        await world.until_active("gone")
        await takes_the_turn(world)
        gone[0].kill_container()
        await world.until(lambda: any(run.step in LOST_STEPS for run in world.it.registry.recoveries()), within=20)
        await world.until(lambda: not gone[1].engine_alive, within=5)


@pytest.mark.parametrize("is_reported", [True, False])
async def test_a_run_that_gives_way_in_the_queue_while_a_member_is_lost_is_closed(
    autojump_clock: MockClock, tmp_path: Path, is_reported: bool
) -> None:
    switches = StrategySettings(switches=frozenset({"enable_elastic_scaling"}))
    policy = replace(QUEUE, strategies=switches)
    async with open_world(policy, elect=journal_in(tmp_path)) as world:
        world.add_gang("slow")
        job = world.add_gang("job", role="decode")
        await world.until_active("slow")
        instance = await world.until_active("job")
        await takes_the_turn(world)
        assert (await world.client.post(f"/v1/instances/{instance.id}/relaunch")).status_code == 202
        (run_id,) = [run.run_id for run in world.it.registry.recoveries() if run.step == "queued"]
        if is_reported:
            job[0].kill_engine()
            await world.until(lambda: job[0].is_frozen)
        job[1].change(container_restart_sec=None)
        job[1].kill_container()
        await trio.sleep(20)
        fault = wire.HardwareFaultMsg(fault_code=7, fault_level="L5", pod_ip=job[1].ip)
        began = trio.current_time()
        await world.client.post("/controller/report_hardware_fault", content=wire.encode(fault))
        await world.until(lambda: any(view.id == run_id for view in world.it.registry.closed_runs), within=5)
        (closed,) = [view for view in world.it.registry.closed_runs if view.id == run_id]
        assert (closed.outcome, [step.name for step in closed.steps]) == ("aborted", ["cleanup"] if is_reported else [])
        assert {who for who, _ in world.did("abort", since=began)} == ({job[0].ip} if is_reported else set())
        with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as journal:
            assert journal.execute("select open from runs where run_id = ?", (run_id,)).fetchall() == [(0,)]


async def test_a_run_that_waits_for_its_turn_is_opened_by_the_next_life(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_world(QUEUE, elect=journal_in(tmp_path)) as world:
        world.add_gang("slow")
        waiting = world.add_gang("waiting")
        await world.until_active("slow")
        await world.until_active("waiting")
        await takes_the_turn(world)
        waiting[0].kill_engine()
        await world.until(lambda: waiting[0].is_frozen)
        run_id = await queued_run(world)
        await world.stop_controller()
        assert world.did("abort") == []
        await world.start_controller()
        await world.until_active("waiting", epoch=2)
        assert [fake.boots for fake in waiting] == [1, 1]
        assert run_id in [view.id for view in world.it.registry.closed_runs]


@pytest.mark.parametrize("is_lost", [False, True], ids=["an engine", "a container"])
async def test_a_load_that_outlasts_the_freeze_keeps_nobody_waiting(autojump_clock: MockClock, is_lost: bool) -> None:
    policy = Policy(max_concurrent_runs=1, relaunch=RelaunchSettings(engine_relaunch_complete_timeout_sec=1700))
    async with open_world(policy) as world:
        slow, job = world.add_gang("slow"), world.add_gang("job")
        await world.until_active("slow")
        await world.until_active("job")
        for fake in slow:
            fake.change(load_sec=1500.0)
        slow[0].kill_engine()
        await world.until(lambda: [run.step for run in world.it.registry.recoveries()] == ["await"])
        if is_lost:
            job[1].kill_container()
        else:
            job[1].kill_engine()
        died = trio.current_time()
        await world.until_active("job", epoch=2)
        assert trio.current_time() - died < 30
        assert [fake.boots for fake in slow + job] == [1, 1, 1, 2 if is_lost else 1]
