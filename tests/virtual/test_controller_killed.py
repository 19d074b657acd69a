"""Issue 4: the controller is killed before and after every write to its journal, and started again.

Whatever it was doing: the gang ends ACTIVE, nothing is started twice, and a gang that serves is let be.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from controller.policy import Policy
from supervisor import wire
from supervisor.wire import EndpointStatus, ErrorCode
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import Record, Script
from tests.support.killed_journal import Writer, journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

SCRIPT = Script(prepare_sec=1.0, spawn_sec=0.5, load_sec=4.0)
AWAY_SEC = 2.0
"""Until somebody starts the controller again."""
QUIET_SEC = 30.0

Scenario = Callable[[World], Awaitable[None]]


async def cold_start(world: World) -> None:
    world.add_gang(size=2, script=SCRIPT)
    await settled(world)


async def relaunch(world: World) -> None:
    gang = world.add_gang(size=2, script=SCRIPT)
    await settled(world)
    begins(world)
    gang[0].kill_engine()
    await settled(world, epoch=2)


async def phase_two(world: World) -> None:
    gang = world.add_gang(size=2, script=SCRIPT)
    await settled(world)
    begins(world)
    gang[1].change(refuse={"prepare": ErrorCode.FAILED}, refuse_sec=0.5)
    gang[0].kill_engine()
    await world.until(lambda: any(fake.boots > 1 for fake in gang) or world.controllers > 1)
    gang[1].change(refuse={})
    await settled(world, epoch=2)


async def aborted_by_an_operator(world: World) -> None:
    gang = world.add_gang(size=2, script=SCRIPT)
    await settled(world)
    begins(world)
    gang[0].kill_engine()
    await world.until(lambda: gang[1].did("prepared") != [] or world.controllers > 1)
    for recovery in world.it.registry.recoveries():
        await world.client.post(f"/v1/relaunches/{recovery.run_id}/abort", content=b"{}")
    await settled(world, epoch=2)


def begins(world: World) -> None:
    """What was before is another scenario's."""
    writer = world.notes["writer"]
    assert isinstance(writer, Writer)
    world.notes["first"] = writer.writes + 1


async def settled(world: World, epoch: int = 1) -> None:
    """Served by the fakes' own word and the controller's, and nothing is going on."""
    gang = world.gangs["job"]

    def is_settled() -> bool:
        entries = world.it.registry.entries()
        return (
            not world.it.leadership.is_lost
            and len(entries) == 1
            and entries[0].recovery is None
            and entries[0].instance.status is InstanceStatus.ACTIVE
            and entries[0].instance.epoch >= epoch
            and all(fake.status is EndpointStatus.NORMAL for fake in gang)
            and {fake.epoch for fake in gang} == {entries[0].instance.epoch}
        )

    await world.until(is_settled)


def started_twice(history: list[Record]) -> list[tuple[str, int]]:
    starts = Counter((record.who, record.epoch) for record in history if record.what == "start")
    return [start for start, count in starts.items() if count > 1]


def touched_in_health(history: list[Record], gang: Sequence[object]) -> list[Record]:
    """What was done to a gang all of whose engines served in one epoch."""
    serving: dict[str, int] = {}
    found = []
    for record in history:
        is_healthy = len(serving) == len(gang) and len(set(serving.values())) == 1
        if record.what == "ready":
            serving[record.who] = record.epoch
        elif record.what == "died":
            serving.pop(record.who, None)
        elif record.what in ("prepare", "stop", "start", "gave up") or record.what.startswith("exit:"):
            if is_healthy:
                found.append(record)
            serving.pop(record.who, None)
    return found


async def die_and_live_again(scenario: Scenario, state_dir: Path, writer: Writer) -> int:
    """Returns the first write of the scenario itself."""
    async with open_world(elect=journal_in(state_dir, [writer])) as world:
        writer.kill = world.kill_controller
        world.notes.update(writer=writer, first=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_again, world)
            await scenario(world)
            nursery.cancel_scope.cancel(reason="the scenario is over")
        first_runs = [view.id for view in world.it.registry.closed_runs]
        assert len(first_runs) == len(set(first_runs)), "a run has one row"
        await trio.sleep(QUIET_SEC)
        assert [view.id for view in world.it.registry.closed_runs] == first_runs, "nothing is relaunched afterwards"
        assert touched_in_health(world.history, world.gangs["job"]) == []
        assert started_twice(world.history) == []
        assert len(world.lives) == (2 if writer.dies_at else 1), "it died, once"
        terms = [life.registry.terms.current for life in world.lives]
        assert terms == sorted(set(terms)), "every life has a term of its own"
        told = [(life.events.ring.life, event) for life in world.lives for event in life.events.since(0)]
        numbered = {(series, event.id): event for series, event in told}
        assert all(numbered[series, event.id] == event for series, event in told), "no number is given twice"
        return int(str(world.notes["first"]))


async def start_again(world: World) -> None:
    await world.until_ended()
    await trio.sleep(AWAY_SEC)
    await world.start_controller()


def run_with(scenario: Scenario, state_dir: Path, writer: Writer) -> int:
    # The scheduler's only source of chance: with it fixed, write k is the same write in every run.
    trio._core._run._r.seed(0)
    return trio.run(die_and_live_again, scenario, state_dir, writer, clock=trio.testing.MockClock(autojump_threshold=0))


# The very first write is the load, without which there is no controller.
SCENARIOS = [cold_start, relaunch, phase_two, aborted_by_an_operator]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
def test_C4_the_controller_may_die_at_every_write(scenario: Scenario, after_commit: bool, tmp_path: Path) -> None:
    undisturbed = Writer()
    first = run_with(scenario, tmp_path / "undisturbed", undisturbed)
    assert undisturbed.writes > first + 10
    failures = []
    for k in range(first, undisturbed.writes + 1):
        writer = Writer()
        writer.dies_at, writer.after_commit = k, after_commit
        try:
            run_with(scenario, tmp_path / str(k), writer)
        except BaseException as error:  # noqa: BLE001 - of whatever kind: it is told with its write
            failures.append((k, error))
    told = "\n".join(f"  write {k}: {error!r}" for k, error in failures)
    if failures:
        raise AssertionError(f"broken when killed at:\n{told}") from failures[0][1]


def test_the_checks_above_see_what_they_are_to_see() -> None:
    def history(*whats: str) -> list[Record]:
        return [Record(float(n), who, what, 1) for n, (who, what) in enumerate(itertools.product("ab", whats))]

    gang = [object(), object()]
    assert started_twice(history("start", "start")) == [("a", 1), ("b", 1)]
    healthy = history("ready")
    relaunched = [*healthy, Record(9.0, "a", "prepare", 2)]
    assert touched_in_health(relaunched, gang) == [relaunched[-1]]
    died = [*healthy, Record(9.0, "b", "died", 1), relaunched[-1]]
    assert touched_in_health(died, gang) == []


# --- what was acknowledged ----------------------------------------------------------------------------------


@asynccontextmanager
async def the_only_turn_is_taken(state_dir: Path, *writers: Writer) -> AsyncIterator[World]:
    """By a run of `slow`; the gang `job` serves."""
    async with open_world(Policy(max_concurrent_runs=1), elect=journal_in(state_dir, list(writers))) as world:
        slow = world.add_gang("slow", size=2, script=SCRIPT)
        world.add_gang(size=2, script=SCRIPT)
        await world.until_active("slow")
        await world.until_active()
        for fake in slow:
            fake.change(prepare_sec=90.0)
        slow[0].kill_engine()
        await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["prepare"])
        yield world


async def killed_and_started(world: World) -> None:
    world.kill_controller()
    await world.until_ended()
    await trio.sleep(AWAY_SEC)
    await world.start_controller()


async def ask(world: World, path: str) -> wire.RunView:
    answer = await world.client.post(path, json={"reason": "new driver"})
    assert answer.status_code == 202, answer.text
    run = wire.decode(wire.RunView, answer.content)
    assert answer.headers["Location"] == f"/v1/relaunches/{run.id}"
    return run


def run_of(world: World, run_id: str) -> wire.RunView | None:
    return next((view for view in world.it.registry.closed_runs if view.id == run_id), None)


async def test_C4_a_run_that_was_promised_and_waits_for_its_turn_is_not_forgotten(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with the_only_turn_is_taken(tmp_path) as world:
        gang = world.gangs["job"]
        run = await ask(world, f"/v1/instances/{world.instance().id}/relaunch")
        await killed_and_started(world)
        shown = await world.client.get(f"/v1/relaunches/{run.id}")
        assert shown.status_code == 200, "its Location leads somewhere in the next life too"
        assert wire.decode(wire.RunView, shown.content).message == "new driver"
        await world.until_active(epoch=2)
        await world.until(lambda: run_of(world, run.id) is not None)
        closed = run_of(world, run.id)
        assert closed is not None
        assert (closed.outcome, closed.reason) == ("done", "operator")
        assert [fake.boots for fake in gang] == [1, 1]
        assert started_twice(world.history) == []


async def test_C4_the_promise_of_a_run_that_was_aborted_before_its_turn_is_not_kept(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with the_only_turn_is_taken(tmp_path) as world:
        run = await ask(world, f"/v1/instances/{world.instance().id}/relaunch")
        await ask(world, f"/v1/relaunches/{run.id}/abort")
        await killed_and_started(world)
        closed = run_of(world, run.id)
        assert closed is not None
        assert closed.outcome == "aborted"
        await trio.sleep(QUIET_SEC)
        assert world.instance().epoch == 1


async def test_C4_an_abort_that_was_answered_is_carried_out_by_the_next_life(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        world.add_gang(size=2, script=replace(SCRIPT, prepare_sec=20.0))
        instance = await world.until_active()
        run = await ask(world, f"/v1/instances/{instance.id}/relaunch")
        await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["prepare"])
        writer.lasts_sec = 0.5
        await ask(world, f"/v1/relaunches/{run.id}/abort")
        await killed_and_started(world)
        await world.until(lambda: run_of(world, run.id) is not None)
        closed = run_of(world, run.id)
        assert closed is not None
        assert closed.outcome == "aborted"


async def test_C4_what_cannot_be_written_is_not_acknowledged(autojump_clock: MockClock, tmp_path: Path) -> None:
    writer = Writer()
    async with open_world(elect=journal_in(tmp_path, [writer])) as world:
        world.add_gang(size=2, script=SCRIPT)
        instance = await world.until_active()
        await trio.sleep(1)
        writer.full = True
        for verb in ("relaunch", "hold", "release", "terminate"):
            answer = await world.client.post(f"/v1/instances/{instance.id}/{verb}", json={"reason": "new driver"})
            assert answer.status_code == 503, (verb, answer.text)
        assert len(world.did("prepare")) == 2, "of the cold start"
        assert world.did("stop") == []


@pytest.mark.parametrize("step", ["queued", "prepare"])
async def test_C4_an_abort_that_cannot_be_written_is_not_acknowledged(
    autojump_clock: MockClock, tmp_path: Path, step: str
) -> None:
    """Else the row that is there would be gone on with, by a controller that knows nothing of it."""
    writer = Writer()
    policy = Policy(max_concurrent_runs=1)
    async with open_world(policy, elect=journal_in(tmp_path, [writer])) as world:
        world.add_gang(size=2, script=replace(SCRIPT, prepare_sec=20.0))
        await world.until_active()
        if step == "queued":
            slow = world.add_gang("slow", size=2, script=SCRIPT)
            await world.until_active("slow")
            slow[0].change(prepare_sec=90.0)
            slow[0].kill_engine()
            await world.until(lambda: [recovery.step for recovery in world.it.registry.recoveries()] == ["prepare"])
        run = await ask(world, f"/v1/instances/{world.instance().id}/relaunch")
        await world.until(lambda: step in [recovery.step for recovery in world.it.registry.recoveries()])
        writer.full = True
        answer = await world.client.post(f"/v1/relaunches/{run.id}/abort", json={})
        assert answer.status_code == 503, answer.text
        assert "is not in the journal" in answer.text


@pytest.mark.parametrize("asked_by", ["operator", "fault"])
async def test_C4_the_end_of_a_run_that_was_handed_back_is_written_as_soon_as_it_can_be(
    autojump_clock: MockClock, tmp_path: Path, asked_by: str
) -> None:
    """It waited for its turn, so nothing but its row was left to be done."""
    writer = Writer()
    async with the_only_turn_is_taken(tmp_path, writer) as world:
        if asked_by == "operator":
            await ask(world, f"/v1/instances/{world.instance().id}/relaunch")
        else:
            world.gangs["job"][0].kill_engine()
        await world.until(lambda: "queued" in [recovery.step for recovery in world.it.registry.recoveries()])
        (run,) = [recovery.run_id for recovery in world.it.registry.recoveries() if recovery.instance.job_name == "job"]
        writer.full = True
        answer = await world.client.post(f"/v1/relaunches/{run}/abort", json={})
        assert answer.status_code == (503 if asked_by == "operator" else 202), "a promise is to be taken back"
        await world.until(lambda: run_of(world, run) is not None)
        writer.full = False
        await world.until(lambda: not world.it.registry.unsaved)
        await killed_and_started(world)
        closed = run_of(world, run)
        assert closed is not None
        assert closed.outcome == "aborted"


async def test_C4_a_run_that_stepped_down_is_not_gone_on_with_after_the_one_that_followed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2, script=SCRIPT)
        instance = await world.until_active()
        # As after commands of another controller, of which no heartbeat has told yet.
        gang[1].mute = True
        gang[1].highest_term = 50
        first = await ask(world, f"/v1/instances/{instance.id}/relaunch")
        await world.until_run_closed(2)
        gang[1].mute = False
        await world.until_active(epoch=2)
        await world.until(lambda: not world.it.registry.recoveries())
        assert world.it.registry.closed_runs[0].id != first.id
        restarted = trio.current_time()
        await killed_and_started(world)
        await trio.sleep(QUIET_SEC)
        assert world.did("prepare", "start", "stop", since=restarted) == []


@pytest.mark.parametrize("verb", ["hold", "terminate"])
async def test_C4_what_an_operator_was_answered_is_known_to_a_controller_that_was_killed_then(
    autojump_clock: MockClock, tmp_path: Path, verb: str
) -> None:
    async with the_only_turn_is_taken(tmp_path) as world:
        gang = world.gangs["job"]
        for fake in gang:
            fake.change(container_restart_sec=None)
        answer = await world.client.post(f"/v1/instances/{world.instance().id}/{verb}", json={"reason": "new driver"})
        assert answer.status_code == 202, answer.text
        await killed_and_started(world)
        await world.until(lambda: not any(fake.engine_alive for fake in gang))
        await trio.sleep(QUIET_SEC)
        assert not any(fake.engine_alive for fake in gang)


async def test_C4_a_release_that_was_answered_is_carried_out_by_the_next_life(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with the_only_turn_is_taken(tmp_path) as world:
        path = f"/v1/instances/{world.instance().id}"
        assert (await world.client.post(f"{path}/hold", json={})).status_code == 202
        await world.until(lambda: not any(fake.engine_alive for fake in world.gangs["job"]))
        await world.until(lambda: len(world.it.registry.recoveries()) == 0)
        assert (await world.client.post(f"{path}/release", json={})).status_code == 202
        await killed_and_started(world)
        await world.until_active(epoch=2)
