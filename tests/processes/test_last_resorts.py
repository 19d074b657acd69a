"""What nobody hopes to see: an error of our own, a log that nobody reads, stops that never end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    environment,
    left_behind,
    program,
    service,
    shell,
    socket_of,
    supervisor,
    write_files,
)

BROKEN = """
import runpy, sys, trio
from supervisor import daemon, online

async def fail(*arguments, task_status=trio.TASK_STATUS_IGNORED, **options):
    task_status.started()
    await trio.sleep(0.5)
    raise ZeroDivisionError("a bug of our own")

module, name = sys.argv.pop(1).split(":")
setattr({"daemon": daemon, "online": online}[module], name, fail)
sys.argv[0] = "podvisor"
runpy.run_module("supervisor", run_name="__main__")
"""
"""`podvisor …` with one of its tasks replaced."""
GENTLE = shell("trap 'echo stopped gently; exit' TERM; echo up; sleep 600 & wait")


@pytest.mark.parametrize("task", ["online:go_online", "daemon:handle_signals"])
async def test_an_error_of_our_own_ends_with_70_after_all_units_were_stopped(task: str, tmp_path: Path) -> None:
    arguments = write_files(tmp_path, {"web": service(*GENTLE)})
    async with program(sys.executable, "-c", BROKEN, task, *arguments) as running:
        await running.stdout.saw("up")
        with trio.fail_after(TIMEOUT_SEC / 3):  # TimeoutStopSec is 30 s: a stop that nobody verifies takes that long
            assert await running.ended() == 70
        await running.stderr.saw("internal error")
        await running.stderr.saw("ZeroDivisionError: a bug of our own")
        await running.stdout.saw("stopped gently")
        assert left_behind() == {}


BROKEN_STOP = """
import runpy, sys
from supervisor.unit import descent

def fail(*arguments):
    raise ZeroDivisionError("a bug of our own")

descent.words_of = fail
sys.argv[0] = "podvisor"
runpy.run_module("supervisor", run_name="__main__")
"""
"""`podvisor …` that can begin no stop."""


async def test_an_error_of_our_own_in_a_stop_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = write_files(tmp_path, {"web": service(*GENTLE)})
    async with program(sys.executable, "-c", BROKEN_STOP, *arguments) as running:
        await running.stdout.saw("up")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 70, "not by the last deadline, which would leave with 0"
        await running.stderr.saw("internal error")
        await running.stderr.saw("ZeroDivisionError: a bug of our own")
        assert left_behind() == {}


async def test_an_error_of_our_own_does_not_hang_with_its_units(tmp_path: Path) -> None:
    deaf = service(*shell("trap '' TERM; echo up; while :; do sleep 1; done"), TimeoutStopSec="1h")
    arguments = write_files(tmp_path, {"web": deaf}, {"supervisor": {"shutdown_timeout_sec": 1}})
    async with program(sys.executable, "-c", BROKEN, "online:go_online", *arguments) as running:
        await running.stdout.saw("up")
        assert await running.ended() == 70
        await running.stderr.saw("not everything has ended within 6 s: leaving with exit code 70")


NO_THREADS = """
import runpy, sys, threading
from supervisor import daemon
from supervisor.ending import Ending

def refuse(thread):
    raise RuntimeError("can't start new thread")

def request(ending, exit_code, reason):
    threading.Thread.start = refuse
    ask_for_the_end(ending, exit_code, reason)

async def hang(pod, deadline):
    await daemon.trio.sleep_forever()

ask_for_the_end, Ending.request = Ending.request, request
daemon.LAST_ACT_SEC, daemon.Pod.leave = 0.5, hang
sys.argv[0] = "podvisor"
runpy.run_module("supervisor", run_name="__main__")
"""
"""`podvisor …` in a container that is at its limit of processes when its end is asked for."""


async def test_at_the_limit_of_processes_an_end_that_hangs_is_ended_all_the_same(tmp_path: Path) -> None:
    arguments = write_files(tmp_path, {"web": service(*GENTLE)}, {"supervisor": {"shutdown_timeout_sec": 1}})
    async with program(sys.executable, "-c", NO_THREADS, *arguments) as running:
        await running.stdout.saw("up")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        await running.stderr.saw("not everything has ended within 1.5 s: leaving with exit code 0")


async def test_a_log_that_nobody_reads_stalls_nothing(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.write(write_end, b"-" * fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ))
    os.set_blocking(write_end, True)
    arguments = write_files(tmp_path, {"web": service(*FOREVER)})
    process = await trio.lowlevel.open_process(
        [*PODVISOR, *arguments], stdin=subprocess.DEVNULL, stderr=write_end, env=environment()
    )
    try:
        transport = httpx.AsyncHTTPTransport(uds=str(socket_of(tmp_path)), retries=100)
        async with httpx.AsyncClient(transport=transport, base_url="http://podvisor", timeout=TIMEOUT_SEC) as client:
            with trio.fail_after(TIMEOUT_SEC):
                while not socket_of(tmp_path).exists():
                    await trio.sleep(0.05)  # another process makes it: there is no event to wait for
                units = (await client.get("/v1/units")).json()["units"]
        assert [unit["name"] for unit in units] == ["web"]
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(TIMEOUT_SEC):
            assert await process.wait() == 0
    finally:
        if process.poll() is None:
            process.kill()
        os.close(read_end)
        os.close(write_end)
    assert left_behind() == {}


async def test_a_stop_without_a_limit_has_no_last_deadline(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*GENTLE, TimeoutStopSec="infinity")}) as running:
        await running.stdout.saw("up")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert "Traceback" not in str(running.stderr)
        assert left_behind() == {}
