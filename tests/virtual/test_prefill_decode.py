"""Prefill and decode as two gangs: whom a new epoch is told, and which decode instance follows, when, how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from controller.events import ControllerEvent
from controller.model.instance import InstanceStatus
from controller.model.settings import OnPrefillRelaunch, RelaunchSettings
from controller.policy import Policy
from tests.support.controller_world import World, open_world
from tests.support.fake_supervisor import FakeSupervisor
from tests.support.killed_journal import Writer, journal_in

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

FOLLOWS = Policy(relaunch=RelaunchSettings(on_prefill_relaunch=OnPrefillRelaunch.RELAUNCH_DECODE))
QUIET_SEC = 120.0
"""In which nothing more may happen."""


@asynccontextmanager
async def serving(policy: Policy) -> AsyncIterator[tuple[World, list[FakeSupervisor], list[FakeSupervisor]]]:
    async with open_world(policy) as world:
        prefill, decode = world.add_gang("prefill", role="prefill"), world.add_gang("decode", role="decode")
        await world.until_active("prefill")
        await world.until_active("decode")
        yield world, prefill, decode


def identities(world: World, job_name: str) -> list[ControllerEvent]:
    return [event for event in world.it.events.since(0) if (event.kind, event.job_name) == ("identity", job_name)]


def epochs(world: World) -> tuple[int, int]:
    return world.instance("prefill").epoch, world.instance("decode").epoch


def reasons(world: World) -> list[str]:
    """Of all runs that have closed, in order, but for the first two assemblies."""
    return [view.reason for view in reversed(world.it.registry.closed_runs)][2:]


async def test_every_epoch_in_which_an_instance_serves_is_told_once_and_with_its_activation(
    autojump_clock: MockClock,
) -> None:
    async with serving(Policy()) as (world, prefill, _):
        prefill[1].kill_engine()
        await world.until_active("prefill", epoch=2)
        await trio.sleep(QUIET_SEC)
        first, second = identities(world, "prefill")
        assert (first.epoch, second.epoch) == (1, 2)
        assert second.model_name == world.instance("prefill").spec.model_name
        assert (second.role, second.endpoints) == ("prefill", tuple(f"{fake.ip}:8000" for fake in prefill))
        assert second.message == "prefill serves in epoch 2; what is remembered of epoch 1 is void"
        (active,) = [
            event
            for event in world.it.events.since(second.id - 1)
            if (event.kind, event.job_name, event.status) == ("instance", "prefill", "active")
        ]
        assert active.id == second.id + 1, "whoever routes by the activation knows it already"
        assert epochs(world) == (2, 1), "nobody follows unless it is asked for"


async def test_decode_follows_a_prefill_that_came_back_once_and_nothing_follows_on_it(
    autojump_clock: MockClock,
) -> None:
    async with serving(FOLLOWS) as (world, prefill, decode):
        await trio.sleep(QUIET_SEC)
        assert epochs(world) == (1, 1), "the first start of a prefill is nobody's end"
        prefill[0].kill_engine()
        await world.until_active("prefill", epoch=2)
        await world.until(lambda: world.instance("decode").status is InstanceStatus.INACTIVE, within=1.5)
        await world.until_active("decode", epoch=2)
        await trio.sleep(QUIET_SEC)
        assert epochs(world) == (2, 2)
        assert reasons(world) == ["fault", "peer"]
        assert [fake.boots for fake in decode] == [1, 1]
        (told,) = {event.reason for event in world.it.events.since(0) if str(event.reason).startswith("peer:")}
        assert "prefill default/prefill serves in epoch 2" in str(told)
        registry = world.it.registry
        spent = {name: registry.budgets.of(world.instance(name)).runs for name in ("prefill", "decode")}
        assert spent == {"prefill": 1, "decode": 0}, "it is no sign of a broken model"


@pytest.mark.parametrize("later", [0, 2, 4, 6, 8])
async def test_whoever_follows_need_not_wait_until_it_is_looked_at_anyhow(
    autojump_clock: MockClock, later: float
) -> None:
    async with serving(FOLLOWS) as (world, prefill, _):
        await trio.sleep(QUIET_SEC + later)
        prefill[0].kill_engine()
        await world.until_active("prefill", epoch=2)
        await world.until(lambda: world.instance("decode").status is InstanceStatus.INACTIVE, within=1.5)


async def test_a_decode_that_begins_its_epoch_later_has_followed_already(autojump_clock: MockClock) -> None:
    async with serving(FOLLOWS) as (world, prefill, decode):
        decode[0].change(prepare_sec=60.0)
        decode[1].kill_engine()
        await world.until(lambda: world.instance("decode").status is InstanceStatus.INACTIVE)
        prefill[0].kill_engine()
        await world.until_active("prefill", epoch=2)
        assert world.instance("decode").outdated
        await world.until_active("decode", epoch=2)
        await trio.sleep(QUIET_SEC)
        assert (epochs(world), reasons(world)) == ((2, 2), ["fault", "fault"])


async def test_a_decode_that_has_begun_its_epoch_before_follows_at_the_end_of_its_run(
    autojump_clock: MockClock,
) -> None:
    async with serving(FOLLOWS) as (world, prefill, decode):
        for fake in decode:
            fake.change(load_sec=60.0)
        decode[1].kill_engine()
        await world.until(lambda: world.instance("decode").epoch == 2)
        prefill[0].kill_engine()
        await world.until_active("prefill", epoch=2)
        await world.until_active("decode", epoch=3)
        await trio.sleep(QUIET_SEC)
        assert (epochs(world), reasons(world)) == ((2, 3), ["fault", "fault", "peer"])


async def test_those_who_follow_wait_for_their_turn(autojump_clock: MockClock) -> None:
    async with serving(replace(FOLLOWS, max_concurrent_runs=1)) as (world, prefill, _):
        world.add_gang("decode-2", role="decode")
        await world.until_active("decode-2")
        prefill[0].kill_engine()
        await world.until(lambda: len(world.it.registry.recoveries()) == 2)
        await world.until(lambda: [run.step for run in world.it.registry.recoveries()].count("queued") == 1, within=1)
        await world.until_active("decode", epoch=2)
        await world.until_active("decode-2", epoch=2)


async def test_an_operator_who_aborts_it_is_obeyed_until_the_next_prefill_comes_back(
    autojump_clock: MockClock,
) -> None:
    async with serving(FOLLOWS) as (world, prefill, decode):
        decode[0].change(hang=frozenset({"status"}))
        prefill[0].kill_engine()
        await world.until(lambda: bool(decode[0].did("hangs:status")))
        (recovery,) = world.it.registry.recoveries()
        response = await world.client.post(f"/v1/relaunches/{recovery.run_id}/abort", json={"reason": "not now"})
        assert response.status_code == 202
        decode[0].change(hang=frozenset())
        await trio.sleep(QUIET_SEC)
        assert (epochs(world), world.instance("decode").status) == ((2, 1), InstanceStatus.ACTIVE)
        prefill[1].kill_engine()
        await world.until_active("decode", epoch=2)


async def come_back(state_dir: Path, writer: Writer) -> int:
    """Returns the last write before the prefill dies."""
    async with open_world(FOLLOWS, elect=journal_in(state_dir, [writer])) as world, trio.open_nursery() as nursery:
        writer.kill = world.kill_controller
        (prefill,) = world.add_gang("prefill", size=1, role="prefill")
        (decode,) = world.add_gang("decode", size=1, role="decode")
        await world.until_active("prefill")
        await world.until_active("decode")
        before = writer.writes
        nursery.start_soon(start_again, world)
        prefill.kill_engine()
        await world.until(lambda: decode.epoch >= 2 and decode.engine_alive, within=1000)
        await world.until_active("decode", epoch=2)
        await trio.sleep(QUIET_SEC)
        assert decode.did("start")[-1].at >= prefill.did("ready")[-1].at, "it remembers nobody who is no more"
        assert (epochs(world), decode.boots, prefill.boots) == ((2, 2), 1, 1)
        nursery.cancel_scope.cancel(reason="it has followed")
        return before


async def start_again(world: World) -> None:
    await world.until_ended()
    await trio.sleep(2)
    await world.start_controller()


def run_with(state_dir: Path, writer: Writer) -> int:
    # The scheduler's only source of chance: with it fixed, write k is the same write in every run.
    trio._core._run._r.seed(0)
    return trio.run(come_back, state_dir, writer, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
def test_decode_follows_at_whatever_write_the_controller_dies(after_commit: bool, tmp_path: Path) -> None:
    undisturbed = Writer()
    before = run_with(tmp_path / "undisturbed", undisturbed)
    assert undisturbed.writes > before + 20
    for k in range(before + 1, undisturbed.writes + 1):
        writer = Writer()
        writer.dies_at, writer.after_commit = k, after_commit
        try:
            run_with(tmp_path / str(k), writer)
        except BaseException as error:
            error.add_note(f"killed at write {k}")
            raise
