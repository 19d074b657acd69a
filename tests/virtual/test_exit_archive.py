"""Exits that survive their container: what is kept, how much of it, and what a disk that fails costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.service import exit_archive
from supervisor.service.exit_archive import MAX_FILE_BYTES, MAX_FILES, ExitArchive
from supervisor.service.exits import Exits
from supervisor.wire import ExitView
from tests.support.state_files import StateFilesAtOnce


def exits(*causes: str, lines: tuple[str, ...] = ()) -> tuple[ExitView, ...]:
    return tuple(
        ExitView(pid=7, code=1, signal=None, asked=False, cause=cause, uptime_sec=1.0, at="", log_tail=lines)
        for cause in causes
    )


def causes(archive: ExitArchive, unit: str = "engine") -> list[str]:
    return [view.cause for view in archive.earlier(unit)]


async def test_the_next_container_knows_how_the_last_one_fared(tmp_path: Path, autojump_clock: MockClock) -> None:
    archive = ExitArchive(tmp_path, "boot-1", StateFilesAtOnce())
    assert causes(archive) == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(archive.run)
        archive.note("engine", lambda: exits("out of memory"))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    archive.note("engine", lambda: exits("sick", "out of memory"))
    archive.flush()
    later = ExitArchive(tmp_path, "boot-2", StateFilesAtOnce())
    assert [(view.cause, view.boot_id) for view in later.earlier("engine")] == [
        ("sick", "boot-1"),
        ("out of memory", "boot-1"),
    ]
    assert [view.cause for view in Exits(later.earlier("engine")).views] == ["sick", "out of memory"]


def test_a_file_never_grows_beyond_its_limit_and_the_newest_are_kept(tmp_path: Path) -> None:
    archive = ExitArchive(tmp_path, "boot-1", StateFilesAtOnce())
    long = tuple("x" * 16_000 for _ in range(40))
    archive.note("engine", lambda: exits(*(str(number) for number in range(20)), lines=long))
    archive.flush()
    assert (tmp_path / "exits" / "engine.json").stat().st_size <= MAX_FILE_BYTES
    kept = archive.earlier("engine")
    assert [view.cause for view in kept] == [str(number) for number in range(len(kept))]
    assert len(kept) > 10
    assert len(kept[0].log_tail[0]) == exit_archive.MAX_LINE


async def test_files_of_units_that_are_no_more_do_not_pile_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    archive = ExitArchive(tmp_path, "boot-1", StateFilesAtOnce())
    for number in range(MAX_FILES + 5):
        archive.note(f"unit-{number}", lambda: exits("done"))
        archive.flush()
        os.utime(tmp_path / "exits" / f"unit-{number}.json", (number, number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(archive.run)
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert len(list((tmp_path / "exits").iterdir())) == MAX_FILES
    assert causes(archive, "unit-0") == []
    assert causes(archive, f"unit-{MAX_FILES + 4}") == ["done"]


async def test_a_disk_that_fails_is_logged_once_and_nothing_else(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("no directory")
    archive = ExitArchive(tmp_path / "state", "boot-1", StateFilesAtOnce())
    for _ in range(3):
        archive.note("engine", lambda: exits("dead"))
        archive.flush()
    assert [record.levelname for record in caplog.records if "cannot keep the exits" in record.message] == ["ERROR"]


def test_what_cannot_be_read_is_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "exits").mkdir()
    (tmp_path / "exits" / "engine.json").write_text('{"exits": [{"pi')
    assert causes(ExitArchive(tmp_path, "boot-1", StateFilesAtOnce())) == []
    assert "what was in it is not shown" in caplog.text
