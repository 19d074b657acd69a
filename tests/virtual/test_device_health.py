"""DeviceHealthProbe in a gang, in virtual time: what prepare answers and what is reported after a death."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.engine.model import reports
from supervisor.engine.model.reports import Delivered
from supervisor.engine.operator import CommandRefused
from supervisor.wire import Action, EngineRestartMsg, ErrorCode, FaultCategory, Step
from tests.support.fake_processes import FAILED, Program
from tests.virtual.test_pod import COORDINATED, ENGINE, GOOD, placement, running

UNIT = ENGINE.replace('Launcher = "exec"\n', 'Launcher = "exec"\nDeviceHealthProbe = ["device"]\n')
GONE, HANGS = Program(0.0, ends=FAILED), Program()


@pytest.mark.parametrize("device, why", [(GONE, "device: exit status 1"), (HANGS, "did not end within 10 s")])
async def test_prepare_answers_failed_with_hardware_when_a_device_is_gone(
    device: Program, why: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, COORDINATED, engine=UNIT) as pod:
        assert pod.it.supervision is not None
        operator = pod.it.supervision.operator
        pod.processes.programs["device"] = GOOD
        await operator.command(placement(1))
        await operator.changed.wait_until(lambda: operator.state, lambda state: state.step is Step.DONE)
        pod.processes.programs["device"] = device
        relaunch = EngineRestartMsg(action=Action.PREPARE, epoch=2, run_id="run-2", start=placement(2))
        with trio.move_on_after(0.01), suppress(CommandRefused):
            await operator.command(relaunch)
        await operator.changed.wait_until(lambda: operator.state, lambda state: state.step is Step.FAILED)
        with pytest.raises(CommandRefused) as refused:  # the same again gets the same answer
            await operator.command(relaunch)
        assert (refused.value.code, refused.value.category) == (ErrorCode.FAILED, FaultCategory.HARDWARE)
        assert why in refused.value.message
        assert operator.state.freeze is None
        status = pod.it.supervision.node_manager.status()
        assert status.operation is not None
        assert status.operation.category is FaultCategory.HARDWARE
        assert pod.processes.alive("engine") == 0
        assert pod.processes.alive("device") == 0


async def test_a_death_with_its_device_is_reported_at_once_and_then_as_hardware(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, COORDINATED, engine=UNIT) as pod:
        assert pod.it.supervision is not None
        operator, endpoint = pod.it.supervision.operator, pod.it.supervision.engine.endpoints[0]
        pod.processes.programs["device"] = GOOD
        await operator.command(placement(1))
        pod.processes.programs["device"] = Program(2.0, ends=FAILED)
        pid = endpoint.service.state.pid
        assert pid is not None
        pod.processes.crash(pid)
        state = await operator.changed.wait_until(lambda: operator.state, lambda state: bool(state.dead))
        assert state.device_fault is None
        report = reports.due(Delivered(), endpoint.observation())
        assert report is not None
        assert report.exception_type == "engine_dead"
        told = reports.delivered(Delivered(), report)
        await operator.changed.wait_until(lambda: operator.state, lambda state: state.device_fault is not None)
        report = reports.due(told, endpoint.observation())
        assert report is not None
        message = pod.it.supervision.engine.fault_message(report)
        assert (message.exception_type, message.category) == ("device_fault", FaultCategory.HARDWARE)
