"""An engine without a controller, under `podvisor run`: its unit's own policy relaunches it in place."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo import fallback_engine
from supervisor.process import procfs
from tests.support.real_processes import TIMEOUT_SEC, alive, gone
from tests.support.running_supervisor import (
    FOREVER,
    RunningSupervisor,
    Sections,
    free_port,
    left_behind,
    service,
    shell,
    supervisor,
)

BANNER = r"^\[ENGINE RELAUNCH #(\d+)\] \S+ epoch=(\d+) instance=\d+ reason=(.*)$"
NEEDS_STORE = {"Requires": ["store"], "After": ["store"]}


def engine(port: int, *options: str, **keys: object) -> Sections:
    """The stand-in engine, ready when it answers /health."""
    command = [sys.executable, "-I", "-S", fallback_engine.__file__, "--port", "${PORT}", *options]
    return {
        **service(*command, **keys),
        "Unit": NEEDS_STORE,
        "Engine": {"Launcher": "exec", "BasePort": port},
        "Readiness": {"Http": f"http://127.0.0.1:{port}/health", "PeriodSec": 0.1},
    }


def scripted(script: str, **keys: object) -> Sections:
    """An engine that says what it is told, ready when it says so."""
    return {
        **service(*shell(script), **keys),
        "Unit": NEEDS_STORE,
        "Engine": {"Launcher": "exec", "BasePort": free_port()},
        "Readiness": {"LogLine": "ready"},
    }


async def relaunched(running: RunningSupervisor, number: int = 1) -> re.Match[str]:
    """The banner of the relaunch of this number, once the engine is ready again."""
    banner = await running.stdout.saw(BANNER, number)
    await running.moved("engine", "loading", "ready", number + 1)
    return banner


async def test_what_runs_before_it_knows_where_it_is_placed_and_finds_nothing_of_the_life_before(
    tmp_path: Path,
) -> None:
    """Each life has an epoch of its own, its ExecStartPre too."""
    epochs = tmp_path / "epochs"
    told = shell(f"echo before $EPOCH $NODE_RANK >> {epochs}")
    script = f"echo main $EPOCH $NODE_RANK >> {epochs}; echo ready; exec sleep 600"
    units = {"store": service(*FOREVER), "engine": scripted(script, ExecStartPre=[told])}
    async with supervisor(tmp_path, units) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGKILL)
        await relaunched(running)
        assert epochs.read_text().splitlines() == ["before 1 0", "main 1 0", "before 2 0", "main 2 0"]


@pytest.mark.seed("S21")
@pytest.mark.seed("S26")
@pytest.mark.seed("S29")
async def test_S29_a_killed_engine_is_relaunched_in_place_and_nothing_of_the_old_one_is_left(tmp_path: Path) -> None:
    port = free_port()
    units = {"store": service(*FOREVER), "engine": engine(port, "--grandchild-holds-port")}
    async with supervisor(tmp_path, units) as running:
        worker = int((await running.stdout.saw(r"\[engine.*\] worker (\d+)"))[1])
        await running.moved("engine", "loading", "ready")
        url = await running.online()
        store, first = await running.started("store"), await running.started("engine")
        assert (await ready(url)) == (200, "ok")

        os.kill(first, signal.SIGKILL)
        banner = await relaunched(running)

        assert banner.groups() == ("1", "2", "killed by SIGKILL; restarting at once (Restart=on-failure)")
        assert not alive(worker)  # it held the port, in a session of its own
        second = await running.started("engine", 2)
        assert environment_of(second, "EPOCH", "PODVISOR_EPOCH") == ["2", "2"]
        assert environment_of(second, "NODE_RANK", "NNODES", "MASTER_ADDR") == ["0", "1", "127.0.0.1"]
        views = await running.units()
        assert (views["store"].pid, views["store"].restarts) == (store, 0)
        assert (views["engine"].pid, views["engine"].restarts, views["engine"].epoch) == (second, 1, 2)
        last = views["engine"].last_exit
        assert last is not None
        assert (last.pid, last.code, last.signal, last.asked, last.epoch) == (first, None, "SIGKILL", False, 1)
        assert (await ready(url)) == (200, "ok")
        async with running.api() as client:
            about = (await client.get("/v1/units")).json()["supervisor"]
        assert (about["relaunch_count"], about["epoch"]) == (1, 2)

        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
    text = str(running.stdout)
    assert text.index(f"worker {worker}") < text.index("[ENGINE RELAUNCH #1]") < text.rindex("listening on")


def environment_of(pid: int, *names: str) -> list[str | None]:
    return [procfs.environment_value(pid, name) for name in names]


async def ready(url: str) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/readyz")
    return answer.status_code, answer.text.strip()


async def test_an_engine_that_exits_with_0_unasked_has_failed_and_is_relaunched(tmp_path: Path) -> None:
    quitter = scripted("trap 'exit 0' USR1; echo ready; sleep 600 & wait")
    async with supervisor(tmp_path, {"store": service(*FOREVER), "engine": quitter}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGUSR1)
        await relaunched(running)
        last = (await running.units())["engine"].last_exit
        assert last is not None
        assert (last.code, last.asked) == (0, False)


async def test_what_only_an_environment_file_says_can_be_used_in_the_command_of_an_engine(tmp_path: Path) -> None:
    said = tmp_path / "engine.env"
    said.write_text("MODEL_PATH=/models/tiny\n")
    filed = scripted("echo serving ${MODEL_PATH}; echo ready; exec sleep 600", EnvironmentFile=str(said))
    async with supervisor(tmp_path, {"store": service(*FOREVER), "engine": filed}) as running:
        await running.stdout.saw("serving /models/tiny")
        await running.moved("engine", "loading", "ready")


async def test_the_next_engine_waits_for_the_device_memory_of_the_old_one(tmp_path: Path) -> None:
    held = tmp_path / "memory"
    probe = shell(f"test ! -e {held} || {{ echo 40 GiB in use; rm {held}; exit 1; }}")
    script = f"trap 'touch {held}; exit 1' USR1; echo ready; sleep 600 & wait"
    sections = scripted(script)
    holding = {**sections, "Engine": {**sections["Engine"], "DeviceMemoryProbe": probe}}
    async with supervisor(tmp_path, {"store": service(*FOREVER), "engine": holding}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGUSR1)
        await relaunched(running)
        assert not held.exists()
        report = await running.stderr.saw("hygiene gate passed: (.*)", 2)
    said = re.sub(r" \(\d+\.\d s\)", "", report[1])
    assert "shared memory: nothing was left; locks: nothing was left; device memory: back" in said


async def test_a_gate_that_does_not_pass_is_the_reason_of_the_failed_start(tmp_path: Path) -> None:
    sections = scripted("echo ready; exec sleep 600", RestartSec="10ms", StartLimitBurst=1)
    probe = {**sections, "Engine": {**sections["Engine"], "DeviceMemoryProbe": "nvml"}}
    async with supervisor(tmp_path, {"store": service(*FOREVER), "engine": probe}) as running:
        assert await running.ended() == 255
    await running.stderr.saw("hygiene gate did not pass: .*device memory: libnvidia-ml.so.1 cannot be loaded")
    await running.stderr.saw("engine: .* the hygiene gate did not pass: device memory: libnvidia-ml.so.1 cannot be")


async def test_an_engine_that_cannot_start_ends_the_container_with_255(tmp_path: Path) -> None:
    broken = scripted("echo no such model; exit 3", RestartSec="10ms", StartLimitBurst=2)
    async with supervisor(tmp_path, {"store": service(*FOREVER), "engine": broken}) as running:
        assert await running.ended() == 255
        assert left_behind() == {}
    reason = (await running.stderr.saw("ending with exit code 255: (.*)"))[1]
    assert "StartLimitAction of engine" in reason
    assert "exited with code 3; start limit hit: 2 starts" in reason
    assert len(running.stdout.matching("no such model")) == 2


async def test_relaunch_on_demand_keeps_the_store(tmp_path: Path) -> None:
    units = {"store": service(*FOREVER), "engine": scripted("echo ready; exec sleep 600")}
    async with supervisor(tmp_path, units) as running:
        await running.moved("engine", "loading", "ready")
        store, first = await running.started("store"), await running.started("engine")
        done = await running.command("relaunch")
        assert (done.returncode, done.stdout) == (0, "the engine was relaunched here\n")
        assert "asked by operator" in (await relaunched(running))[3]
        with trio.fail_after(TIMEOUT_SEC):
            await gone(first)
        views = await running.units()
        assert (views["store"].pid, views["store"].restarts) == (store, 0)
        last = views["engine"].last_exit
        assert last is not None
        assert (last.pid, last.asked_by) == (first, "operator")
