"""The control socket: whose it is, what becomes of it when its file is gone, and that no other one is displaced."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import FOREVER, RunningSupervisor, Sections, service, supervisor

UNITS: dict[str, Sections | str] = {"web": service(*FOREVER)}
MADE_ANEW = "the control socket .* was gone: made anew"


async def answers(running: RunningSupervisor) -> bool:
    return (await running.command("status", "web")).returncode == 0


def remove(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved"))


def remove_directory(path: Path) -> None:
    away = path.parent.rename(path.parent.with_name("away"))  # or it would be made anew under the hands of rmtree
    shutil.rmtree(away)


def leave_a_stale_one(path: Path) -> None:
    elsewhere = path.parent.parent / "stale"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(elsewhere))
    elsewhere.rename(path)


@pytest.mark.parametrize("lose", [remove, move_away, remove_directory, leave_a_stale_one])
async def test_a_socket_that_is_lost_is_made_anew_and_again(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    path = tmp_path / "run" / "podvisor.sock"
    async with supervisor(tmp_path, UNITS, socket_path=path) as running:
        await running.online()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for count in (1, 2):
            lose(path)
            await running.stderr.saw(MADE_ANEW, count)
            assert await answers(running)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        descriptors = len(os.listdir(f"/proc/{running.pid}/fd"))
        lose(path)
        await running.stderr.saw(MADE_ANEW, 3)
        assert await answers(running)
        with trio.fail_after(TIMEOUT_SEC):
            while len(os.listdir(f"/proc/{running.pid}/fd")) > descriptors:
                await trio.sleep(0.05)  # the old listener closes when its conversations have had their moment
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert not path.exists()


async def test_sigusr1_makes_it_anew(tmp_path: Path) -> None:
    """Where the directory cannot be watched this is the only way; here it is merely the second."""
    async with supervisor(tmp_path, UNITS) as running:
        await running.online()
        running.signal(signal.SIGUSR1)
        await running.stderr.saw("SIGUSR1: log files are opened anew")
        assert await answers(running)
        assert not running.stderr.matching(MADE_ANEW), "it was there"


async def test_another_supervisor_that_took_the_place_is_not_displaced(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    path = tmp_path / "podvisor.sock"
    for directory in (ours, theirs):
        directory.mkdir()
    async with supervisor(ours, UNITS, socket_path=path) as first:
        await first.online()
        first.signal(signal.SIGSTOP)  # while the file is gone and the other one begins
        path.unlink()
        async with supervisor(theirs, UNITS, socket_path=path) as second:
            await second.online()
            first.signal(signal.SIGCONT)
            await first.stderr.saw(
                rf"the control socket is lost: .* another supervisor answers there \(pid {second.pid}\)"
            )
            assert f"pid {second.pid}," in (await second.command("status")).stdout
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0
        await first.stderr.saw(MADE_ANEW)
        assert f"pid {first.pid}," in (await first.command("status")).stdout
