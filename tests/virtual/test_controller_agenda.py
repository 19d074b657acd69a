"""Who is looked at because of the time alone, and that a fleet that is well costs no looks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from controller.agenda import Agenda
from controller.entry import Entry
from controller.model.instance import InstanceStatus
from controller.registry import Registry
from tests.support.controller_world import open_world
from tests.support.killed_journal import journal_in
from tests.unit.controller_gang import serving


def test_a_later_appointment_takes_the_place_of_an_earlier_one() -> None:
    agenda, entry, other = Agenda(), Entry(serving()), Entry(serving())
    agenda.put(entry, 5)
    agenda.put(other, 7)
    agenda.put(entry, 9)
    assert list(agenda.due(8)) == [other]
    assert list(agenda.due(9)) == [entry]
    assert list(agenda.due(100)) == []


async def test_a_fleet_that_is_well_is_hardly_looked_at(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(Registry, "consider", counted(Registry.consider, looks))
    async with open_world() as world:
        for number in range(4):
            world.add_gang(f"job-{number}", size=2)
        for number in range(4):
            await world.until_active(f"job-{number}")
        await trio.sleep(10)
        looks.clear()
        await trio.sleep(60)
        # 160 heartbeats and 60 ticks; each of four instances has an appointment every 6 to 9 s.
        assert 4 * 60 / 9 <= len(looks) <= 4 * 60 / 5


async def test_silence_is_noticed_by_the_time_alone(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        for fake in gang:
            fake.kill_container()
            fake.mute = True
        await world.until(lambda: world.it.registry.entries()[0].instance.status != "active", within=14)


async def test_who_is_loaded_is_looked_at_though_nobody_is_heard(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_world(elect=journal_in(tmp_path)) as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        world.kill_controller()
        for fake in gang:
            world.network.partition(fake.ip, "controller")
        await world.start_controller()
        await world.until(lambda: world.instance().status is InstanceStatus.INACTIVE, within=30)


def counted(method: Callable[..., Any], looks: list[str]) -> Callable[..., Any]:
    @wraps(method)
    def counting(registry: Registry, entry: Entry, now: float) -> Any:
        looks.append(str(entry.instance.key))
        return method(registry, entry, now)

    return counting
