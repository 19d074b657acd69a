"""A real controller on a real SQLite file, which SIGKILLs itself at the k-th write of a relaunch, for every k.

One gang of fake supervisors on loopback lives through all of it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from supervisor.wire import EndpointStatus
from tests.support.controller_process import COMMAND, PATIENCE_SEC, ControllerProcess, controller_process
from tests.support.fake_supervisor import FakeSupervisor, Record, Script
from tests.support.loopback_network import open_loopback_network

# httpx leaves its generators to the garbage collector when a request is cut off.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

SCRIPT = Script(
    prepare_sec=0.05,
    spawn_sec=0.01,
    load_sec=0.1,
    container_restart_sec=0.1,
    heartbeat_sec=0.3,
    freeze_sec=600,
    arbiter_sec=600,
)

DYING = """
import os, signal, sys
from pathlib import Path
import trio
from controller import app
from controller.settings import load
from controller.store.sqlite import WriterThread
from controller.store.sqlite_election import SqliteElection
from supervisor.shared import logs

class DyingThread(WriterThread):
    writes = 0

    async def __call__(self, work):
        return await super().__call__(lambda: self.do(work))

    def do(self, work):
        self.writes += 1
        dies = self.writes == int(sys.argv[1])
        if dies and sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = work()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

settings = load(None, os.environ)
logs.configure(settings.controller.log_level, settings.controller.log_format)
app.election_of = lambda settings, url: SqliteElection(url, Path(settings.controller.state_dir), DyingThread())
trio.run(app.main, settings)
"""


class Gang:
    """What lives through all the lives of the controller."""

    def __init__(self, state_dir: Path, port: int, members: list[FakeSupervisor], history: list[Record]) -> None:
        self.state_dir = state_dir
        self.port = port
        self.members = members
        self.history = history

    @asynccontextmanager
    async def controller(self, *command: str) -> AsyncIterator[ControllerProcess]:
        async with controller_process(
            command or COMMAND,
            CONTROLLER__PORT=str(self.port),
            CONTROLLER__STATE_DIR=str(self.state_dir),
            FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_POLL_INTERVAL_SEC="0.2",
            FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_MAX_ATTEMPTS="100",
            FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_BACKOFF_SEC="0",
        ) as running:
            yield running

    async def until_active(self, controller: ControllerProcess, epoch: int) -> int:
        """By the controller's word and the gang's; returns its epoch."""
        with trio.move_on_after(PATIENCE_SEC) as patience:
            while True:
                for view in await controller.instances():
                    serves = all(m.status is EndpointStatus.NORMAL and m.epoch == view.epoch for m in self.members)
                    if view.status == "active" and view.recovery is None and view.epoch >= epoch and serves:
                        return view.epoch
                await trio.sleep(0.05)
        assert patience.cancelled_caught
        raise AssertionError("\n".join([*map(str, self.history[-40:]), *map(str, controller.log[-40:])]))

    def started_twice(self) -> list[Record]:
        starts = [(r.who, r.epoch) for r in self.history if r.what == "start"]
        return [r for r in self.history if r.what == "start" and starts.count((r.who, r.epoch)) > 1]


@asynccontextmanager
async def open_gang(state_dir: Path) -> AsyncIterator[Gang]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    history: list[Record] = []
    async with open_loopback_network() as network, trio.open_nursery() as nursery:
        members = [
            FakeSupervisor(
                network,
                ip=f"127.{port % 250 + 2}.77.{rank + 1}",
                job_name="job",
                node_index=rank,
                nnodes=2,
                controller_urls=(f"http://127.0.0.1:{port}",),
                script=SCRIPT,
                history=history,
            )
            for rank in range(2)
        ]
        for member in members:
            nursery.start_soon(member.run)
        yield Gang(state_dir, port, members, history)
        nursery.cancel_scope.cancel(reason="the test is over")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_C4_a_controller_may_be_killed_at_every_write_of_a_relaunch(when: str, tmp_path: Path) -> None:
    async with open_gang(tmp_path) as gang:
        async with gang.controller() as first:
            epoch = await gang.until_active(first, 1)
        deaths = 0
        for write in range(2, 100):
            async with gang.controller(sys.executable, "-c", DYING, str(write), when) as dying:
                gang.members[0].kill_engine()
                finished = False
                with trio.move_on_after(PATIENCE_SEC):
                    while dying.process.poll() is None and not finished:
                        finished = bool(dying.said("all endpoints are normal in epoch"))
                        await trio.sleep(0.02)
            deaths += not finished
            async with gang.controller() as heir:
                later = await gang.until_active(heir, epoch + 1)
                assert later <= epoch + 2, "no relaunch beyond what one run needs"
                runs = await heir.runs()
                assert all(run.outcome is not None for run in runs), "resumed or closed"
            epoch = later
            if finished:
                break
        assert deaths > 8
        assert gang.started_twice() == []
        assert [member.boots for member in gang.members] == [1, 1], "no container restarted"
        assert [member.registrations + member.reregistrations for member in gang.members] == [1, 1]


async def test_a_journal_that_cannot_be_used_is_exit_code_78_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"no journal at all " * 1000)
    with trio.fail_after(PATIENCE_SEC):
        ended = await trio.run_process(
            list(COMMAND),
            capture_stderr=True,
            check=False,
            env={
                "PATH": "/usr/bin:/bin",
                "PODVISOR_CONTROLLER__PORT": "0",
                "PODVISOR_CONTROLLER__PROBE_PORT": "0",
                "PODVISOR_CONTROLLER__STATE_DIR": str(tmp_path),
            },
        )
    assert ended.returncode == 78
    assert b"file is not a database; move it" in ended.stderr


async def test_a_second_process_on_the_directory_stands_by_and_takes_over(tmp_path: Path) -> None:
    settings = {"CONTROLLER__STATE_DIR": str(tmp_path)}
    async with controller_process(**settings) as first, controller_process(**settings) as second:
        with trio.fail_after(PATIENCE_SEC):
            while not (await first.leads() or await second.leads()):
                await trio.sleep(0.05)
        leader, standby = (first, second) if await first.leads() else (second, first)
        with trio.fail_after(PATIENCE_SEC):
            while (view := await standby.standing()) is None or view.leader != leader.url:
                await trio.sleep(0.05)
        assert view.role == "standby"
        leader.kill()
        with trio.fail_after(PATIENCE_SEC):
            while not await standby.leads():
                await trio.sleep(0.05)
