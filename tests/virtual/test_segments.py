"""When an engine's shared-memory segments are looked for, and that nobody waits for that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import trio
from trio.testing import MockClock

from supervisor.engine.segments import LOOK_SEC, Segments
from supervisor.process.holders import FileId
from tests.support.fake_processes import Program
from tests.support.services import running, unit

HELD: dict[Path, FileId] = {Path("/dev/shm/psm_1"): (1, 1)}


async def test_what_was_made_after_it_became_ready_is_seen_before_the_stop(autojump_clock: MockClock) -> None:
    held: dict[Path, FileId] = {}

    async def segments_of(pid: int) -> Mapping[Path, FileId]:
        return held

    async with running(unit(), serve=Program()) as world, trio.open_nursery() as nursery:
        segments = Segments(world.service, segments_of)
        nursery.start_soon(segments.watch)
        await segments.look()  # before its first start there is nobody to be looked at
        await world.service.start(asked_by="test")
        await trio.sleep(1)
        assert segments.recorded == {}
        held |= HELD
        await segments.look()
        assert segments.recorded == HELD
        nursery.cancel_scope.cancel()


async def test_a_look_that_hangs_holds_up_no_stop(autojump_clock: MockClock) -> None:
    async def segments_of(pid: int) -> Mapping[Path, FileId]:
        await trio.sleep_forever()
        raise AssertionError

    async with running(unit(), serve=Program()) as world:
        await world.service.start(asked_by="test")
        began = trio.current_time()
        await Segments(world.service, segments_of).look()
        assert trio.current_time() - began == LOOK_SEC
