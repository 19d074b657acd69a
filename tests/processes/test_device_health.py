"""DeviceHealthProbe under `podvisor run`: a device that is gone ends the container instead of a row of starts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.running_supervisor import Sections, free_port, service, shell, supervisor


def engine(probe: list[str]) -> Sections:
    return {
        **service(*shell("echo ready; exec sleep 600")),
        "Engine": {"Launcher": "exec", "BasePort": free_port(), "DeviceHealthProbe": probe},
        "Readiness": {"LogLine": "ready"},
    }


async def test_a_device_that_is_gone_is_not_tried_again_in_place(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    probe = shell(f"test ! -e {gone} || {{ echo GPU 3 has fallen off the bus; exit 9; }}")
    async with supervisor(tmp_path, {"engine": engine(probe)}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGKILL)
        await running.moved("engine", "loading", "ready", 2)  # the device is there
        gone.touch()
        os.kill(await running.started("engine", 2), signal.SIGKILL)
        assert await running.ended() == 255
    reason = (await running.stderr.saw("ending with exit code 255: (.*)"))[1]
    assert "hardware: engine: DeviceHealthProbe sh: exit status 9: GPU 3 has fallen off the bus" in reason
    assert "not tried again in place" in reason
    assert len(running.stdout.matching("ready")) == 2


async def test_a_probe_that_cannot_be_run_says_nothing_of_the_device(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"engine": engine(["/nowhere/nvidia-smi"])}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGKILL)
        await running.moved("engine", "loading", "ready", 2)
        await running.stderr.saw("error .*DeviceHealthProbe of engine cannot be run, and says nothing")
