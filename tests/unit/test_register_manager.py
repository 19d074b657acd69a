"""Registration and metadata, apart from process management (seed S18): what is told, and what outlives a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor import wire
from supervisor.engine.model import progress
from supervisor.engine.model.operation import Operation
from supervisor.engine.register_manager import STATE_FILE, RegisterManager, ServicePorts
from supervisor.wire import Step
from tests.support.operations import Rig, placement, prepare, rig_at
from tests.support.state_files import kept_at_once

pytestmark = pytest.mark.seed("S18")

IDENTITY = wire.SupervisorIdentity(
    job_name="job", model_name="m", role="union", pod_ip="10.0.0.1", nm_port="1026", protocol=1, features=("prepare",)
)


def manager(directory: Path) -> RegisterManager:
    return RegisterManager(IDENTITY, ServicePorts(("10000",), ("10001",)), directory / "state", kept_at_once)


def started(epoch: int = 4) -> Operation:
    rig = Rig()
    rig.accepted(placement(epoch=epoch, term=3, master_dp_ip="10.0.0.7", role="decode", master_port=29504))
    for effect in (rig.stopped, rig.clean, rig.spawned, rig.loaded):
        effect()
    return rig.state


def test_S18_master_and_role_and_launch_parameters_outlive_the_container(tmp_path: Path) -> None:
    operation = started()
    manager(tmp_path).record(operation)
    again = manager(tmp_path)
    assert (again.remembered.master_dp_ip, again.remembered.role) == ("10.0.0.7", "decode")
    assert (again.remembered.epoch, again.remembered.term) == (4, 3)
    assert again.restart_params() == operation.placement


def test_S18_restart_parameters_are_those_of_the_last_prepare_or_start(tmp_path: Path) -> None:
    kept = manager(tmp_path)
    assert kept.restart_params() is None
    rig = rig_at(Step.DONE)
    kept.record(rig.state)
    rig.accepted(prepare(2, "run-2", start=placement(epoch=2, master_port=29502)))
    kept.record(rig.state)
    params = kept.restart_params()
    assert params is not None
    assert (params.epoch, params.master_port) == (2, 29502)


def test_a_new_boot_fences_by_what_it_remembers_and_registers_anew(tmp_path: Path) -> None:
    """Persisted parameters never start an engine in a new boot (design 7)."""
    manager(tmp_path).record(started())
    again, fresh = manager(tmp_path), Operation(boot_id="boot-2", booted_at=0.0)
    assert again.reregister_message(fresh, now=0.0) is None
    message = again.register_message(fresh)
    assert (message.epoch, message.term, message.protocol, message.features) == (4, 3, 1, ("prepare",))
    assert (message.business_port, message.mgmt_port) == (("10000",), ("10001",))
    again.record(fresh)
    assert (again.remembered.epoch, again.remembered.term) == (4, 3), "the highest ever seen"


def test_engines_of_this_boot_are_told_to_a_controller_that_forgot_them(tmp_path: Path) -> None:
    kept, operation = manager(tmp_path), started()
    kept.record(operation)
    message = kept.reregister_message(operation, now=0.0)
    assert message is not None
    assert operation.placement is not None
    assert (message.instance_id, message.epoch, message.endpoints) == (
        operation.placement.instance_id,
        4,
        operation.placement.endpoints,
    )


@pytest.mark.parametrize("nnodes, told", [(1, True), (2, False)])
def test_an_engine_that_its_own_unit_started_is_no_rank_of_a_gang(nnodes: int, told: bool, tmp_path: Path) -> None:
    """Taken for one, it would be stopped as soon as that of another node is in a later epoch."""
    identity = replace(IDENTITY, nnodes=nnodes)
    kept = RegisterManager(identity, ServicePorts(("10000",), ("10001",)), tmp_path, kept_at_once)
    rig = Rig()
    rig.feed(progress.StartedLocally(placement(instance_id=0, epoch=1), 1))
    assert (kept.reregister_message(rig.state, now=0.0) is not None) is told


@pytest.mark.parametrize("written", [b"", b"{", b'{"epoch": "many"}'])
def test_a_file_that_cannot_be_read_is_no_reason_not_to_start(
    written: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / STATE_FILE).write_bytes(written)
    assert manager(tmp_path).remembered.epoch == 0
    assert "starting from epoch 0" in caplog.text


def test_a_disk_that_fails_costs_a_line_and_no_relaunch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    kept = manager(tmp_path)
    kept.record(started())
    assert kept.restart_params() is not None
    assert "cannot write" in caplog.text
