"""An orderly end with a real engine: it finishes what it has, within limits, and the exit code is the one asked for."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import FOREVER, Sections, left_behind, service, shell, supervisor

FINISHES = shell(
    "trap 'echo finishing; sleep 0.3; echo finished; exit' TERM; echo serving; while :; do sleep 0.1; done"
)


def engine(*exec_start: str) -> Sections:
    return {**service(*exec_start), "Engine": {"Launcher": "exec"}}


async def test_podvisor_drain_returns_when_the_engine_has_finished_and_sigterm_then_ends_the_rest(
    tmp_path: Path,
) -> None:
    units = {"engine": engine(*FINISHES), "store": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        probes = await running.online()
        await running.stdout.saw("serving")
        done = await running.command("drain")
        assert (done.returncode, done.stdout) == (0, "drained; engine is inactive\n")
        await running.stdout.saw("finished")
        async with httpx.AsyncClient() as client:
            ready = await client.get(f"{probes}/readyz")
        assert (ready.status_code, ready.text) == (503, "endpoint is paused\n")
        assert (await running.units())["store"].state == "active"
        shown = await running.command("status")
        assert "leaving (asked for by operator)" in shown.stdout.splitlines()[0]
        for again in (("start", "engine", "--wait"), ("restart", "engine"), ("relaunch",)):
            refused = await running.command(*again)
            assert refused.returncode == 1
            assert "this pod leaves (asked for by operator), which is not taken back" in refused.stderr
        assert (await running.command("restart", "store")).returncode == 0
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_a_pod_without_an_engine_has_nothing_to_drain(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"store": service(*FOREVER)}) as running:
        await running.online()
        done = await running.command("drain")
        assert (done.returncode, done.stdout) == (0, "there is no engine unit in this pod: nothing to drain\n")


async def test_a_second_sigterm_ends_the_drain(tmp_path: Path) -> None:
    settings = {"supervisor": {"drain_delay_sec": 600, "shutdown_timeout_sec": 1200}}
    async with supervisor(tmp_path, {"engine": engine(*FINISHES)}, settings) as running:
        await running.stdout.saw("serving")
        await running.online()
        running.signal(signal.SIGTERM)
        await running.stderr.saw("the engine goes on for 600 s, until routers know that it leaves")
        running.signal(signal.SIGTERM)
        with trio.fail_after(TIMEOUT_SEC):
            assert await running.ended() == 0
        assert left_behind() == {}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_where_0_would_complete_a_task_the_signal_is_the_exit_code(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    settings = {"supervisor": {"exit_on_term": "signal"}}
    async with supervisor(tmp_path, {"store": service(*FOREVER)}, settings) as running:
        await running.started("store")
        running.signal(number)
        assert await running.ended() == code
        assert left_behind() == {}
