"""What users of other process managers reported: one end-to-end test for each line of the list.

The numbers are those of the list in `tests/unit/test_field_reports.py`, which also says where the others are tested.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC, alive
from tests.support.running_supervisor import (
    FOREVER,
    free_port,
    left_behind,
    program,
    service,
    shell,
    supervisor,
)


async def test_3_05_a_unit_that_dies_at_once_is_retried_as_any_other(tmp_path: Path) -> None:
    counted = tmp_path / "starts"
    script = f"echo x >> {counted}; [ $(wc -l < {counted}) -lt 4 ] && exit 1; echo up; exec sleep 600"
    units = {"web": {**service(*shell(script), RestartSec="10ms"), "Readiness": {"LogLine": "up"}}}
    async with supervisor(tmp_path, units) as running:
        await running.moved("web", "loading", "ready")
        assert (await running.units())["web"].restarts == 3


async def test_3_11_what_an_earlier_supervisor_left_is_found_at_the_start_and_named(tmp_path: Path) -> None:
    """Not being PID 1, a supervisor that is killed leaves its units. They are not ours to kill, and not passed over."""
    port = free_port()
    listens = (
        f"import socket, time; s = socket.create_server(('0.0.0.0', {port})); print('up', flush=True); time.sleep(600)"
    )
    engine = {
        **service(sys.executable, "-I", "-S", "-c", listens, RestartSec="50ms", StartLimitBurst=0),
        "Engine": {"Launcher": "exec", "BasePort": port},
        "Readiness": {"LogLine": "up"},
    }
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with supervisor(tmp_path / "one", {"engine": engine}) as first:
        await first.moved("engine", "loading", "ready")
        left = await first.started("engine")
        first.signal(signal.SIGKILL)
        await first.process.wait()
        async with supervisor(tmp_path / "two", {"engine": engine}) as second:
            await second.stderr.saw(f"hygiene gate did not pass: .*port .*{port} .*: held by process {left} ")
            assert alive(left)
            os.kill(left, signal.SIGKILL)
            await second.moved("engine", "loading", "ready")


REUSE = """
import os, signal, sys, time
from supervisor.process import procfs
from supervisor.process.pidfd import signal_process

def fork_as(pid):
    "The next process gets this number, if the kernel can give it."
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    return child

dead = os.fork()
if dead == 0:
    os._exit(7)
identity = procfs.read_stat(dead).identity
os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
pinned = fork_as(dead)
print("pinned by its zombie" if pinned != dead else "reused", flush=True)
os.waitpid(dead, 0)
time.sleep(0.02)  # two ticks of the clock of start times
stranger = fork_as(dead)
print("reused" if stranger == dead else "not reused", flush=True)
print("signalled" if signal_process(identity, signal.SIGKILL) else "spared", flush=True)
print("alive" if procfs.read_stat(stranger).alive else "dead", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="choosing the next pid needs a pid namespace of one's own")
async def test_3_22_a_number_that_is_used_again_is_not_signalled() -> None:
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", REUSE)
    async with program(*command) as running:
        with trio.fail_after(TIMEOUT_SEC):
            await running.process.wait()
            await running.stdout.ended.wait()
        assert str(running.stdout).split("\n") == ["pinned by its zombie", "reused", "spared", "alive"], running.stderr


DAEMON = "(setsid sh -c 'trap \"\" HUP; echo daemon $$$$; exec sleep 600' &); exit 0"


async def test_3_23_a_program_that_daemonises_is_said_to_and_not_started_twice(tmp_path: Path) -> None:
    units = {"web": service(*shell(DAEMON), Restart="always", RestartSec="50ms"), "other": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        daemons = [int((await running.stdout.saw(r"daemon (\d+)", number))[1]) for number in (1, 2)]
        await running.stderr.saw(r"web: .*left 1 process running.*ExitType")
        assert not alive(daemons[0])


async def test_3_25_who_depends_on_a_unit_that_crashed_stays_up_and_it_comes_back(tmp_path: Path) -> None:
    needs = {"Requires": ["store"], "After": ["store"]}
    units = {"store": service(*FOREVER), "web": {**service(*FOREVER), "Unit": needs}}
    async with supervisor(tmp_path, units) as running:
        store, web = await running.started("store"), await running.started("web")
        os.kill(store, signal.SIGKILL)
        assert await running.started("store", 2) != store
        views = await running.units()
        assert (views["web"].pid, views["web"].state, views["store"].state) == (web, "active", "active")


async def test_3_28_a_unit_that_waits_for_its_dependency_can_be_restarted_and_stopped(tmp_path: Path) -> None:
    never = {**service(*FOREVER), "Readiness": {"LogLine": "never"}}
    needs = {"Requires": ["store"], "After": ["store"]}
    async with supervisor(tmp_path, {"store": never, "web": {**service(*FOREVER), "Unit": needs}}) as running:
        await running.started("store")
        await running.online()
        assert (await running.units())["web"].sub_state == "waiting"
        for verb in ("stop", "stop"):
            done = await running.command(verb, "web")
            assert done.returncode == 0, done.stderr
        assert (await running.units())["web"].sub_state == "dead"
        async with running.api() as client, trio.open_nursery() as nursery:
            for verb in ("start", "restart", "restart"):
                nursery.start_soon(client.post, f"/v1/units/web/{verb}")
            await trio.sleep(0.2)
            assert (await running.units())["web"].sub_state == "waiting"
            nursery.start_soon(client.post, "/v1/units/web/stop")
        assert (await running.units())["web"].sub_state == "dead"
        assert running.stderr.matching(r"web: .*started as pid") == []
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_3_30_the_control_socket_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        await running.online()
        assert running.socket.stat().st_mode & 0o777 == 0o600
