"""State files on a disk that hangs, or fails: nobody waits, and what is there in the end is the newest."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.process.disk import ANSWER_SEC
from supervisor.process.state_files import FLUSH_SEC, StateFiles
from tests.support.instant_disk import InstantDisk

ASKER = "state files"


def unexpected(error: OSError) -> None:
    raise AssertionError(error)


async def test_what_is_kept_is_written_by_the_end_also_when_that_is_a_cancel(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    files = StateFiles(InstantDisk())
    with trio.CancelScope() as scope:
        async with files.being_written():
            files.keep(tmp_path / "deep" / "a", b"old", unexpected)
            files.keep(tmp_path / "b", b"b", unexpected)
            files.keep(tmp_path / "deep" / "a", b"new", unexpected)
            scope.cancel()
    assert [(tmp_path / name).read_bytes() for name in ("deep/a", "b")] == [b"new", b"b"]


async def test_a_disk_that_hangs_is_told_and_holds_up_nobody_and_gets_the_newest_in_the_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk, errors, path = InstantDisk(), list[OSError](), tmp_path / "a"
    disk.hangs_for.add(ASKER)
    files = StateFiles(disk)
    async with files.being_written():
        files.keep(path, b"old", errors.append)
        await trio.sleep(ANSWER_SEC / 2)
        files.keep(path, b"new", errors.append)
        await trio.sleep(ANSWER_SEC)
        assert "does not answer" in str(errors[0])
        disk.hangs_for.clear()
        await trio.sleep(ANSWER_SEC)
    assert path.read_bytes() == b"new"


async def test_the_end_is_held_up_for_a_moment_at_most(tmp_path: Path, autojump_clock: MockClock) -> None:
    disk = InstantDisk()
    disk.hangs_for.add(ASKER)
    files = StateFiles(disk)
    async with files.being_written():
        files.keep(tmp_path / "a", b"a", unexpected)
        began = trio.current_time()
    assert trio.current_time() - began == FLUSH_SEC


async def test_what_cannot_be_written_is_told_and_the_others_are(tmp_path: Path, autojump_clock: MockClock) -> None:
    (tmp_path / "file").write_text("no directory")
    errors: list[OSError] = []
    files = StateFiles(InstantDisk())
    async with files.being_written():
        files.keep(tmp_path / "file" / "a", b"a", errors.append)
        files.keep(tmp_path / "b", b"b", unexpected)
    assert len(errors) == 1
    assert (tmp_path / "b").read_bytes() == b"b"


@pytest.mark.parametrize("times", [1, 3])
async def test_a_file_may_be_kept_again_after_all_were_written(
    times: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    files = StateFiles(InstantDisk())
    async with files.being_written():
        for number in range(times):
            files.keep(tmp_path / "a", str(number).encode(), unexpected)
            await trio.sleep(1)
            assert (tmp_path / "a").read_text() == str(number)
