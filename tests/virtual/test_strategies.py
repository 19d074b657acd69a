"""Strategies beside the relaunch, over fake supervisors: what they ask, what they leave, how they give way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from trio.testing import MockClock

from controller.model.fault import FaultLevel
from controller.model.instance import InstanceStatus
from controller.model.settings import RelaunchSettings, StrategySettings
from controller.policy import Policy
from controller.recovery import Recovery
from controller.store.base import CannotWrite
from supervisor import wire
from tests.support.cancel_sweep import sweep
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor, Script

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

TRANSIENT = 0x00F1FEF5
UCE = 0x80E01801
LOST = 0x80DE1801
SWITCHES = frozenset({"enable_token_reinference", "enable_uce_recovery"})
P2D = Policy(strategies=StrategySettings(switches=SWITCHES | {"enable_scale_p2d"}))
NO_RELAUNCH = Policy(relaunch=RelaunchSettings(enable_engine_relaunch=False))
RECOVERS = Script(recover_sec=2.0)


async def report(world: World, *, code: int = TRANSIENT, level: str = "L2", **where: str) -> httpx.Response:
    where = where or {"pod_ip": world.gangs["job"][0].ip}
    message = {"fault_code": code, "fault_level": level, "message": "seen by the test", **where}
    return await world.client.post("/controller/report_hardware_fault", json=message)


async def answered(world: World, *, code: int = TRANSIENT, level: str = "L2", **where: str) -> wire.FaultAnswer:
    response = await report(world, code=code, level=level, **where)
    assert response.status_code == 200, response.text
    return wire.decode(wire.FaultAnswer, response.content)


def outcomes(world: World) -> list[tuple[str, str | None]]:
    """Of all recoveries that have ended, in order; the first is the gang's own assembly."""
    return [(view.strategy, view.outcome) for view in reversed(world.it.registry.closed_runs)]


@asynccontextmanager
async def serving(
    policy: Policy | None = None, script: Script = RECOVERS, role: str = "union"
) -> AsyncIterator[tuple[World, list[FakeSupervisor]]]:
    async with open_world(policy) as world:
        gang = world.add_gang(script=script, role=role)
        await world.until_active()
        yield world, gang


# --- the engines recover themselves ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, name, told", [(TRANSIENT, "token_reinference", "token_reinference"), (UCE, "uce_recovery", "uce")]
)
async def test_every_engine_is_asked_to_recover_itself_and_none_is_stopped(
    autojump_clock: MockClock, code: int, name: str, told: str
) -> None:
    async with serving() as (world, gang):
        answer = await answered(world, code=code)
        assert (answer.recovery, answer.strategy) == (wire.Recovery.PENDING, name)
        assert answer.run_id is not None
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert (view["recovery"]["strategy"], view["recovery"]["step"]) == (name, "running")
        await world.until(lambda: (name, "done") in outcomes(world), within=10)
        assert {who for who, _ in world.did(f"recover:{told}:{code:#x}")} == {fake.ip for fake in gang}
        assert [len(fake.did("prepare")) for fake in gang] == [1, 1], "of the assembly"
        assert world.instance().status is InstanceStatus.ACTIVE
        # The fault is present still, and it was answered: nothing begins anew.
        assert (await answered(world, code=code)).recovery is wire.Recovery.NONE
        await trio.sleep(60)
        assert len(outcomes(world)) == 2


async def test_a_journal_that_cannot_be_written_makes_a_strategy_wait_and_ends_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as (world, _):
        take_term, tries = world.store.take_term, 0

        async def full_at_first(at_least: int) -> int:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise CannotWrite("the disk is full")
            return await take_term(at_least)

        monkeypatch.setattr(world.store, "take_term", full_at_first)
        world.it.registry.terms.learn(41)
        await report(world)
        await world.until(lambda: ("token_reinference", "done") in outcomes(world), within=20)
        assert (tries, world.it.registry.terms.current) == (3, 42)


async def test_one_that_takes_long_is_asked_again_until_the_limit(autojump_clock: MockClock) -> None:
    async with serving(script=Script(recover_sec=35.0)) as (world, gang):
        await report(world)
        await world.until(lambda: ("token_reinference", "done") in outcomes(world), within=40)
        gang[1].change(recover_sec=500.0)
        began = trio.current_time()
        await report(world, code=0x08520003)
        await world.until(lambda: ("token_reinference", "failed") in outcomes(world), within=100)
        assert trio.current_time() - began >= 90


@pytest.mark.seed("S08")
@pytest.mark.parametrize(
    "changes, why",
    [
        ({"recover_fails": True}, "answers failed"),
        ({"hang": frozenset({"recover"})}, "no answer within 12 s"),
        ({"recover_sec": None}, "answers unsupported"),
    ],
)
async def test_S08_one_member_that_cannot_means_the_relaunch_and_its_success_clears_the_mark(
    autojump_clock: MockClock, changes: dict[str, object], why: str
) -> None:
    async with serving() as (world, gang):
        gang[1].change(**changes)
        await report(world)
        await world.until(lambda: ("token_reinference", "failed") in outcomes(world), within=15)
        assert why in world.instance().prev_strategy_failed
        await world.until_active(epoch=2)
        assert outcomes(world)[1:] == [("token_reinference", "failed"), ("engine_relaunch", "done")]
        assert world.it.registry.closed_runs[0].reason == "escalation"
        assert world.instance().prev_strategy_failed == ""
        assert [fake.boots for fake in gang] == [1, 1]


@pytest.mark.seed("S08")
async def test_S08_without_the_switch_nothing_follows_on_a_failure(autojump_clock: MockClock) -> None:
    async with serving(NO_RELAUNCH, Script()) as (world, _):
        await report(world)
        await trio.sleep(60)
        assert outcomes(world)[1:] == [("token_reinference", "failed")]
        assert "RecoverHttp" in world.instance().prev_strategy_failed
        assert (await answered(world, code=0x08520003)).recovery is wire.Recovery.NONE


# --- deaths meanwhile --------------------------------------------------------------------------------------------


async def test_a_death_meanwhile_waits_is_not_lost_and_is_relaunched(autojump_clock: MockClock) -> None:
    async with serving(script=Script(recover_sec=30.0)) as (world, gang):
        await report(world)
        await trio.sleep(1)
        gang[1].kill_engine()
        await world.until(lambda: bool(gang[1].answers))
        assert gang[1].answers[0].recovery is wire.Recovery.PENDING
        assert gang[1].answers[0].run_id == gang[1].answers[0].run_id is not None
        await world.until_active(epoch=2)
        assert outcomes(world)[1:] == [("token_reinference", "failed"), ("engine_relaunch", "done")]
        assert [fake.boots for fake in gang] == [1, 1]


async def test_whoever_waits_for_a_strategy_that_nothing_follows_is_let_go(autojump_clock: MockClock) -> None:
    async with serving(NO_RELAUNCH, Script(recover_sec=30.0)) as (world, gang):
        await report(world)
        await trio.sleep(1)
        gang[1].kill_engine()
        await world.until(lambda: gang[1].is_frozen, within=5)
        await world.until(lambda: bool(gang[1].did("order:abort")), within=10)
        assert gang[1].answers[0].recovery is wire.Recovery.PENDING
        # Its arbiter counts, as it does without any strategy.
        await world.until(lambda: bool(gang[1].did("exit:arbiter")), within=30)


async def test_a_container_that_restarts_meanwhile_is_the_relaunch_s(autojump_clock: MockClock) -> None:
    async with serving(script=Script(recover_sec=30.0, container_restart_sec=0.5)) as (world, gang):
        await report(world)
        await trio.sleep(1)
        gang[1].kill_container()
        await world.until(lambda: ("token_reinference", "failed") in outcomes(world), within=15)
        await world.until_active(epoch=2)


# --- levels ------------------------------------------------------------------------------------------------------


async def test_a_graver_fault_cancels_the_strategy_awaits_its_clean_up_and_begins_its_own(
    autojump_clock: MockClock,
) -> None:
    async with serving(P2D, Script(recover_sec=50.0), role="decode") as (world, _):
        world.add_gang("prefill-a", size=1, role="prefill")
        world.add_gang("prefill-b", size=1, role="prefill")
        await world.until_active("prefill-a")
        await world.until_active("prefill-b")
        closed = len(outcomes(world))
        lesser = await answered(world)
        await trio.sleep(5)
        graver = await answered(world, code=LOST, level="L6")
        assert (lesser.strategy, graver.recovery) == ("token_reinference", wire.Recovery.PENDING)
        await world.until(lambda: ("scale_p2d", "done") in outcomes(world))
        assert outcomes(world)[closed : closed + 2][0] == ("token_reinference", "aborted")
        assert ("scale_p2d", "done") in outcomes(world)[closed + 1 :]
        assert world.instance().prev_strategy_failed == "", "what was preempted has not failed"


async def test_F20_a_graver_fault_while_a_run_prepares_waits_for_its_end(autojump_clock: MockClock) -> None:
    script = Script(recover_sec=1.0, prepare_sec=20.0)
    async with serving(P2D, script, role="decode") as (world, gang):
        for name in ("prefill-a", "prefill-b"):
            world.add_gang(name, size=1, role="prefill")
            await world.until_active(name)
        gang[0].kill_engine()
        await world.until(lambda: len(world.did("prepare")) == 6)
        await answered(world, code=LOST, level="L6")
        await world.until(lambda: ("scale_p2d", "done") in outcomes(world))
        ended = [strategy for strategy, _ in outcomes(world)]
        assert ended[-1 - ended[::-1].index("scale_p2d") - 1] == "engine_relaunch"
        assert [fake.boots for fake in gang] == [1, 1]
        assert world.instance().epoch == 2


async def test_a_run_that_has_prepared_nobody_gives_way(autojump_clock: MockClock) -> None:
    async with serving(P2D, role="decode") as (world, gang):
        for name in ("prefill-a", "prefill-b"):
            world.add_gang(name, size=1, role="prefill")
            await world.until_active(name)
        gang[1].change(hang=frozenset({"status"}))
        gang[0].kill_engine()
        await world.until(lambda: bool(gang[1].did("hangs:status")))
        await answered(world, code=LOST, level="L6")
        await world.until(lambda: ("scale_p2d", "done") in outcomes(world), within=10)
        assert ("engine_relaunch", "aborted") in outcomes(world)
        gang[1].change(hang=frozenset())
        await world.until(lambda: world.instance().epoch >= 2 and all(fake.engine_alive for fake in gang))


# --- scale P2D ---------------------------------------------------------------------------------------------------


async def test_prefill_instances_are_given_up_and_one_is_kept(autojump_clock: MockClock) -> None:
    async with serving(P2D, role="decode") as (world, gang):
        prefills = {name: world.add_gang(name, size=1, role="prefill")[0] for name in ("prefill-a", "prefill-b")}
        for name, fake in prefills.items():
            fake.change(container_restart_sec=None)
            await world.until_active(name)
        answer = await answered(world, code=LOST, level="L5", pod_ip=gang[1].ip)
        assert (answer.recovery, answer.strategy) == (wire.Recovery.PENDING, "scale_p2d")
        assert world.instance().status is InstanceStatus.INACTIVE
        await world.until(lambda: ("scale_p2d", "done") in outcomes(world), within=40)
        await world.until(lambda: sum(fake.is_running for fake in prefills.values()) == 1, within=10)
        # A second device of it: there is only one prefill left, which stays, and the engines are relaunched.
        await answered(world, code=LOST + 1, level="L5", pod_ip=gang[0].ip)
        await world.until(lambda: ("scale_p2d", "failed") in outcomes(world), within=40)
        assert sum(fake.is_running for fake in prefills.values()) == 1


# --- the report --------------------------------------------------------------------------------------------------


async def test_a_separated_instance_is_out_of_routing_until_it_is_reported_healthy(autojump_clock: MockClock) -> None:
    async with serving() as (world, gang):
        answer = await answered(world, code=LOST, level="SeparateNPU", pod_ip=gang[1].ip)
        assert (answer.recovery, answer.strategy) == (wire.Recovery.NONE, None)
        await trio.sleep(60)
        assert world.instance().status is InstanceStatus.INACTIVE
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert f"{gang[1].ip}:1026 has fault 0x80de1801 of level L6" in view["reason"]
        await answered(world, code=0, level="HEALTHY", pod_ip=gang[1].ip)
        assert world.instance().status is InstanceStatus.ACTIVE
        statuses = [event.status for event in world.it.events.since(0) if event.kind == "instance"]
        assert statuses == ["active", "inactive", "active"]


async def test_a_node_is_all_the_pods_on_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        one, other = world.add_gang("one", node_name="worker-7"), world.add_gang("other", node_name="worker-8")
        for name in ("one", "other"):
            await world.until_active(name)
        await answered(world, code=LOST, level="L4", node_name="worker-7")
        assert world.instance("one").status is InstanceStatus.INACTIVE
        assert len(world.instance("one").faults) == len(one)
        assert world.instance("other").status is InstanceStatus.ACTIVE
        assert (await report(world, code=LOST, level="L4", node_name="worker-9")).status_code == 503
        assert other[0].boots == 1


@pytest.mark.parametrize(
    "code, level, said",
    [
        (TRANSIENT, "grave", "fault_level: 'grave'"),
        (0, "L2", "fault_code: 0"),
        (1 << 40, "L2", "fault_code: 1099511627776"),
    ],
)
async def test_what_cannot_be_a_device_fault_is_answered_400_naming_the_field(
    autojump_clock: MockClock, code: int, level: str, said: str
) -> None:
    async with serving() as (world, _):
        answer = await report(world, code=code, level=level)
        assert answer.status_code == 400
        assert said in wire.decode(wire.ErrorBody, answer.content).message
        nowhere = {"fault_code": 1, "fault_level": "L4"}
        answer = await world.client.post("/controller/report_hardware_fault", json=nowhere)
        assert answer.status_code == 400


# --- operators ---------------------------------------------------------------------------------------------------


async def test_an_operator_aborts_a_strategy_as_a_run_and_it_is_not_begun_anew(autojump_clock: MockClock) -> None:
    async with serving(script=Script(recover_sec=50.0)) as (world, _):
        answer = await answered(world)
        response = await world.client.post(f"/v1/relaunches/{answer.run_id}/abort", json={"reason": "not now"})
        assert response.status_code == 202
        await world.until(lambda: ("token_reinference", "aborted") in outcomes(world), within=1)
        await trio.sleep(60)
        assert len(outcomes(world)) == 2
        (view,) = [view for view in world.it.registry.closed_runs if view.id == answer.run_id]
        assert view.message == "not now"


# --- cancelled at every checkpoint -------------------------------------------------------------------------------


@asynccontextmanager
async def with_its_own_hand() -> AsyncIterator[World]:
    async with serving(P2D, Script(recover_sec=12.0, freeze_sec=30.0), role="decode") as (world, _):
        for name in ("prefill-a", "prefill-b"):
            world.add_gang(name, size=1, role="prefill", script=Script(container_restart_sec=None))
            await world.until_active(name)
        world.pause_center()
        yield world


def recover_by_hand(code: int, level: str) -> Callable[[World], Awaitable[None]]:
    async def operation(world: World) -> None:
        await answered(world, code=code, level=level)
        recovery = world.it.registry.opened.popleft()
        world.notes["recovery"] = recovery
        await world.it.center.recover(recovery)

    return operation


async def handed_back(world: World, cancelled: bool) -> None:
    recovery = world.notes.get("recovery")
    if recovery is None:
        return
    assert isinstance(recovery, Recovery)
    assert recovery not in world.it.registry.recoveries(), "C1: the instance is handed back"
    closed = {view.id: view for view in world.it.registry.closed_runs}
    assert closed[recovery.run_id].outcome in ({"aborted", "done"} if cancelled else {"done"})
    assert not any(fake.is_frozen for fake in world.gangs["job"])
    assert recovery.level in (FaultLevel.L2, FaultLevel.L6)


@pytest.mark.seed("S33")
def test_the_engines_own_recovery_may_be_cancelled_at_every_checkpoint() -> None:
    assert sweep(with_its_own_hand, recover_by_hand(TRANSIENT, "L2"), handed_back) > 30


@pytest.mark.seed("S33")
def test_scale_p2d_may_be_cancelled_at_every_checkpoint() -> None:
    assert sweep(with_its_own_hand, recover_by_hand(LOST, "L6"), handed_back) > 10
