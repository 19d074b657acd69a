"""Two pods with the real supervisor and the real controller, and a program in the place of vLLM or SGLang.

What each rank is started with is read from what the program wrote down; that the ranks have met is known because node
rank 0 serves only then. The pods are plain processes (`controller.demo.processes`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.demo.cluster import (
    Cluster,
    controller_spec,
    eventually,
    running_cluster,
    supervisor_spec,
    write_units,
)
from controller.demo.kubelet import open_kubelet
from controller.demo.pod import Network
from controller.demo.processes import open_process_network

ENGINE = Path(__file__).parents[1] / "support" / "recording_engine.py"
SERVICE_LINK = "tcp://10.96.0.7:8000"
"""As Kubernetes sets it for a Service named as the engine."""

UNIT = """
[Engine]
Launcher = "{launcher}"
Command = ["{python}", "{program}", "{launcher}"]
Model = "/models/tiny"
BasePort = {port}
{more}
"""


@dataclass(frozen=True)
class Launched:
    argv: list[str]
    environment: dict[str, str]
    pid: int

    def value(self, flag: str) -> str | None:
        return self.argv[self.argv.index(flag) + 1] if flag in self.argv else None


@dataclass
class Gang:
    network: Network
    running: Cluster

    async def active(self, epoch: int) -> list[Launched]:
        """What each rank was started with in this epoch, once the instance is active in it."""
        await self.running.instance(lambda found: found["status"] == "active" and found["epoch"] == epoch)
        return [self._launched(pod.volume, epoch) for pod in self.network.pods]

    def log_of(self, rank: int) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.running.supervisors[rank].logs)

    @staticmethod
    def _launched(volume: Path, epoch: int) -> Launched:
        return Launched(**json.loads((volume / "launches" / f"{epoch}.json").read_text()))


@asynccontextmanager
async def gang(directory: Path, launcher: str, more: str, **variables: str) -> AsyncIterator[Gang]:
    async with open_process_network(2, directory) as network, open_kubelet() as kubelet:
        first = network.pods[0].port(20000)
        units = [
            UNIT.format(launcher=launcher, python=sys.executable, program=ENGINE, port=pod.port(8000), more=more)
            for pod in network.pods
        ]
        specs = [
            supervisor_spec(
                network,
                rank,
                [write_units(pod.volume / "units", {"engine.toml": units[rank]})],
                settings={
                    "supervisor": {
                        "rendezvous_ports": f"{first}-{first + 99}",
                        "fabric_interface": "lo",
                        "socket": str(pod.volume / "podvisor.sock"),
                    }
                },
                environment=variables,
            )
            for rank, pod in enumerate(network.pods)
        ]
        async with running_cluster(network, kubelet, controller_spec(network), specs) as running:
            try:
                yield Gang(network, running)
            except Exception as error:
                error.add_note(running.logs())
                raise


@pytest.mark.seed("S18")
@pytest.mark.seed("S22")
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("more", "meeting"),
    [
        ("Args = { tensor-parallel-size = 2 }", "--master-port"),
        ("DataParallel = 'internal'\nArgs = { data-parallel-size = 2 }", "--data-parallel-rpc-port"),
    ],
    ids=["tensor-parallel", "data-parallel"],
)
async def test_vllm_s_ranks_meet_on_another_port_in_every_epoch(
    tmp_path: Path, more: str, meeting: str, victim: int
) -> None:
    async with gang(tmp_path, "vllm", more, VLLM_PORT=SERVICE_LINK) as two:
        before = await two.active(1)
        os.kill(before[victim].pid, signal.SIGKILL)
        after = await two.active(2)
    for ranks in (before, after):
        leader, follower = ranks
        assert leader.value(meeting) == follower.value(meeting) is not None
        assert ("--headless" in leader.argv, "--headless" in follower.argv) == (False, True)
        assert (leader.value("--port") is None, follower.value("--port") is None) == (False, True)
        for rank in ranks:
            assert "VLLM_PORT" not in rank.environment
            assert rank.environment["VLLM_HOST_IP"] == "127.0.0.1", "the address of the interface lo"
            assert rank.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert before[0].value(meeting) != after[0].value(meeting)
    assert before[0].value("--port") == after[0].value("--port")
    assert two.log_of(0).count("left out of the engine's environment: VLLM_PORT (an address that Kubernetes") == 2


@pytest.mark.parametrize(
    ("mode", "local", "place"), [("hybrid", 2, "--data-parallel-start-rank"), ("external", 1, "--data-parallel-rank")]
)
async def test_every_pod_serves_its_own_ranks(tmp_path: Path, mode: str, local: int, place: str) -> None:
    more = f"DataParallel = '{mode}'\nArgs = {{ data-parallel-size = {2 * local} }}"
    async with gang(tmp_path, "vllm", more) as two:
        before = await two.active(1)
        os.kill(before[1].pid, signal.SIGKILL)
        after = await two.active(2)
    for ranks in (before, after):
        assert [rank.value(place) for rank in ranks] == ["0", str(local)]
        assert len({rank.value("--data-parallel-rpc-port") for rank in ranks}) == 1
        assert [rank.value("--port") for rank in ranks] == [str(pod.port(8000)) for pod in two.network.pods]
        assert not any("--headless" in rank.argv for rank in ranks)
    assert before[0].value("--data-parallel-rpc-port") != after[0].value("--data-parallel-rpc-port")


@pytest.mark.seed("S18")
@pytest.mark.seed("S22")
async def test_sglang_s_ranks_meet_on_another_port_in_every_epoch(tmp_path: Path) -> None:
    """Its follower ignores SIGTERM: the relaunch kills it at once."""
    more = "DataParallel = 'internal'\nArgs = { attn-dp-size = 2, tp-size = 2 }"
    async with gang(tmp_path, "sglang", more, SGLANG_PORT=SERVICE_LINK) as two:
        before = await two.active(1)
        os.kill(before[0].pid, signal.SIGKILL)
        after = await two.active(2)
    told = [{rank.value("--dist-init-addr") for rank in ranks} for ranks in (before, after)]
    assert [len(addresses) for addresses in told] == [1, 1]
    assert told[0] != told[1]
    for ranks in (before, after):
        assert [rank.value("--node-rank") for rank in ranks] == ["0", "1"]
        assert not any("SGLANG_PORT" in rank.environment for rank in ranks)
        assert {rank.environment["SGLANG_HOST_IP"] for rank in ranks} == {"127.0.0.1"}


async def test_a_follower_that_ignores_sigterm_does_not_hold_its_pod_up(tmp_path: Path) -> None:
    """Of an ordinary stop too: RelaunchTimeoutStopSec is waited for its leader's word, not TimeoutStopSec."""
    more = "Args = { tp-size = 2 }\n[Service]\nTimeoutStopSec = '1h'\nRelaunchTimeoutStopSec = '200ms'"
    async with gang(tmp_path, "sglang", more) as two:
        await two.active(1)
        container = two.running.supervisors[1].container
        assert container is not None
        container.kill(signal.SIGTERM)

        async def exit_code() -> int | None:
            return container.exit_code

        assert await eventually(exit_code, lambda code: code is not None, "the follower's pod to end") == 0
