"""A supervisor that was killed is known by its successor; one that ended in any order of its own is not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from supervisor.life import FILE
from tests.support.running_supervisor import FOREVER, left_behind, service, supervisor

STORE = {"store": service(*FOREVER)}
KILLED = "the previous container was killed"


async def test_after_kill_9_the_next_life_says_so_once(tmp_path: Path) -> None:
    async with supervisor(tmp_path, STORE) as running:
        await running.online()
        running.signal(signal.SIGKILL)
        await running.process.wait()
    async with supervisor(tmp_path, STORE) as running:
        await running.online()
        assert len(running.stderr.matching(KILLED)) == 1
        done = await running.command("status")
        assert "previous container: killed" in done.stdout
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    async with supervisor(tmp_path, STORE) as running:
        await running.online()
        assert not running.stderr.matching(KILLED)


@pytest.mark.parametrize("exit_code", [0, 255])
async def test_an_end_of_its_own_leaves_no_mark(exit_code: int, tmp_path: Path) -> None:
    action = {0: "exit-success", 255: "exit"}[exit_code]
    failing = service("false", Restart="always", RestartSec=0, StartLimitBurst=1, StartLimitAction=action)
    async with supervisor(tmp_path, {"failing": failing}) as running:
        assert await running.ended() == exit_code
        assert not (tmp_path / "state" / FILE).exists()
        assert left_behind() == {}


async def test_a_directory_with_which_another_lives_is_refused_and_its_mark_stays(tmp_path: Path) -> None:
    async with supervisor(tmp_path, STORE) as running:
        await running.online()
        mark = (tmp_path / "state" / FILE).read_bytes()
        other = tmp_path / "other"
        other.mkdir()
        settings = {"supervisor": {"state_dir": str(tmp_path / "state")}}
        async with supervisor(other, STORE, settings) as second:
            assert await second.ended() == 1
            (said,) = second.stderr.matching("another supervisor lives with this directory")
            assert f"{tmp_path / 'state'}: " in said.string
            assert f"(pid {running.pid}, since " in said.string
            assert not second.socket.exists()
            assert not second.stderr.matching("started as pid")
        assert (tmp_path / "state" / FILE).read_bytes() == mark
        assert (await running.units())["store"].state == "active"
