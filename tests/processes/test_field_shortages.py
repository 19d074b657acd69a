"""A running supervisor on a system that has nothing left: no room on the disk, no descriptor."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC, alive
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    RunningSupervisor,
    left_behind,
    program,
    service,
    shell,
    socket_of,
    supervisor,
    write_files,
)

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@needs_mounts
async def test_a_full_disk_stops_no_unit_and_no_command(tmp_path: Path) -> None:
    """State and log files on a file system of 64 KiB that is full before it begins and stays so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    writer = shell("while :; do echo a line of log; sleep 0.01; done")
    units = {"web": service(*writer, StandardOutput=f"file:{disk}/web.log"), "other": service(*FOREVER)}
    arguments = write_files(tmp_path, units, {"supervisor": {"state_dir": str(disk)}})
    fill = f'mount -t tmpfs -o size=64k full {disk} && head -c 1M /dev/zero > {disk}/zeros; exec "$@"'
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", fill, "sh", *PODVISOR, *arguments)
    async with program(*command) as begun:
        running = RunningSupervisor(begun.process, socket_of(tmp_path))
        running.stderr, running.stdout = begun.stderr, begun.stdout
        await running.started("web")
        first = await running.started("other")
        await running.stderr.saw("No space left on device|no space left on device")
        os.kill(first, signal.SIGKILL)
        second = await running.started("other", 2)
        done = await running.command("restart", "web")
        assert done.returncode == 0, done.stderr
        views = await running.units()
        assert (views["other"].pid, views["web"].state) == (second, "active")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_without_descriptors_a_running_supervisor_keeps_its_units_and_recovers(tmp_path: Path) -> None:
    crashing = service(*shell("echo up; exec sleep 600"), RestartSec="200ms", StartLimitBurst=0)
    async with supervisor(tmp_path, {"web": crashing, "other": service(*FOREVER)}) as running:
        first, other = await running.started("web"), await running.started("other")
        await running.online()
        limit = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{running.pid}/fd"))
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (used, limit[1]))
        os.kill(first, signal.SIGKILL)
        await running.stderr.saw("web: .*[Tt]oo many open files")
        assert alive(other)
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, limit)
        with trio.fail_after(TIMEOUT_SEC):
            second = await running.started("web", 2)
        views = await running.units()
        assert (views["web"].pid, views["web"].state, views["other"].pid) == (second, "active", other)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_without_descriptors_a_supervisor_can_be_stopped(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER), "other": service(*FOREVER)}) as running:
        await running.started("web")
        await running.started("other")
        await running.online()
        hard = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{running.pid}/fd")), hard))
        running.signal(signal.SIGTERM)
        code = await running.ended()
        assert left_behind() == {}
    assert code == 0, str(running.stderr)
