"""Several engine processes in one pod, and several engines, under `podvisor run` without a controller."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from controller.demo import fallback_engine
from supervisor.process import procfs
from tests.support.running_supervisor import RunningSupervisor, Sections, free_port, service, shell, supervisor


def engine(port: int, endpoints: int, **keys: object) -> Sections:
    """The stand-in engine, ready when it answers /health on the port it was given."""
    command = [sys.executable, "-I", "-S", fallback_engine.__file__, "--port", "${PORT}"]
    return {
        **service(*command),
        "Engine": {"Launcher": "exec", "BasePort": port, "Endpoints": endpoints, **keys},
        "Readiness": {"Http": "http://127.0.0.1:${PORT}/health", "PeriodSec": 0.1},
    }


def seen_by(pid: int, *names: str) -> list[str | None]:
    return [procfs.environment_value(pid, name) for name in names]


async def ready(running: RunningSupervisor, *units: str, count: int = 1) -> list[int]:
    for unit in units:
        await running.moved(unit, "loading", "ready", count)
    return [await running.started(unit, count) for unit in units]


async def test_each_endpoint_has_its_port_its_rank_and_its_devices(tmp_path: Path) -> None:
    port = free_port()
    async with supervisor(tmp_path, {"engine": engine(port, 2)}, CUDA_VISIBLE_DEVICES="GPU-a,GPU-b") as running:
        first, second = await ready(running, "engine@0", "engine@1")
        names = ("PORT", "DP_RANK", "DP_SIZE", "CUDA_VISIBLE_DEVICES", "DEVICE_IDS", "PODVISOR_UNIT")
        assert seen_by(first, *names) == [str(port), "0", "2", "GPU-a", "GPU-a", "engine@0"]
        assert seen_by(second, *names) == [str(port + 2), "1", "2", "GPU-b", "GPU-b", "engine@1"]
        assert "[ENGINE RELAUNCH" not in str(running.stdout)


@pytest.mark.seed("S26")
async def test_of_two_standalone_endpoints_only_the_dead_one_is_relaunched(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"engine": engine(free_port(), 2)}) as running:
        first, second = await ready(running, "engine@0", "engine@1")
        os.kill(second, signal.SIGKILL)
        await running.stdout.saw(r"^\[ENGINE RELAUNCH #1\]")
        await ready(running, "engine@1", count=2)
        views = await running.units()
        assert (views["engine@0"].pid, views["engine@0"].restarts) == (first, 0)
        assert views["engine@1"].restarts == 1


async def test_devices_that_do_not_suffice_are_named_and_nothing_is_spawned(tmp_path: Path) -> None:
    units = {"engine": engine(free_port(), 2, DevicesPerEndpoint=2)}
    async with supervisor(tmp_path, units, CUDA_VISIBLE_DEVICES="0,1,2") as running:
        await running.stderr.saw(r"engine@0: .*2 endpoints with 2 devices each need 4, this pod has 3")
        assert not running.stderr.matching("started as pid")


async def test_a_second_engine_that_stays_local_runs_what_its_own_file_says(tmp_path: Path) -> None:
    port = free_port()
    units = {
        "chat": engine(free_port(), 1),
        "embed": {
            **service(*shell('echo "I embed on $PORT"; exec sleep 600')),
            "Engine": {"Launcher": "exec", "BasePort": port, "RestartWith": "local"},
            "Readiness": {"LogLine": "I embed"},
        },
    }
    async with supervisor(tmp_path, units) as running:
        await running.stdout.saw(rf"\[embed.*\] I embed on {port}")
        chat, embed = await ready(running, "chat", "embed")
        os.kill(embed, signal.SIGKILL)
        await ready(running, "embed", count=2)
        assert (await running.units())["chat"].pid == chat


async def test_only_an_engine_s_lines_and_exits_carry_an_epoch(tmp_path: Path) -> None:
    """A monitor outlives epochs: the one that it was started in would mislead whoever reads its lines."""
    units = {
        "engine": engine(free_port(), 1),
        "monitor": {
            **service(*shell("echo watching; exec sleep 600"), Restart="always"),
            "Unit": {"After": ["engine"]},
        },
    }
    async with supervisor(tmp_path, units) as running:
        await running.stdout.saw(r"^\[engine epoch=1 rank=0\] ")
        await running.stdout.saw(r"^\[monitor\] watching$")
        os.kill(await running.started("monitor"), signal.SIGKILL)
        await running.started("monitor", 2)
        views = await running.units()
        assert (views["engine"].epoch, views["monitor"].epoch) == (1, None)
        assert views["monitor"].last_exit is not None
        assert views["monitor"].last_exit.epoch is None


async def test_the_memory_of_an_endpoint_s_own_devices_is_waited_for(tmp_path: Path) -> None:
    """Its sibling goes on using the others: of those nothing comes back."""
    seen = tmp_path / "seen"
    probe = shell(f"echo $PODVISOR_UNIT $CUDA_VISIBLE_DEVICES >> {seen}")
    units = {"engine": engine(free_port(), 2, DeviceMemoryProbe=probe)}
    async with supervisor(tmp_path, units, CUDA_VISIBLE_DEVICES="GPU-a,GPU-b") as running:
        await ready(running, "engine@0", "engine@1")
    assert sorted(seen.read_text().splitlines()) == ["engine@0 GPU-a", "engine@1 GPU-b"]
