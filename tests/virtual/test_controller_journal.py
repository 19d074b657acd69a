"""A controller with a journal that is stopped, killed, or cannot write: what it knows then, and what it does not do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.journal import Journal
from controller.model.instance import Hold, Holder, InstanceStatus, hold
from controller.model.relaunch.promise import promise
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunRecord, RunStep
from controller.store.base import CannotWrite
from supervisor import wire
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import Script
from tests.support.killed_journal import Writer, journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

SLOW = Script(prepare_sec=5.0, load_sec=10.0)


async def stopped_for(world: World, seconds: float) -> float:
    """Returns when the new life began."""
    await world.stop_controller()
    await trio.sleep(seconds)
    await world.start_controller()
    return trio.current_time()


async def test_a_healthy_gang_is_known_again_and_nobody_registers(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=3)
        before = await world.until_active()
        last_event = world.it.events.last_id
        restarted = await stopped_for(world, 20)
        after = world.instance()
        assert (after.id, after.epoch, after.status) == (before.id, before.epoch, InstanceStatus.ACTIVE)
        await trio.sleep(120)
        assert world.instance().status is InstanceStatus.ACTIVE
        assert [event.message for event in world.it.events.since(last_event) if event.kind == "instance"] == []
        assert world.did("prepare", "start", "stop", "abort", "reregister", since=restarted) == []
        assert [(fake.registrations, fake.reregistrations) for fake in gang] == [(1, 0)] * 3
        gang[1].kill_engine()
        assert (await world.until_active(epoch=2)).epoch == 2


async def test_F7_who_registered_before_the_restart_does_not_register_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2)
        late = gang[1]
        world.network.partition(late.ip, "controller")
        await world.until(lambda: gang[0].registrations == 1)
        await stopped_for(world, 5)
        world.network.heal(late.ip, "controller")
        world.network.heal("controller", late.ip)
        await world.until_active()
        assert [fake.registrations for fake in gang] == [1, 1]


@pytest.mark.parametrize("step", [RunStep.PREPARE, RunStep.START, RunStep.AWAIT])
async def test_F17_a_run_goes_on_under_the_next_controller(
    step: RunStep, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """A rolling update of the controller: nobody is told to abort, and the run keeps its id and its epoch."""
    script = Script(prepare_sec=5.0, spawn_sec=5.0, load_sec=20.0)
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2, script=script)
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [step])
        (run,) = [recovery.run_id for recovery in world.it.registry.recoveries()]
        restarted = await stopped_for(world, 3)
        assert [recovery.run_id for recovery in world.it.registry.recoveries()] == [run]
        await world.until_active(epoch=2)
        closed = world.it.registry.closed_runs[0]
        assert (closed.id, closed.epoch, closed.outcome) == (run, 2, "done")
        assert world.did("abort", "stop", since=restarted - 3) == []
        assert len(world.did("start", since=1.0)) == 4, "two for the cold start, two for the run"
        assert {fake.boots for fake in gang} == {1}


async def test_a_run_whose_freezes_ended_meanwhile_ends_in_new_containers(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2, script=SLOW)
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [RunStep.PREPARE])
        await stopped_for(world, 300)
        await world.until_active(epoch=2)
        await trio.sleep(60)
        assert world.it.registry.recoveries() == []
        assert all(fake.epoch == world.instance().epoch for fake in gang)


async def test_closed_runs_and_events_outlive_the_controller(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        gang[0].kill_engine()
        await world.until_active(epoch=2)
        shown = wire.decode(wire.RelaunchesView, (await world.client.get("/v1/relaunches")).content).relaunches
        events = world.it.events.since(0)
        seen = events[-1].id
        await stopped_for(world, 5)
        again = wire.decode(wire.RelaunchesView, (await world.client.get("/v1/relaunches")).content).relaunches
        assert [(run.id, run.outcome, len(run.steps)) for run in again] == [
            (run.id, run.outcome, len(run.steps)) for run in shown
        ]
        assert world.it.events.since(0)[: len(events)] == events
        gang[1].kill_engine()
        await world.until_active(epoch=3)
        later = world.it.events.since(seen)
        assert later
        assert min(event.id for event in later) > seen
        assert not any(event.kind == "gap" for event in later)


async def test_a_client_of_events_comes_back_to_the_next_life(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        world.add_gang(size=2)
        await world.until_active()
        headers = {"Accept": "text/event-stream"}
        told = (await world.client.get("/v1/events?follow=0", headers=headers)).text
        last = told.strip().rsplit("id: ", 1)[1].split("\n")[0]
        await stopped_for(world, 5)
        back = await world.client.get("/v1/events?follow=0", headers=headers | {"Last-Event-ID": last})
        assert [line for line in back.text.splitlines() if line and line in told.splitlines()] == []


# --- what people have decided -------------------------------------------------------------------------------


async def test_what_an_operator_gave_up_stays_given_up(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=1, script=Script(prepare_sec=5.0, container_restart_sec=None))
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: bool(world.it.registry.recoveries()))
        run_id = world.it.registry.recoveries()[0].run_id
        await world.client.post(f"/v1/relaunches/{run_id}/abort", content=b"{}")
        await world.until_run_closed(2)
        assert world.instance().abandoned_epoch == 1
        await stopped_for(world, 1)
        assert world.instance().abandoned_epoch == 1


async def test_an_instance_that_is_to_end_ends(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2, script=Script(prepare_sec=5.0, container_restart_sec=None))
        instance = await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [RunStep.PREPARE])
        message = wire.TerminateInstanceMsg(instance_id=instance.id, reason="no longer needed")
        answer = await world.client.post("/controller/terminate_instance", content=wire.encode(message))
        assert answer.status_code == 200
        world.kill_controller()
        await world.until_ended()
        await world.start_controller()
        await world.until(lambda: world.it.registry.entries() == [])
        await world.until(lambda: not any(fake.is_running for fake in gang))


def is_after(world: World, epoch: int) -> bool:
    return world.instance().highest_epoch > epoch


async def test_the_budget_is_not_given_anew_by_a_restart(autojump_clock: MockClock, tmp_path: Path) -> None:
    """F13, with a controller that is restarted between all of them."""
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2)
        for epoch in (1, 2, 3):
            await world.until_active(epoch=epoch)
            gang[0].kill_engine()
            await world.until(partial(is_after, world, epoch))
            await stopped_for(world, 1)
        await world.until_active(epoch=4)
        gang[0].kill_engine()
        await world.until(lambda: any(fake.boots > 1 for fake in gang))


# --- a journal that cannot be written -----------------------------------------------------------------------


async def test_on_a_full_disk_nothing_is_commanded_and_what_serves_goes_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        healthy, sick = world.add_gang("healthy", size=2), world.add_gang("sick", size=2, script=SLOW)
        await world.until_active("healthy")
        await world.until_active("sick")
        writer.full = True
        began = trio.current_time()
        sick[0].kill_engine()
        newcomer = world.add_gang("newcomer", size=1)
        await trio.sleep(30)
        assert world.did("prepare", "start", "stop", since=began) == []
        assert world.instance("healthy").status is InstanceStatus.ACTIVE
        assert newcomer[0].registrations == 0, "a registration that is not written is not acknowledged"
        told = [event for event in world.it.events.since(0) if event.reason == "journal"]
        assert [event.level for event in told] == ["error"], "once, however often it was tried"
        assert "podvisor_journal_writable 0.0" in (await world.client.get("/metrics", timeout=None)).text
        writer.full = False
        await world.until_active("sick", epoch=2)
        await world.until_active("newcomer")
        assert {fake.boots for fake in (*healthy, *sick)} == {1}
        told = [event for event in world.it.events.since(0) if event.reason == "journal"]
        assert [event.message for event in told][1:] == ["the journal can be written again"]
        assert "podvisor_journal_writable 1.0" in (await world.client.get("/metrics", timeout=None)).text


async def test_on_a_full_disk_too_a_dead_engine_is_out_of_routing_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        writer.full = True
        gang[0].kill_engine()
        await world.until(lambda: world.instance().status is InstanceStatus.INACTIVE, within=2)
        writer.full = False
        await world.until_active(epoch=2)


async def test_what_dies_while_its_success_cannot_be_written_is_not_put_into_routing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        gang = world.add_gang(size=2, script=Script(load_sec=30.0))
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [RunStep.AWAIT])
        writer.full = True
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [RunStep.CLOSED])
        gang[1].kill_engine()
        await trio.sleep(10)
        seen = world.it.events.last_id
        writer.full = False
        await world.until_active(epoch=3)
        serving = [event.epoch for event in world.it.events.since(seen) if event.message.startswith("inactive -> act")]
        assert serving == [3]
        assert [fake.boots for fake in gang] == [1, 1]


async def test_on_a_full_disk_a_budget_is_whole_again_and_silence_is_noticed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        gang, other = world.add_gang(), world.add_gang("other", script=Script(container_restart_sec=None))
        await world.until_active("other")
        await world.until_active()
        gang[0].kill_engine()
        serving = await world.until_active(epoch=2)
        writer.full = True
        await world.until(lambda: world.it.registry.budgets.of(serving).runs == 0)
        for fake in other:
            fake.kill_container()
        await world.until(lambda: world.instance("other").status is InstanceStatus.INACTIVE, within=60)
        writer.full = False
        await world.until(lambda: not world.it.registry.unsaved)
        await stopped_for(world, 1)
        assert world.it.registry.budgets.spent() == ()


async def test_what_a_run_has_left_is_written_before_the_first_row_of_the_next_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written after it, the end of the one would be taken for the end of the other."""
    async with open_world() as world:
        world.add_gang(size=1)
        instance = await world.until_active()
        written: list[str] = []
        full = True

        async def save(row: RunRecord) -> None:
            if full:
                raise CannotWrite("the disk is full; make room")
            written.append(row.run_id)

        monkeypatch.setattr(world.store, "save_run", save)
        cause = Cause(RunReason.OPERATOR, "asked by an operator")
        first = promise(instance, cause, run_id="first", term=1, now=trio.current_time())
        world.it.registry.to_be_kept(replace(first, outcome=Outcome.ABORTED))
        await trio.sleep(1)
        full = False
        await Journal(world.store, world.it.registry, world.it.events).save_run(replace(first, run_id="second"))
        await trio.sleep(10)
        assert written == ["first", "second"]


@pytest.mark.parametrize("path", ["instances/{}/reset-failed", "reset-failed"])
async def test_a_reset_that_could_not_be_written_is_written_as_soon_as_it_can_be(
    autojump_clock: MockClock, tmp_path: Path, path: str
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        gangs = [world.add_gang(job, size=1) for job in ("one", "two")]
        for job, gang in zip(("one", "two"), gangs, strict=True):
            await world.until_active(job)
            gang[0].kill_engine()
            entry = world.it.registry.entry((await world.until_active(job, epoch=2)).id)
            world.it.registry.change(entry, hold(entry.instance, Hold(Holder.FLEET, "too many others failed")))
        await world.until(lambda: not world.it.registry.unsaved)
        writer.full = True
        asked = [path.format(world.instance(job).id) for job in ("one", "two")]
        for each in dict.fromkeys(asked):
            assert (await world.client.post(f"/v1/{each}", timeout=None)).status_code == 503
        writer.full = False
        await world.until(lambda: not world.it.registry.unsaved)
        await stopped_for(world, 1)
        assert world.it.registry.budgets.spent() == ()
        assert [world.instance(job).held for job in ("one", "two")] == [None, None]


async def test_a_controller_with_a_full_disk_still_stops_in_time(autojump_clock: MockClock, tmp_path: Path) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        writer.full = True
        gang[0].kill_engine()
        await trio.sleep(3)
        stopping = trio.current_time()
        await world.stop_controller()
        assert trio.current_time() - stopping < 10
        writer.full = False
        await world.start_controller()
        await world.until_active(epoch=2)


# --- a store that was set back ------------------------------------------------------------------------------


async def test_F18_a_restored_volume_relaunches_nothing_that_serves(autojump_clock: MockClock, tmp_path: Path) -> None:
    """The backup was taken in the middle of a run; three epochs later it is put back."""
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2, script=SLOW)
        await world.until_active()
        gang[0].kill_engine()
        await world.until(lambda: [r.step for r in world.it.registry.recoveries()] == [RunStep.PREPARE])
        world.kill_controller()
        await world.until_ended()
        backup = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        await world.start_controller()
        await world.until_active(epoch=2)
        await trio.sleep(700)
        gang[1].kill_engine()
        instance = await world.until_active(epoch=3)
        await world.stop_controller()
        for path in tmp_path.iterdir():
            path.unlink()
        for name, body in backup.items():
            (tmp_path / name).write_bytes(body)
        await world.start_controller()
        restored = trio.current_time()
        await world.until_active(epoch=3)
        await trio.sleep(60)
        assert world.did("prepare", "start", "stop", "gave up", since=restored) == []
        assert world.instance().epoch == instance.epoch
        assert world.it.registry.closed_runs[0].outcome == "obsolete"
        gang[0].kill_engine()
        assert (await world.until_active(epoch=4)).epoch == 4
        assert world.it.registry.terms.current >= world.lives[-2].registry.terms.current


async def post(world: World, verb: str) -> None:
    answer = await world.client.post(f"/v1/instances/{world.instance().id}/{verb}", json={"reason": "maintenance"})
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("hold_sec", [0.0, 0.01, 30.0])
async def test_what_an_operator_holds_stays_so_under_the_next_controller(
    autojump_clock: MockClock, tmp_path: Path, hold_sec: float
) -> None:
    """Also where it was told and not done yet: the run is resumed, or what is needed opens another."""
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2)
        before = await world.until_active()
        await post(world, "hold")
        await trio.sleep(hold_sec)
        await stopped_for(world, 20)
        held = world.instance()
        assert held.id == before.id
        assert str(held.held) == "maintenance"
        await world.until(lambda: not any(fake.engine_alive for fake in gang), within=60)
        await trio.sleep(300)
        assert not any(fake.engine_alive for fake in gang)
        assert [fake.boots for fake in gang] == [1, 1]
        await post(world, "release")
        await world.until_active(epoch=2)
        assert [fake.boots for fake in gang] == [1, 1]
