"""schemathesis reads /openapi.json of a running controller, and finds nothing in it that the document does not say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import trio

from supervisor import wire
from tests.processes.test_controller_process import COMMAND, Running, controller
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import toml
from tests.unit.controller_gang import registration

MAX_SEC = 20
"""Of the run itself; that it ends by then is schemathesis' business."""
PHASES = "coverage,fuzzing"
TOKENS = "read looker\noperate operator\nnode supervisor\n"

CONFIGURATION = """
headers = {{ Authorization = "Bearer supervisor" }}
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]  # 503: register again

[[operations]]  # fields have to agree with each other and with the fleet, which a schema cannot say
include-path-regex = "^/controller/"
checks.positive_data_acceptance.enabled = false

[[operations]]  # else it follows for ever
include-path = "/v1/events"
parameters = {{ "query.follow" = "0" }}

[[operations]]  # of an instance that there is; other operations find it out of those that there are not
include-path-regex = "^/v1/instances/.*/(relaunch|release|reset-failed)$"
parameters = {{ "path.instance_id" = {instance_id} }}

[[operations]]
include-path = "/v1/relaunches/{{run_id}}"
parameters = {{ "path.run_id" = "{run_id}" }}
"""


async def populate(url: str) -> tuple[int, str]:
    """Instances of one and of two pods, one of them being started; an id of an instance and of a run."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer supervisor"}) as client:
        for number in range(5):
            peer = registration(0, nnodes=1 + number % 2, job_name=f"job-{number}", pod_ip=f"127.0.0.{10 + number}")
            answer = await client.post("/controller/register", content=wire.encode(peer))
            instance_id = wire.decode(wire.RegisterAnswer, answer.content).instance_id
        beat = wire.HeartbeatMsg(
            job_name="job-4", ins_id=0, ip=peer.pod_ip, status={}, nm_port="1026", boot_id=peer.boot_id, prepared=True
        )
        await client.post("/controller/heartbeat", content=wire.encode(beat))
        runs = wire.decode(wire.RelaunchesView, (await client.get("/v1/relaunches")).content)
        return instance_id, runs.relaunches[0].id


async def schemathesis(directory: Path, running: Running, *, max_sec: float = MAX_SEC) -> tuple[int, str]:
    """The exit code and what it says."""
    instance_id, run_id = await populate(running.url)
    (directory / "schemathesis.toml").write_text(CONFIGURATION.format(instance_id=instance_id, run_id=run_id))
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(directory / "schemathesis.toml"), "run"]
    limits = (
        "--seed",
        "1",
        "--max-examples",
        "20",
        "--max-time",
        f"{max_sec:g}",
        "--request-timeout",
        f"{TIMEOUT_SEC:g}",
    )
    address = f"{running.url}/openapi.json"
    with trio.fail_after(max_sec + 3 * TIMEOUT_SEC):
        done = await trio.run_process(
            [*command, address, *limits, "--phases", PHASES, "--no-color", "--warnings", "off"],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=directory,
        )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


async def test_it_finds_nothing_in_a_fleet(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    (tmp_path / "podvisor.toml").write_text(
        toml(
            {
                "auth": {"token_file": str(tmp_path / "tokens")},
                "limits": {"requests_per_sec": 100_000, "requests_in_flight": 1000},
            }
        )
    )
    async with controller(command=(*COMMAND, "--config", str(tmp_path / "podvisor.toml"))) as running:
        code, said = await schemathesis(tmp_path, running)
        assert code == 0, said
        generated = re.search(r"(\d+) generated", said)
        assert generated is not None
        assert int(generated[1]) > 200, said
        async with httpx.AsyncClient(base_url=running.url) as client:
            assert (await client.get("/readiness")).status_code == 200
    assert not [line for line in running.log if '"error"' in line and "Traceback" in line]
