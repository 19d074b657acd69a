"""`podvisor controller` as a process: real sockets, real signals, exit codes."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from controller.api.leader_routes import standby_app
from controller.election import Leader
from supervisor import wire
from supervisor.shared.listening import listen_tcp
from supervisor.shared.serving import serve

COMMAND = (sys.executable, "-m", "supervisor", "controller")


class Running:
    """A controller process, its URLs, and what it logged."""

    def __init__(self, process: trio.Process, log: list[str], url: str, probe_url: str) -> None:
        self.process = process
        self.log = log
        self.url = url
        self.probe_url = probe_url


def environment(**settings: str) -> dict[str, str]:
    chosen = {"PORT": "0", "PROBE_PORT": "0", "STORE": "memory"} | settings
    return {"PATH": "/usr/bin:/bin", **{f"PODVISOR_CONTROLLER__{key}": value for key, value in chosen.items()}}


@asynccontextmanager
async def controller(*, command: tuple[str, ...] = COMMAND, **settings: str) -> AsyncIterator[Running]:
    """Ends the process at the end of the block, if it still runs."""
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(list(command), stderr=subprocess.PIPE, env=environment(**settings))
        log: list[str] = []
        try:
            with trio.fail_after(30):
                url, probe_url = await nursery.start(_read_log, process, log)
            yield Running(process, log, url, probe_url)
        finally:
            if process.poll() is None:
                process.kill()
            with trio.move_on_after(10, shield=True):
                await process.wait()
        nursery.cancel_scope.cancel()


async def _read_log(process: trio.Process, log: list[str], *, task_status: trio.TaskStatus[tuple[str, str]]) -> None:
    assert process.stderr is not None
    pending = ""
    async for data in process.stderr:
        *lines, pending = (pending + data.decode()).split("\n")
        for line in lines:
            log.append(line)
            if line.startswith("podvisor: "):
                continue  # the last words, written past the log, which may be what hangs
            record = json.loads(line)
            if record["message"] == "the controller serves":
                task_status.started((record["url"], record["probe_url"]))


async def test_a_low_soft_limit_of_descriptors_is_raised_for_a_fleets_connections() -> None:
    async with controller(command=("sh", "-c", 'ulimit -S -n 256 && exec "$@"', "sh", *COMMAND)) as running:
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 256


async def test_it_serves_answers_and_stops_on_sigterm() -> None:
    async with controller() as running, httpx.AsyncClient(base_url=running.url) as client:
        assert (await client.get("/readiness")).status_code == 200
        assert (await client.get("/v1/instances")).json()["instances"] == []
        for path in ("/livez", "/readyz"):
            assert (await client.get(running.probe_url + path)).status_code == 200
        malformed = await client.post("/controller/heartbeat", content=b'{"job_name": "j"}')
        assert malformed.status_code == 400
        assert "ins_id" in wire.decode(wire.ErrorBody, malformed.content).message
        # The idle connection of this client must not hold the end up; neither must an open event stream.
        async with client.stream("GET", "/v1/events", timeout=30):
            running.process.terminate()
            with trio.fail_after(30):
                assert await running.process.wait() == 0
        assert any("has stopped" in line for line in running.log)


async def test_a_taken_port_is_named_with_its_holder() -> None:
    async with controller() as running:
        port = str(httpx.URL(running.url).port)
        with trio.fail_after(30):
            second = await trio.run_process(list(COMMAND), capture_stderr=True, check=False, env=environment(PORT=port))
        assert second.returncode == 1
        (line,) = second.stderr.decode().splitlines()
        said = json.loads(line)["message"]
        assert re.search(rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use", said)
        assert f"pid {running.process.pid}" in said


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"HOST": "0.0.0.0"}, "set auth.token_file"),
        ({"STORE": "etcd"}, "etcd.endpoints: must be set"),
        ({"PROT": "1"}, "PROT"),
    ],
)
async def test_a_wrong_configuration_exits_78(settings: dict[str, str], said: str) -> None:
    with trio.fail_after(30):
        process = await trio.run_process(list(COMMAND), capture_stderr=True, check=False, env=environment(**settings))
    assert process.returncode == 78
    assert said.lower() in process.stderr.decode().lower()


async def test_a_kubernetes_client_outside_a_cluster_exits_78() -> None:
    switched_on = {**environment(), "PODVISOR_KUBERNETES__ENABLE": "true"}
    with trio.fail_after(30):
        process = await trio.run_process(list(COMMAND), capture_stderr=True, check=False, env=switched_on)
    assert process.returncode == 78
    assert "set kubernetes.api_url" in process.stderr.decode()


HUNG = """
import time
import trio
from controller import app
from controller.sections import ControllerSection
from controller.settings import Settings
from supervisor.shared import logs
from supervisor.shared.last_deadline import LastDeadline


class StuckAfterTheSignal(trio.abc.Instrument):
    # The loop itself hangs, so that no cancel and no deadline of trio can help.
    def after_task_step(self, task):
        if "_watch_signals" in task.name and stopping():
            time.sleep(600)


def stopping():
    return bool(asked)


def exit_after(*arguments):
    really_exit_after(*arguments)
    asked.append(arguments)


asked, really_exit_after, LastDeadline.exit_after = [], LastDeadline.exit_after, exit_after


logs.configure("info", "json")
app.LAST_SEC = 0.5
settings = Settings(controller=ControllerSection(port=0, probe_port=0, store="memory"))
trio.run(app.main, settings, instruments=[StuckAfterTheSignal()])
"""


async def test_a_log_that_is_stuck_does_not_hold_up_the_last_deadline() -> None:
    stuck = HUNG.replace("time.sleep(600)", "app.log.root.handlers[0].acquire(); time.sleep(600)")
    async with controller(command=(sys.executable, "-c", stuck)) as running:
        running.process.terminate()
        with trio.fail_after(30):
            assert await running.process.wait() == 70


async def test_an_end_that_hangs_is_ended_by_the_last_deadline() -> None:
    async with controller(command=(sys.executable, "-c", HUNG)) as running:
        running.process.terminate()
        with trio.fail_after(30):
            assert await running.process.wait() == 70
        with trio.fail_after(30):
            while not any("not everything has ended" in line for line in running.log):
                await trio.sleep(0.05)
        assert not any("has stopped" in line for line in running.log)


async def test_the_command_line_shows_instances_and_runs(tmp_path: Path) -> None:
    async with controller() as running, httpx.AsyncClient(base_url=running.url) as client:
        message = wire.RegisterMsg(
            job_name="llm",
            model_name="tiny",
            role="union",
            pod_ip="127.0.0.9",
            nm_port="1",
            nnodes=1,
            business_port=("8000",),
            mgmt_port=("8001",),
            boot_id="boot",
            features=wire.FEATURES,
        )
        answer = await client.post("/controller/register", content=wire.encode(message))
        instance_id = wire.decode(wire.RegisterAnswer, answer.content).instance_id
        beat = wire.HeartbeatMsg(
            job_name="llm", ins_id=0, ip="127.0.0.9", status={}, nm_port="1", boot_id="boot", prepared=True
        )
        await client.post("/controller/heartbeat", content=wire.encode(beat))
        shown = await podvisor("instances", "--controller", running.url)
        assert shown.returncode == 0
        assert re.search(rf"{instance_id} +llm +\w+ +0 +1", shown.stdout.decode())
        one = await podvisor("instances", str(instance_id), "--json", "--controller", running.url)
        assert wire.decode(wire.InstanceView, one.stdout).job_name == "llm"
        for name in ("llm", "default/llm"):
            named = await podvisor("instances", name, "--json", "--controller", running.url)
            assert wire.decode(wire.InstanceView, named.stdout).id == instance_id
        runs = await podvisor("relaunches", "--controller", running.url)
        assert "assemble" in runs.stdout.decode()
        listed = await podvisor("relaunches", "--json", "--controller", running.url)
        run = wire.decode(wire.RelaunchesView, listed.stdout).relaunches[0]
        steps = await podvisor("relaunches", run.id[:8], "--instance", "llm", "--controller", running.url)
        assert "probe" in steps.stdout.decode()
        others = await podvisor("relaunches", "--instance", "4711", "--controller", running.url)
        assert others.stdout.decode() == "no relaunches yet\n"
        missing = await podvisor("instances", "4", "--controller", running.url)
        assert missing.returncode == 4
        assert "no living instance has the id 4" in missing.stderr.decode()
    gone = await podvisor("instances", "--controller", running.url)
    assert gone.returncode == 69
    assert "cannot reach the controller" in gone.stderr.decode()


async def test_a_command_that_asks_a_standby_is_answered_by_the_leader_that_it_names() -> None:
    found: list[Leader] = []
    app = standby_app(lambda: found[0] if found else None, lambda: True)
    async with controller() as leading, trio.open_nursery() as nursery:
        standby = await nursery.start(serve, app, listen_tcp("127.0.0.1", 0), trio.Event())
        nobody = await podvisor("instances", "--controller", standby)
        assert nobody.returncode == 69
        assert "nobody is known to lead" in nobody.stderr.decode()
        found.append(Leader(leading.url, 1))
        shown = await podvisor("instances", "--json", "--controller", standby)
        assert wire.decode(wire.InstancesView, shown.stdout).instances == ()
        nursery.cancel_scope.cancel()


async def podvisor(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(30):
        return await trio.run_process(
            [sys.executable, "-m", "supervisor", *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
