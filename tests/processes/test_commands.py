"""Every command against a running supervisor: exit codes, JSON, completion of units, and words while one waits."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.command_table import arguments, of_supervisor, of_units
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    RunningSupervisor,
    environment,
    podvisor,
    service,
    shell,
    supervisor,
)


async def test_every_command_knows_an_unknown_unit_and_answers_in_json(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*shell("echo up; exec sleep 600"))}) as running:
        await running.stdout.saw("up")
        await running.online()
        for name in of_units():
            done = await running.command(name, "nosuch")
            assert (name, done.returncode, done.stdout) == (name, 4, "")
            assert "there is no unit 'nosuch' here; there are: web" in done.stderr
        for name, command in of_supervisor().items():
            done = await running.command(name, *arguments(command, "web"), "--json")
            assert (name, done.returncode) == (name, 1 if name == "relaunch" else 0), done.stderr
            assert all(isinstance(json.loads(line), dict) for line in done.stdout.splitlines())
        assert "there is no engine unit in this pod" in (await running.command("relaunch")).stderr


async def test_of_several_units_one_that_fails_keeps_none_of_the_others(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"store": service(*FOREVER), "web": service(*FOREVER)}) as running:
        await running.online()
        stopped = await running.command("stop", "store", "nosuch", "web")
        assert stopped.returncode == 4
        assert stopped.stdout == "store: inactive (dead)\nweb: inactive (dead)\n"
        assert "there is no unit 'nosuch' here" in stopped.stderr
        started = await running.command("start", "--wait", "web", "store")
        assert (started.returncode, started.stderr) == (0, "")
        assert started.stdout == "web: active (ready)\nstore: active (ready)\n"


async def test_names_of_units_are_completed_from_the_running_supervisor(tmp_path: Path) -> None:
    units = {"store": service(*FOREVER), "store-exporter": service(*FOREVER), "web": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        await running.online()
        assert await completed(running, "podvisor stop st", 2) == ["plain,store", "plain,store-exporter"]
        assert await completed(running, "podvisor status ", 2) == [f"plain,{name}" for name in sorted(units)]
        elsewhere = f"podvisor status --socket {running.socket} w"
        assert await completed(running, elsewhere, 4, socket="/nowhere") == ["plain,web"]


async def completed(running: RunningSupervisor, words: str, number: int, socket: str | None = None) -> list[str]:
    """What click answers to the script that it gave to bash."""
    asked = {"_PODVISOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    done = await podvisor(**asked, PODVISOR_SOCKET=socket or str(running.socket))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


async def test_who_waits_on_a_terminal_is_told_for_whom(tmp_path: Path) -> None:
    """And whoever reads a pipe is not."""
    ready = tmp_path / "ready"
    store = {**service(*FOREVER), "Readiness": {"Exec": ["test", "-e", str(ready)], "PeriodSec": 0.1}}
    units = {"store": store, "web": {**service(*FOREVER), "Unit": {"Requires": ["store"], "After": ["store"]}}}
    async with supervisor(tmp_path, units) as running:
        await running.moved("store", "start", "loading")
        await running.online()
        async with trio.open_nursery() as nursery:

            async def piped() -> None:
                done = await running.command("start", "web")
                assert (done.stdout, done.stderr) == ("web: active (ready)\n", "")

            nursery.start_soon(piped)
            async with on_terminal(running, "start", "web") as screen:
                await screen.saw("web waits for store")
                ready.touch()
                assert await screen.ended() == 0


async def test_a_start_can_be_waited_for(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    loading = {
        **service(*shell("exec sleep 600"), Restart="no"),
        "Readiness": {"Exec": ["test", "-e", str(ready)], "PeriodSec": 0.1},
    }
    failing = {**service(*shell("sleep 0.3; exit 3"), Restart="no"), "Readiness": {"LogLine": "never"}}
    async with supervisor(tmp_path, {"web": loading, "failing": failing}) as running:
        await running.moved("failing", "cleaning", "failed")
        await running.online()
        assert (await running.command("start", "web")).stdout == "web: activating (loading)\n"
        async with on_terminal(running, "restart", "--wait", "web") as screen:
            await screen.saw(r"web is activating (loading) for")
            ready.touch()
            assert await screen.ended() == 0
        done = await running.command("start", "--wait", "failing")
        assert done.returncode == 1
        assert "failing is failed (failed): exited with code 3; not restarted (Restart=no)" in done.stderr


class Screen:
    """A command whose standard error is a terminal."""

    def __init__(self, process: trio.Process, terminal: trio.lowlevel.FdStream) -> None:
        self._process = process
        self._terminal = terminal
        self._text = ""

    async def saw(self, words: str) -> None:
        with trio.fail_after(TIMEOUT_SEC):
            while words not in self._text:
                self._text += (await self._terminal.receive_some()).decode()

    async def ended(self) -> int:
        with trio.fail_after(TIMEOUT_SEC):
            return await self._process.wait()


@asynccontextmanager
async def on_terminal(running: RunningSupervisor, *words: str) -> AsyncIterator[Screen]:
    command = [*PODVISOR, *words, "--socket", str(running.socket)]
    ours, theirs = pty.openpty()
    try:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment()
        )
    finally:
        os.close(theirs)
    async with trio.lowlevel.FdStream(ours) as terminal:
        try:
            yield Screen(process, terminal)
        finally:
            if process.poll() is None:
                process.kill()
            with trio.move_on_after(10, shield=True):
                await process.wait()
