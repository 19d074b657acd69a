"""The wall clock is set, by years and in both directions, while units run: nothing happens."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.running_supervisor import (
    PODVISOR,
    RunningSupervisor,
    left_behind,
    program,
    service,
    shell,
    socket_of,
    write_files,
)

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the stand-in for the wall clock is compiled with cc")
YEAR_SEC = 365 * 24 * 3600
WALL_CLOCK = r"""
/* The wall clock, moved by what stands in the file $WALL_CLOCK_OFFSET. No other clock is touched. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *offset;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    offset = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}
int clock_gettime(clockid_t which, struct timespec *found) {
    int result = syscall(SYS_clock_gettime, which, found);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) found->tv_sec += *offset;
    return result;
}
int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    def __init__(self, directory: Path) -> None:
        assert COMPILER is not None
        self._offset, source = directory / "offset", directory / "clock.c"
        self.library = directory / "clock.so"
        source.write_text(WALL_CLOCK)
        command = [COMPILER, "-shared", "-fPIC", "-o", str(self.library), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        self._offset.write_bytes(struct.pack("q", 0))

    @property
    def variables(self) -> tuple[str, ...]:
        return f"LD_PRELOAD={self.library}", f"WALL_CLOCK_OFFSET={self._offset}"

    def step(self, seconds: int) -> None:
        with open(self._offset, "r+b") as file:
            file.write(struct.pack("q", seconds))


async def test_3_18_a_clock_that_is_set_changes_nothing(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    feeds = service(*shell("exec sleep 600"), RestartSec="50ms", RestartMaxDelaySec="200ms", StartLimitBurst=0)
    probed = {
        **service(*shell("echo up; exec sleep 600")),
        "Readiness": {"LogLine": "up"},
        "Liveness": {"Exec": ["true"], "PeriodSec": 0.1, "TimeoutSec": 30, "FailureThreshold": 1},
    }
    arguments = write_files(tmp_path, {"crashes": feeds, "probed": probed})
    async with program("env", *clock.variables, *PODVISOR, *arguments) as begun:
        running = RunningSupervisor(begun.process, socket_of(tmp_path))
        running.stderr, running.stdout = begun.stderr, begun.stdout
        probed_pid = await running.started("probed")
        await running.online()
        started = 1
        for years in (10, -10, 25, 0):
            clock.step(years * YEAR_SEC)
            for _ in range(2):  # the first restart is immediate, those that follow are backed off
                os.kill(await running.started("crashes", started), signal.SIGKILL)
                started += 1
                await running.started("crashes", started)
            views = await running.units()
            assert views["crashes"].restarts == started - 1
            assert (views["probed"].pid, views["probed"].state, views["probed"].restarts) == (probed_pid, "active", 0)
            ending = views["crashes"].last_exit
            assert ending is not None
            assert 0 <= ending.uptime_sec < 600
            async with running.api() as client:
                about = (await client.get("/v1/units")).json()["supervisor"]
            assert 0 < about["uptime_sec"] < 600
            done = await running.command("status")
            assert done.returncode == 0, done.stderr
        years_seen = {line[0] for line in running.stderr.matching(r"^\d{4}")}
        assert len(years_seen) >= 3  # the clock did move
        clock.step(-20 * YEAR_SEC)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
