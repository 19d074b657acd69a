"""`podvisor run` in a gang, over real HTTP: what a controller asks of it, and what it tells one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor import wire
from tests.processes.test_canary import Moody
from tests.support.real_processes import TIMEOUT_SEC, told
from tests.support.recording_controller import recording_controller
from tests.support.running_supervisor import RunningSupervisor, Sections, free_port, service, shell, supervisor

IP = "127.0.0.1"
JOB = "llama"


class NodeManager:
    """As its controller speaks to it."""

    def __init__(self, running: RunningSupervisor, client: httpx.AsyncClient, engine_port: int) -> None:
        self.running = running
        self._client = client
        self._engine_port = engine_port

    async def post(self, route: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = await self._client.post(f"/node-manager/{route}", json=dict(body))
        return answer.status_code, answer.json()

    async def command(self, action: str, epoch: int, **more: object) -> tuple[int, dict[str, Any]]:
        return await self.post("engine-restart", {"action": action, "epoch": epoch, "term": 1, **more})

    async def start(self, epoch: int = 1) -> tuple[int, dict[str, Any]]:
        port = str(self._engine_port)
        endpoint = wire.Endpoint(id=0, ip=IP, business_port=port, mgmt_port=port)
        message = wire.StartCmdMsg(
            job_name=JOB, role="union", instance_id=7, endpoints=(endpoint,), master_dp_ip=IP, epoch=epoch, term=1
        )
        return await self.post("start", json.loads(wire.encode(message)))


@asynccontextmanager
async def coordinated(
    directory: Path, engine: Sections, controller_url: str = "", **more: object
) -> AsyncIterator[NodeManager]:
    """Without a URL nobody listens where the controller should be."""
    port = free_port()
    settings = {
        "supervisor": {
            "pod_ip": IP,
            "host": IP,
            "port": port,
            "controller_url": controller_url or f"http://{IP}:{free_port()}",
            "job_name": JOB,
            "heartbeat_interval_seconds": 1,
            **more,
        },
    }
    async with (
        supervisor(directory, {"engine": engine}, settings) as running,
        httpx.AsyncClient(base_url=f"http://{IP}:{port}", timeout=TIMEOUT_SEC) as client,
    ):
        await running.online()
        yield NodeManager(running, client, int(str(engine["Engine"]["BasePort"])))


def with_engine(unit: Sections, **keys: object) -> Sections:
    return {**unit, "Engine": {**unit["Engine"], **keys}}


async def test_an_engine_is_asked_to_recover_by_http_and_nothing_is_restarted(tmp_path: Path) -> None:
    engine = Moody(tmp_path, Enabled=False)
    async with coordinated(tmp_path, with_engine(engine.unit, RecoverHttp=f"{engine.url}/recover")) as node_manager:
        assert (await node_manager.start())[0] == 200
        pid = await node_manager.running.started("engine")
        await node_manager.running.moved("engine", "loading", "ready")
        await node_manager.running.stderr.saw("engine loading -> done")
        status, answer = await node_manager.command("recover", 1, run_id="recovery-1", recovery="uce")
        assert (status, answer["recovery"], answer["step"]) == (200, "done", "done")
        await node_manager.running.stdout.saw("asked for work while works")
        engine.feels("500")
        status, answer = await node_manager.command("recover", 1, run_id="recovery-2")
        assert (status, answer["error"], answer["message"]) == (
            500,
            "failed",
            "the engine did not recover: the engine: HTTP 500",
        )
        assert (await node_manager.command("recover", 2, run_id="recovery-3"))[0] == 409
        view = (await node_manager.running.units())["engine"]
        assert (view.pid, view.restarts) == (pid, 0)


async def test_an_engine_is_asked_to_recover_by_a_command_that_knows_what_for(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    unit = {
        **service(*shell("echo ready; exec sleep 600")),
        "Engine": {
            "Launcher": "exec",
            "BasePort": free_port(),
            "RecoverExec": shell(f"echo $PODVISOR_RECOVERY $PODVISOR_FAULT_CODE $MAINPID $EPOCH > {heard}"),
        },
        "Readiness": {"LogLine": "ready"},
    }
    async with coordinated(tmp_path, unit) as node_manager:
        assert (await node_manager.command("recover", 1))[0] == 409  # nothing runs yet
        await node_manager.start()
        pid = await node_manager.running.started("engine")
        await node_manager.running.stderr.saw("engine loading -> done")
        more = {"run_id": "recovery-1", "recovery": "token_reinference", "fault_code": 0x00F1FEF5}
        assert (await node_manager.command("recover", 1, **more))[0] == 200
        assert await told(heard) == [f"token_reinference 0xf1fef5 {pid} 1"]


async def test_a_unit_that_declares_no_way_to_recover_says_so(tmp_path: Path) -> None:
    engine = Moody(tmp_path, Enabled=False)
    async with coordinated(tmp_path, engine.unit) as node_manager:
        await node_manager.start()
        await node_manager.running.stderr.saw("engine loading -> done")
        status, answer = await node_manager.command("recover", 1)
        assert (status, answer["error"]) == (422, "unsupported")


@pytest.mark.seed("S10")
async def test_a_relaunch_is_409_while_a_snapshot_is_restored_and_200_when_it_is(tmp_path: Path) -> None:
    go = tmp_path / "go"
    restore = f"echo restoring; while [ ! -e {go} ]; do sleep 0.05; done; echo ready; exec sleep 600"
    unit = {
        **service(*shell("echo cold; echo ready; exec sleep 600")),
        "Engine": {"Launcher": "exec", "BasePort": free_port(), "RestoreExec": shell(restore)},
        "Readiness": {"LogLine": "ready"},
    }
    async with coordinated(tmp_path, unit) as node_manager:
        assert (await node_manager.start())[0] == 200
        await node_manager.running.stdout.saw("restoring")
        status, answer = await node_manager.command("prepare", 2, run_id="run-2")
        assert (status, answer["error"], answer["step"]) == (409, "restoring", "loading")
        go.touch()
        await node_manager.running.stderr.saw("engine loading -> done")
        assert (await node_manager.command("restart", 2, run_id="run-2"))[0] == 200
        await node_manager.running.stdout.saw(r"\[ENGINE RELAUNCH #1\]")


@pytest.mark.seed("S10")
async def test_where_there_are_no_snapshots_a_loading_engine_is_overtaken(tmp_path: Path) -> None:
    unit = {
        **service(*shell("echo loading; exec sleep 600")),
        "Engine": {"Launcher": "exec", "BasePort": free_port()},
        "Readiness": {"LogLine": "never"},
    }
    async with coordinated(tmp_path, unit) as node_manager:
        assert (await node_manager.start())[0] == 200
        await node_manager.running.stdout.saw("loading")
        status, answer = await node_manager.command("prepare", 2, run_id="run-2")
        assert (status, answer["step"]) == (200, "prepared")


# --- what it tells --------------------------------------------------------------------------------------------


@pytest.mark.seed("S14")
@pytest.mark.seed("S25")
async def test_S25_both_signals_of_death_reach_the_controller_each_once_and_again_after_a_relaunch(
    tmp_path: Path,
) -> None:
    engine = Moody(tmp_path)
    unit = with_engine(engine.unit, DiagnoseExec=shell("echo looked at"))
    patient = {"suicide_threshold": 1000, "grace_period_sec": 0}
    async with (
        recording_controller() as controller,
        coordinated(tmp_path, unit, controller.url, **patient) as node_manager,
    ):
        await node_manager.start()
        await controller.status("normal")
        first = await node_manager.running.started("engine")

        engine.feels("hangs")  # (b) a probe: it lives, and does nothing
        fault = await controller.fault(1)
        assert (fault["exception_type"], fault["engine_status"]) == ("unhealthy:canary", 1)
        assert (fault["epoch"], fault["pid"], fault["category"]) == (1, first, "software")
        await controller.status("abnormal")
        engine.feels("works")
        await controller.status("normal")  # it has recovered, and its next sickness is news
        engine.feels("hangs")
        assert (await controller.fault(2))["exception_type"] == "unhealthy:canary"

        await node_manager.command("restart", 2, run_id="run-2")  # sick as it is: looked at, stopped, replaced
        engine.feels("works")
        await controller.status("normal")
        assert len(controller.faults) == 2
        second = await node_manager.running.started("engine", 2)

        controller.refuses_faults = 2
        os.kill(second, signal.SIGKILL)  # (a) the process
        fault = await controller.fault(3)
        assert (fault["exception_type"], fault["epoch"], fault["pid"]) == ("engine_dead", 2, second)
        assert fault["exit"]["signal"] == "SIGKILL"
        assert controller.refused == 2
        await controller.status("abnormal")
        assert len(controller.faults) == 3


@pytest.mark.seed("S16")
@pytest.mark.seed("S17")
async def test_S16_what_loads_beyond_its_grace_is_neither_reported_nor_ended(tmp_path: Path) -> None:
    refusing = f"http://{IP}:{free_port()}/health"
    unit = {
        **service(*shell("while :; do echo loading; sleep 0.2; done")),
        "Engine": {"Launcher": "exec", "BasePort": free_port()},
        "Readiness": {"Http": refusing, "PeriodSec": 0.1},
        "Liveness": {"Http": refusing, "PeriodSec": 0.1, "FailureThreshold": 1},
        "Canary": {"Http": refusing, "IdleSec": 0.1, "FailureThreshold": 1},
    }
    hasty = {"suicide_threshold": 1, "grace_period_sec": 0}
    async with (
        recording_controller() as controller,
        coordinated(tmp_path, unit, controller.url, **hasty) as node_manager,
    ):
        await node_manager.start()
        await node_manager.running.stdout.saw("loading", 20)  # several ticks of the arbiter
        async with node_manager.running.api() as client:
            about = (await client.get("/v1/units")).json()["supervisor"]
        assert (about["step"], about["arbiter_count"]) == ("loading", 0)
        assert controller.faults == []
        assert controller.statuses[-1] == {"0": "initial"}


async def test_before_the_arbiter_ends_the_container_the_sick_engine_is_looked_at(tmp_path: Path) -> None:
    engine, seen = Moody(tmp_path), tmp_path / "seen"
    unit = with_engine(engine.unit, DiagnoseExec=shell(f"echo $MAINPID > {seen}"))
    async with coordinated(tmp_path, unit, suicide_threshold=2, grace_period_sec=0) as node_manager:
        await node_manager.start()
        await node_manager.running.stderr.saw("engine loading -> done")
        first = await node_manager.running.started("engine")
        engine.feels("hangs")
        assert await node_manager.running.ended() == 255
        assert seen.read_text().strip() == str(first)
        await node_manager.running.stderr.saw("ending with exit code 255: abnormal for 2 x 1 s: .*canary")
