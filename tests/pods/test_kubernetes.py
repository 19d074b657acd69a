"""The controller's Kubernetes client and kubectl, against pods of the fake API that really run."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from controller.demo.kubelet import ContainerExited, ContainerSpec, Kubelet
from tests.pods.harness import (
    FALLBACK_ENGINE,
    TIMEOUT_SEC,
    Cluster,
    PodsFactory,
    Tables,
    controller_spec,
    eventually,
    supervisor_spec,
    write_units,
)
from tests.pods.kubernetes import Node, client_settings, open_node
from tests.support.fake_kubernetes.access import shipped_rules
from tests.support.fake_kubernetes.objects import EVENTS
from tests.support.fake_kubernetes.serving import USER, needs_kubectl

pytestmark = [pytest.mark.pods, pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")]

ENGINE = f"""
[Service]
ExecStart = ["python3", "-I", "{FALLBACK_ENGINE}", "--host=${{POD_IP}}", "--port=${{PORT}}"]
[Engine]
Launcher = "exec"
[Readiness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
"""
SUPERVISOR: Tables = {"supervisor": {"heartbeat_interval_seconds": 0.5}, "parallel": {"dp_size": 2}}
CONTROLLER: Tables = {
    "fault_tolerance_config": {
        "engine_relaunch_poll_interval_sec": 0.2,
        "on_member_lost": "restart-all",
        "phase2_timeout_sec": TIMEOUT_SEC / 4,
    },
    "instance": {"heartbeat_timeout_active_sec": 3},
}


@dataclass
class Stage:
    running: Cluster
    node: Node

    async def kubectl(self, *arguments: str) -> str:
        """In the hub, where the API is."""
        container = self.running.controller.container
        assert container is not None
        done = await container.exec(self.node.api.kubectl(*arguments), timeout_sec=60)
        assert done.exit_code == 0, done.output
        return done.output

    async def active(self, epoch: int) -> Mapping[str, Any]:
        return await self.running.instance(lambda found: found["status"] == "active" and found["epoch"] >= epoch)

    async def told(self, about: str, reason: str) -> None:
        async def reasons() -> set[str]:
            found = self.node.api.fake.objects.list(
                EVENTS, "default", lambda each: each["involvedObject"]["name"] == about
            )
            return {each["reason"] for each in found}

        await eventually(reasons, lambda found: reason in found, f"{reason} on {about}")


@asynccontextmanager
async def cluster(pods: PodsFactory, kubelet: Kubelet) -> AsyncIterator[Stage]:
    """Two pods of one instance, each a pod of the API too, and a controller that may speak to it."""
    network = await pods(2)

    def spec(rank: int) -> ContainerSpec:
        units = write_units(network.pods[rank].volume / "units", {"engine.toml": ENGINE})
        made = supervisor_spec(network, rank, [units], settings=SUPERVISOR)
        return replace(made, grace_period_sec=3.0)

    async with open_node(network, kubelet, spec, network.hub.volume / "kubernetes") as node:
        settings: Tables = {**CONTROLLER, "kubernetes": client_settings(node.api)}
        controller = await kubelet.start(network.hub, controller_spec(network, settings=settings))
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
            supervisors = tuple(node.running[place.name] for place in network.pods)
            running = Cluster(network, kubelet, (controller,), supervisors, http)
            try:
                yield Stage(running, node)
            except Exception as error:
                error.add_note(running.logs())
                raise


async def test_a_hanging_pid_1_costs_its_pod_and_the_instance_serves_again(pods: PodsFactory, kubelet: Kubelet) -> None:
    async with cluster(pods, kubelet) as stage:
        first = await stage.active(1)
        before = [stage.node.uid(name) for name in ("pod0", "pod1")]
        hanging = stage.node.running["pod1"]
        assert hanging.container is not None
        hanging.container.kill(signal.SIGSTOP)

        again = await stage.active(first["epoch"] + 1)

        assert again["id"] == first["id"]
        assert stage.node.uid("pod0") == before[0], "its container restarted, its pod is the same"
        assert stage.node.uid("pod1") != before[1]
        assert stage.node.running["pod0"].exit_codes == [255]
        assert stage.node.ended == [hanging]
        assert hanging.exit_codes == [137], "it did not obey SIGTERM"
        await stage.told("pod0", "AssembleDone")
        await stage.told("job", "ContainerDidNotRestart")
        await stage.told("job", "PodDeleted")
        assert ("delete", "pods") in stage.node.api.fake.access.used_by(USER)
        allowed = {(verb, what) for rule in shipped_rules() for verb in rule.verbs for what in rule.resources}
        assert stage.node.api.fake.access.used_by(USER) <= allowed


@needs_kubectl
async def test_kubectl_delete_ends_a_pid_1_and_the_instance_recovers(pods: PodsFactory, kubelet: Kubelet) -> None:
    async with cluster(pods, kubelet) as stage:
        first = await stage.active(1)
        await stage.told("pod0", "AssembleDone")
        deleted, before = stage.node.running["pod0"], stage.node.uid("pod0")

        await stage.kubectl("delete", "pod", "pod0")

        exited = await kubelet.timeline.wait_for(lambda event: isinstance(event, ContainerExited))
        assert exited.event.pod == "pod0"
        assert stage.node.ended == [deleted]
        again = await stage.active(first["epoch"] + 1)
        assert again["id"] == first["id"]
        assert stage.node.uid("pod0") != before

        await stage.kubectl("wait", "pod/pod0", "--for=condition=podvisor.io/InstanceActive", "--timeout=30s")
        await stage.told("pod0", "AssembleDone")
        described = await stage.kubectl("describe", "pod", "pod0")
        assert "podvisor.io/InstanceActive" in described
        assert "AssembleDone" in described
        assert "all endpoints are normal in epoch" in described
        assert "podvisor-controller" in described
