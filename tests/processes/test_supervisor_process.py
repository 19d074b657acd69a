"""`podvisor run` as a process: its signals, its end, and a container stdout that nobody reads."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC, alive, told
from tests.support.running_supervisor import (
    FOREVER,
    RunningSupervisor,
    blocks,
    left_behind,
    service,
    shell,
    supervisor,
)

STUBBORN = shell("trap '' TERM; echo deaf; while :; do sleep 1; done")
ESCAPED = shell("setsid sh -c 'trap \"\" TERM; echo escaped; while :; do sleep 1; done' & sleep 600")
"""Leaves a child in a session of its own, which does not listen either."""
MANY_LINES = 400_000
"""More than every buffer on the way holds."""
TALKATIVE = shell(f"yes 'a line of an engine that says too much' | head -n {MANY_LINES}; touch $0; sleep 600")


def noting(name: str, log: Path, lingers_sec: float) -> list[str]:
    """A program that notes when it has begun, and when it has ended as it was asked to."""
    end = f"sleep {lingers_sec}; echo stop {name} >>{log}; exit"
    return shell(f"trap '{end}' TERM; echo start {name} | tee -a {log}; sleep 600 & wait")


async def test_sigterm_stops_in_reverse_order_and_leaves_nothing(tmp_path: Path) -> None:
    """Those that must stop first take longest: at the same time they would be the last."""
    log = tmp_path / "log"
    units = {
        "store": service(*noting("store", log, 0.0)),
        "engine": {**service(*noting("engine", log, 0.2)), "Unit": {"Requires": ["store"], "After": ["store"]}},
        "monitor": {**service(*noting("monitor", log, 0.4)), "Unit": {"After": ["engine"]}},
    }
    async with supervisor(tmp_path, units) as running:
        for name in units:
            await running.stdout.saw(f"start {name}")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
        assert not running.socket.exists()
    assert log.read_text().split("\n")[-4:] == ["stop monitor", "stop engine", "stop store", ""]


async def test_sigterm_ends_what_has_escaped(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*ESCAPED, TimeoutStopSec="100ms")}) as running:
        await running.stdout.saw("escaped")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_sigterm_while_units_start_and_back_off(tmp_path: Path) -> None:
    never_ready = {**service(*FOREVER), "Readiness": {"LogLine": "never"}}
    units = {
        "loading": never_ready,
        "waiting": {**service(*FOREVER), "Unit": {"After": ["loading"]}},
        "failing": service("false", RestartSec="30s"),
    }
    async with supervisor(tmp_path, units) as running:
        await running.moved("loading", "start", "loading")
        await running.moved("failing", "cleaning", "auto-restart")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
        assert not running.stderr.matching(r"waiting: start")


async def test_sigterm_during_start_up_is_not_lost(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        await blocks(running.pid, signal.SIGTERM)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_a_second_sigterm_hurries(tmp_path: Path) -> None:
    units = {
        "deaf": service(*STUBBORN, TimeoutStopSec="60s"),
        "above": {**service(*STUBBORN, TimeoutStopSec="60s"), "Unit": {"After": ["deaf"]}},
    }
    async with supervisor(tmp_path, units) as running:
        await running.stdout.saw("deaf.*deaf")
        await running.stdout.saw("above.*deaf")
        running.signal(signal.SIGTERM)
        await running.moved("above", "ready", "stop-term")
        running.signal(signal.SIGINT)
        with trio.fail_after(TIMEOUT_SEC / 2):  # the time-outs would need longer
            assert await running.ended() == 0
        assert left_behind() == {}


async def test_sigquit_shows_the_tasks_and_sighup_does_no_harm(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        pid = await running.started("web")
        await running.online()
        running.signal(signal.SIGQUIT)
        await running.stderr.saw(r"^ +supervisor\.service\.units\.Units\._live  .*service\.py:\d+")
        running.signal(signal.SIGHUP)
        await running.stderr.saw("SIGHUP")
        assert (await running.units())["web"].pid == pid
        assert running.process.poll() is None
        assert alive(pid)


@pytest.mark.parametrize("gone", [False, True], ids=["never reads", "goes away"])
async def test_a_reader_of_stdout_that(gone: bool, tmp_path: Path) -> None:
    """It stalls neither units nor the end."""
    read_end, write_end = os.pipe()
    marker = tmp_path / "said"
    async with supervisor(tmp_path, {"web": service(*TALKATIVE, str(marker))}, stdout=write_end) as running:
        os.close(write_end)
        if gone:
            os.close(read_end)
        await said_all(running, marker)
        async with running.api() as client:
            assert (await client.get("/v1/units/web/logs?lines=1")).text.startswith("a line")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
    if not gone:
        os.close(read_end)


async def said_all(running: RunningSupervisor, marker: Path) -> None:
    await running.online()
    with trio.fail_after(TIMEOUT_SEC):
        await told(marker, lines=0)


async def test_sigusr1_opens_log_files_anew(tmp_path: Path) -> None:
    log, moved = tmp_path / "web.log", tmp_path / "moved"
    says = service(*shell("while :; do echo line; sleep 0.05; done"), StandardOutput=f"file:{log}")
    async with supervisor(tmp_path, {"web": says}) as running:
        with trio.fail_after(TIMEOUT_SEC):
            await told(log)
            log.rename(moved)
            running.signal(signal.SIGUSR1)
            await told(log)
        assert running.process.poll() is None
