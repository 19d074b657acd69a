"""A gigabyte of output and nobody who reads it: the unit goes on, memory stays bounded, the end is not held up.

The form for every day writes less: `PODVISOR_TEST_OUTPUT_MB=1000 pytest tests/processes/test_field_output.py`.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
from pathlib import Path

import trio

from tests.support.real_processes import TIMEOUT_SEC, alive, told
from tests.support.running_supervisor import RunningSupervisor, left_behind, service, shell, supervisor

MEGABYTES = int(os.environ.get("PODVISOR_TEST_OUTPUT_MB", "100"))
GROWTH_BYTES = 24 * 1024 * 1024
"""What a sink may hold of one stream, with the copies that are being written."""


def writes_much(done: Path) -> list[str]:
    """Once it is let go: what was written before somebody follows would not meet the test."""
    go = f"until [ -e {done}.go ]; do sleep 0.05; done"
    much = f"yes 'a line of log, as engines write it' | head -c {MEGABYTES}MB"
    return shell(f"{go}; {much}; echo x > {done}; exec sleep 600")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def written(done: Path) -> None:
    done.with_name(f"{done.name}.go").touch()
    with trio.fail_after(TIMEOUT_SEC + MEGABYTES):
        await told(done)


async def test_3_15_a_reader_of_our_stdout_that_stops_reading_stops_nobody(tmp_path: Path) -> None:
    """And 3_16: the supervisor's memory does not grow with what is written."""
    read_end, write_end = os.pipe()
    done = tmp_path / "done"
    try:
        units = {"web": service(*writes_much(done)), "other": service(*shell("echo up; exec sleep 600"))}
        async with supervisor(tmp_path, units, stdout=write_end) as running:
            await running.online()
            before = resident(running.pid)
            await written(done)
            grown = resident(running.pid) - before
            print(f"{MEGABYTES} MB written, nobody read; memory grew by {grown / 1e6:.1f} MB")
            assert grown < GROWTH_BYTES
            views = await running.units()
            assert {view.state for view in views.values()} == {"active"}
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
            assert left_behind() == {}
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_3_17_a_client_that_follows_and_stops_reading_holds_nothing_up(tmp_path: Path) -> None:
    done = tmp_path / "done"
    silent = service(*writes_much(done), StandardOutput="null")
    async with supervisor(tmp_path, {"web": silent}, stdout=subprocess.DEVNULL) as running:
        await running.online()
        client = follow_and_stop_reading(running)
        try:
            before = resident(running.pid)
            await written(done)
            grown = resident(running.pid) - before
            print(f"{MEGABYTES} MB written, the client did not read; memory grew by {grown / 1e6:.1f} MB")
            assert grown < GROWTH_BYTES
            (view,) = (await running.units()).values()
            assert view.pid is not None
            assert alive(view.pid)
            running.signal(signal.SIGTERM)
            with trio.fail_after(TIMEOUT_SEC / 2):
                assert await running.ended() == 0
            assert left_behind() == {}
        finally:
            client.close()


def follow_and_stop_reading(running: RunningSupervisor) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(str(running.socket))
    client.sendall(b"GET /v1/units/web/logs?follow=1 HTTP/1.1\r\nHost: podvisor\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    return client
