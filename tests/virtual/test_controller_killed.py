"""Issue 4: the controller is killed before and after every write to its journal, and started again.

Whatever it was doing: the gang ends ACTIVE, nothing is started twice, and a gang that serves is let be.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from controller.model.instance import InstanceStatus
from supervisor.wire import EndpointStatus, ErrorCode
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor, Record, Script
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
    await world.until(lambda: gang[1].did("prepared") or world.controllers > 1)
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


def touched_in_health(history: list[Record], gang: list[FakeSupervisor]) -> list[Record]:
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
    assert touched_in_health(relaunched, gang) == [relaunched[-1]]  # type: ignore[arg-type]
    died = [*healthy, Record(9.0, "b", "died", 1), relaunched[-1]]
    assert touched_in_health(died, gang) == []  # type: ignore[arg-type]
