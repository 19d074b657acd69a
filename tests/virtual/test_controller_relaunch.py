"""The controller against fake supervisors: cold start, relaunch, and every way out of it."""

from __future__ import annotations

from functools import partial
from itertools import groupby

import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import Instance
from controller.model.member import Member, Observation
from controller.model.relaunch.exchange import Answer, Request
from controller.model.relaunch.run import RunRecord
from controller.model.settings import Phase2Scope, RelaunchSettings
from controller.policy import Policy
from supervisor import wire
from supervisor.wire import EndpointStatus, ErrorCode
from tests.support.controller_world import RESTART_ALL, open_world
from tests.support.fake_supervisor import FakeSupervisor, Script

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def what(happened: list[tuple[str, str]]) -> list[str]:
    return [name for _, name in happened]


def all_serve(gang: list[FakeSupervisor]) -> bool:
    return all(fake.is_running and fake.status is EndpointStatus.NORMAL for fake in gang)


async def test_a_cold_start_assembles_and_becomes_active(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=3)
        instance = await world.until_active()
        assert instance.epoch == 1
        assert [member.node_rank for member in instance.members] == [0, 1, 2]
        assert [fake.endpoint_id for fake in gang] == [0, 1, 2]
        closed = await world.until_run_closed()
        assert (closed.reason, closed.outcome, closed.phase) == ("assemble", "done", 1)
        # The barrier: nobody starts before all are prepared.
        assert what(world.did("prepared", "start")) == ["prepared"] * 3 + ["start"] * 3


async def test_a_gang_waits_for_the_slowest_dependency(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.add_gang(size=1, job_name="quick")
        gang = world.add_gang(size=2)
        gang[1].change(prepare_sec=80.0)
        await world.until_active()
        # F11: prepared long before the other, and its freeze outlived the silence.
        assert what(world.did("exit:arbiter")) == []
        assert [fake.boots for fake in gang] == [1, 1]


@pytest.mark.seed("S01")
@pytest.mark.seed("S02")
@pytest.mark.seed("S04")
async def test_a_death_relaunches_all_engines_together(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        died = trio.current_time()
        gang[1].kill_engine()
        await world.until_active(epoch=2)
        happened = what(world.did("prepared", "start", since=died))
        assert happened == ["prepared"] * 2 + ["start"] * 2
        assert [fake.boots for fake in gang] == [1, 1]
        assert all_serve(gang)
        assert not any(fake.is_frozen for fake in gang)
        assert [answer.recovery for answer in gang[1].answers] == [wire.Recovery.ENGINE_RELAUNCH]
        closed = world.it.registry.closed_runs[0]
        assert (closed.reason, closed.outcome, closed.epoch) == ("fault", "done", 2)
        assert [step.name for step in closed.steps] == ["probe", "prepare", "start", "await"]


@pytest.mark.seed("S03")
async def test_a_member_that_is_unreachable_when_probed_means_phase_two(autojump_clock: MockClock) -> None:
    async with open_world(RESTART_ALL) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].change(hang=frozenset({"status"}))
        died = trio.current_time()
        gang[1].kill_engine()
        await world.until(lambda: bool(world.did("abort", "stop", since=died)))
        # Known hopeless after three tries: silent for 2 s each, 1 s apart.
        assert trio.current_time() - died <= 9
        assert world.did("prepare", since=died) == []
        gang[0].change(hang=frozenset())
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [2, 2]
        assert all_serve(gang)


@pytest.mark.seed("S03")
async def test_a_refused_connection_is_known_sooner(autojump_clock: MockClock) -> None:
    async with open_world(RESTART_ALL) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].change(container_restart_sec=None)
        gang[0].kill_container()
        died = trio.current_time()
        gang[1].kill_engine()
        await world.until(lambda: bool(world.did("abort", "stop", since=died)))
        assert trio.current_time() - died <= 3


async def test_a_node_manager_lost_while_loading_ends_the_wait(autojump_clock: MockClock) -> None:
    async with open_world(RESTART_ALL) as world:
        gang = world.add_gang(size=2, script=Script(load_sec=120))
        await world.until(lambda: len(world.did("start")) == 2)
        gang[0].change(container_restart_sec=None)
        gang[0].kill_container()
        killed = trio.current_time()
        closed = await world.until_run_closed()
        assert closed.phase == 2
        assert trio.current_time() - killed < 600
        await world.until(lambda: not gang[1].is_running or gang[1].boots == 2)


async def test_loading_without_progress_times_out(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[1].change(load_sec=100_000)
        gang[0].kill_engine()
        died = trio.current_time()
        await world.until(lambda: len(world.did("start", since=died)) == 2)
        await world.until(lambda: bool(world.did("stop", "abort", since=died)))
        assert 600 <= trio.current_time() - died < 700
        gang[1].change(load_sec=5)
        await world.until_active(epoch=3)
        assert [fake.boots for fake in gang] == [2, 2]


@pytest.mark.seed("S05")
async def test_only_who_was_not_started_is_aborted(autojump_clock: MockClock) -> None:
    policy = Policy(relaunch=RelaunchSettings(engine_relaunch_phase2_scope=Phase2Scope.UNDISPATCHED))
    async with open_world(policy) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[1].change(refuse={"start": ErrorCode.FAILED}, refuse_sec=1.0)
        died = trio.current_time()
        gang[0].kill_engine()
        await world.until(lambda: bool(world.did("abort", since=died)))
        assert world.did("abort", since=died) == [(gang[1].ip, "abort")]
        assert gang[0].is_frozen
        gang[1].change(refuse={})
        await world.until_active(epoch=3)
        assert all_serve(gang)


@pytest.mark.seed("S05")
async def test_a_failed_abort_is_an_error_that_names_the_supervisor(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].change(refuse={"prepare": ErrorCode.FAILED})
        gang[1].change(hang=frozenset({"abort", "stop"}))
        gang[1].kill_engine()
        await world.until_run_closed(2)
        errors = [event for event in world.it.events.since(0) if event.level == "error"]
        assert any(gang[1].ip in event.message and event.member for event in errors), errors


@pytest.mark.seed("S06")
async def test_a_deleted_instance_ends_its_run(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=30, container_restart_sec=None))
        await world.until(lambda: len(world.did("prepare")) == 2)
        body = wire.encode(wire.TerminateInstanceMsg(instance_id=world.instance().id, reason="scaled in"))
        answer = await world.client.post("/controller/terminate_instance", content=body)
        assert answer.status_code == 200
        closed = await world.until_run_closed()
        assert closed.outcome == "aborted"
        await world.until(lambda: not any(fake.is_running for fake in gang))
        assert len(world.did("abort")) == 2
        assert len(world.did("exit:stopped")) == 2
        assert world.it.registry.entries() == []


@pytest.mark.seed("S07")
async def test_a_cancelled_run_sends_abort_and_does_not_wait(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=3)
        await world.until_active()
        for fake in gang:
            fake.change(prepare_sec=60.0)
        gang[1].change(prepare_sec=60.0, hang=frozenset({"abort"}))
        died = trio.current_time()
        gang[0].kill_engine()
        await world.until(lambda: len(world.did("prepare", since=died)) == 3)
        stopping = trio.current_time()
        await world.stop_controller()
        assert trio.current_time() - stopping < 4
        aborted = {who for who, _ in world.did("abort", since=stopping)}
        assert aborted == {gang[0].ip, gang[2].ip}
        assert not gang[0].is_frozen
        assert not gang[2].is_frozen
        # S11: the lost abort expires by itself.
        await world.until(lambda: not gang[1].is_frozen, within=721)


@pytest.mark.seed("S09")
@pytest.mark.seed("S20")
async def test_with_the_switch_off_nobody_is_told_to_wait(autojump_clock: MockClock) -> None:
    policy = Policy(relaunch=RelaunchSettings(enable_engine_relaunch=False))
    async with open_world(policy) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        died = trio.current_time()
        gang[1].kill_engine()
        await world.until(lambda: bool(gang[1].answers))
        assert gang[1].answers[0].recovery is wire.Recovery.NONE
        assert not gang[1].is_frozen
        await world.until(lambda: gang[1].boots == 2)
        assert trio.current_time() - died < 30
        assert world.did("prepare", since=died)[:1] == []
        # The container fallback: both containers restart together, then they are assembled anew.
        await world.until_active(epoch=2)
        assert all_serve(gang)


@pytest.mark.seed("S28")
async def test_a_restarted_container_restarts_all_and_is_assembled_again(autojump_clock: MockClock) -> None:
    async with open_world(RESTART_ALL) as world:
        gang = world.add_gang(size=3)
        await world.until_active()
        gang[1].change(container_restart_sec=0.5)
        killed = trio.current_time()
        gang[1].kill_container()
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [2, 2, 2]
        assert all_serve(gang)
        statuses = [
            event.status for event in world.it.events.since(0) if event.kind == "instance" and event.status is not None
        ]
        assert statuses == ["active", "inactive", "active"] or statuses == [
            "active", "inactive", "initial", "active",
        ], statuses  # fmt: skip
        assert trio.current_time() - killed < 60


async def test_a_second_death_in_another_member_is_part_of_the_same_run(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].kill_engine()
        await trio.sleep(0.05)
        gang[1].kill_engine()  # F15
        await world.until_active(epoch=2)
        await trio.sleep(60)
        assert world.instance().epoch == 2
        assert [view.reason for view in world.it.registry.closed_runs] == ["fault", "assemble"]


async def test_two_instances_are_relaunched_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        one, two = world.add_gang("one"), world.add_gang("two", size=3)
        await world.until_active("one")
        await world.until_active("two")
        died = trio.current_time()
        one[0].kill_engine()
        two[2].kill_engine()
        await world.until_active("one", epoch=2)
        await world.until_active("two", epoch=2)
        assert trio.current_time() - died < 15
        assert all_serve(one + two)


async def test_runs_beyond_the_limit_wait_for_their_turn(autojump_clock: MockClock) -> None:
    async with open_world(Policy(max_concurrent_runs=1)) as world:
        gangs = [world.add_gang(f"job{number}") for number in range(3)]
        for number in range(3):
            await world.until_active(f"job{number}")
        died = trio.current_time()
        for gang in gangs:
            gang[0].kill_engine()
        for number in range(3):
            await world.until_active(f"job{number}", epoch=2)
        gangs_in_order = [who.rsplit(".", 1)[0] for who, _ in world.did("prepare", "start", since=died)]
        assert len([gang for gang, _ in groupby(gangs_in_order)]) == 3, gangs_in_order
        assert all(fake.boots == 1 for gang in gangs for fake in gang)


async def test_a_peer_of_the_reference_system_is_driven_by_what_it_knows(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(seed_only=True))
        await world.until_active()
        assert len(world.did("start")) == 2
        gang[0].kill_engine()
        await world.until(lambda: len(world.did("restart")) == 2)
        await world.until_active(epoch=2)


async def test_each_death_of_a_peer_counts_though_all_are_told_in_the_same_words(autojump_clock: MockClock) -> None:
    """It tells neither epoch nor process."""
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(seed_only=True))
        await world.until_active()
        for epoch in (2, 3):
            gang[0].kill_engine()
            await world.until_active(epoch=epoch)
            await trio.sleep(60)
        assert [answer.recovery for answer in gang[0].answers] == [wire.Recovery.ENGINE_RELAUNCH] * 2
        assert [fake.boots for fake in gang] == [1, 1]


async def test_a_restart_whose_answer_is_lost_is_not_sent_twice_to_a_peer(autojump_clock: MockClock) -> None:
    """409 to the retry of our own request: it was carried out the first time."""
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(seed_only=True, load_sec=60.0))
        await world.until_active()
        gang[1].change(spawn_sec=9.8)  # it answers after the spawn, later than we wait
        gang[0].kill_engine()
        await world.until(lambda: bool(gang[1].did("refused:restart:busy")))
        await world.until_active(epoch=2)
        assert [len(fake.did("restart")) for fake in gang] == [1, 1]
        assert [fake.boots for fake in gang] == [1, 1]


async def test_a_gang_with_one_peer_is_driven_by_what_all_know(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        gang[1].change(seed_only=True)
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: len(world.did("restart")) == 2)
        await world.until_active(epoch=2)
        assert world.did("prepare") == []


async def test_peers_that_lose_one_of_them_restart_together(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(seed_only=True))
        await world.until_active()
        gang[1].change(container_restart_sec=0.5)
        gang[1].kill_container()
        await world.until(lambda: gang[0].boots == 2)
        assert gang[0].did("stop")
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [2, 2]


async def test_peers_that_were_not_told_to_restart_are_told_to_give_up_their_freeze(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(seed_only=True))
        await world.until_active()
        gang[1].change(refuse={"restart": ErrorCode.FAILED})
        gang[1].kill_engine()
        await world.until(lambda: bool(gang[1].did("abort")))
        await world.until(lambda: gang[1].boots == 2)
        gang[1].change(refuse={})
        await world.until_active(epoch=2)


async def test_an_operator_relaunches_and_aborts(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=20))
        instance = await world.until_active()
        answer = await world.client.post(f"/v1/instances/{instance.id}/relaunch", json={"reason": "new driver"})
        assert answer.status_code == 202
        location = answer.headers["Location"]
        again = await world.client.post(f"/v1/instances/{instance.id}/relaunch")
        assert again.status_code == 409
        await world.until(lambda: len(world.did("prepare")) == 4)
        assert (await world.client.post(f"{location}/abort")).status_code == 202
        await world.until_run_closed(2)
        view = (await world.client.get(location)).json()
        assert (view["reason"], view["outcome"]) == ("operator", "aborted")
        assert (await world.client.post(f"{location}/abort")).status_code == 409
        # Given up means given up: no other run is opened for these engines, their containers restart.
        await world.until(lambda: all(fake.boots == 2 for fake in gang))
        await world.until_active(epoch=2)


async def test_an_order_in_an_answer_reaches_whom_we_cannot_reach(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        # F21: no request of ours gets through to it, its heartbeats go on arriving.
        gang[0].change(hang=frozenset({"status", "abort", "stop"}))
        gang[1].kill_engine()
        await world.until(lambda: gang[0].boots == 2 and gang[1].boots == 2)
        assert world.did("order:leave", "order:abort")[0][0] == gang[0].ip
        gang[0].change(hang=frozenset())
        await world.until_active(epoch=2)


async def test_a_supervisor_that_obeys_a_higher_term_is_outbid_and_not_fought(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].highest_term = 9
        gang[1].kill_engine()
        await world.until_active(epoch=2)
        assert world.it.registry.terms.current >= 10
        assert [fake.boots for fake in gang] == [1, 1]


async def test_a_term_learnt_in_the_middle_of_a_run_suspends_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=20))
        await world.until(lambda: len(world.did("prepare")) == 2)
        gang[0].highest_term = 9
        await world.until_active()
        assert world.it.registry.terms.current == 10
        assert any("stepping down" in event.message for event in world.it.events.since(0))


async def test_a_report_that_is_repeated_is_told_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        report = wire.SoftwareFaultMsg(
            exception_type="exited",
            exception_message="killed",
            engine_id=1,
            engine_status=wire.EngineHealth.DEAD,
            pod_ip=gang[1].ip,
            job_name="job",
            epoch=1,
            boot_id=gang[1].boot_id,
            pid=4711,
        )
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(
                    partial(world.client.post, "/controller/report_software_fault", content=wire.encode(report))
                )
        told = [event for event in world.it.events.since(0) if event.kind == "fault"]
        assert len(told) == 1
        await world.until_active(epoch=2)
        assert len(world.it.registry.closed_runs) == 2


@pytest.mark.parametrize("killed_before", [False, True], ids=["told at once", "told while a run is open"])
async def test_a_device_that_is_gone_restarts_the_containers_and_nothing_in_place(
    killed_before: bool, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=5))
        await world.until_active()
        report = wire.SoftwareFaultMsg(
            exception_type="device_fault",
            exception_message="hardware: engine: DeviceHealthProbe nvidia-smi: exit status 9",
            engine_id=1,
            engine_status=wire.EngineHealth.DEAD,
            pod_ip=gang[1].ip,
            job_name="job",
            epoch=1,
            boot_id=gang[1].boot_id,
            pid=4711,
            category=wire.FaultCategory.HARDWARE,
        )
        if killed_before:
            gang[1].kill_engine()
            await world.until(lambda: len(world.did("prepare")) > 2)  # those of the cold start were two
        answer = await world.client.post("/controller/report_software_fault", content=wire.encode(report))
        assert wire.decode(wire.FaultAnswer, answer.content).recovery is wire.Recovery.NONE
        await world.until(lambda: [fake.boots for fake in gang] == [2, 2])
        closed = world.it.registry.closed_runs[0]
        assert (closed.outcome, closed.phase) == ("phase2", 2)
        assert "hardware" in closed.message
        await world.until_active(epoch=2)


async def test_an_answer_that_a_heartbeat_has_overtaken_takes_nobody_out_of_routing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        world.add_gang(size=2)
        decided = trio.Event()
        supervisors, store = world.it.supervisors, world.store
        ask, save_active = supervisors.ask, store.save_active

        async def slow_to_arrive(member: Member, request: Request, timeout_sec: float) -> Answer:
            answer = await ask(member, request, timeout_sec)
            if isinstance(answer, Observation) and answer.step is wire.Step.LOADING:
                await decided.wait()
            return answer

        async def slow_to_be_written(record: RunRecord, instance: Instance) -> None:
            decided.set()
            await trio.sleep(0.05)
            await save_active(record, instance)

        monkeypatch.setattr(supervisors, "ask", slow_to_arrive)
        monkeypatch.setattr(store, "save_active", slow_to_be_written)
        await world.until_active()
        assert decided.is_set()
        await trio.sleep(30)
        told = [event.status for event in world.it.events.since(0) if event.kind == "instance"]
        assert told == ["active"], "C6: no oscillation"


async def test_a_budget_that_is_reset_in_the_middle_of_a_run_is_whole_for_what_dies_in_it(
    autojump_clock: MockClock,
) -> None:
    policy = Policy(relaunch=RelaunchSettings(engine_relaunch_max_attempts=2, engine_relaunch_backoff_sec=1))
    async with open_world(policy) as world:
        gang = world.add_gang(size=2, script=Script(load_sec=20.0))
        instance = await world.until_active()
        gang[0].kill_engine()
        await world.until_active(epoch=2)
        gang[0].kill_engine()
        await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["await"])
        assert world.it.registry.budgets.of(instance).runs == 2
        assert (await world.client.post(f"/v1/instances/{instance.id}/reset-failed")).is_success
        gang[1].kill_engine()
        await world.until_active(epoch=4)
        assert [fake.boots for fake in gang] == [1, 1], "without a reset their containers would have restarted"
        assert world.it.registry.budgets.of(instance).runs == 1
