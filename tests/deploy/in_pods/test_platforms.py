"""Rendered manifests really run: carried out in pods they become an instance that serves, relaunches and leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo.cluster import CONTROLLER_PORT, PROBE_PORT, TIMEOUT_SEC, Cluster, eventually
from controller.demo.kubelet import Kubelet, KubeletPod, ReadinessChanged
from tests.deploy.choices import Choice, controller_of
from tests.deploy.in_pods.world import Stage, typed_in
from tests.deploy.rendered import Manifests, kustomized, templated
from tests.deploy.test_kustomize import added_to
from tests.engines.asking import complete
from tests.support.real_etcd import etcd_spec, needs_etcd

pytestmark = [pytest.mark.pods, pytest.mark.engines]

STATEFULSET = Choice("llama-server", "statefulset", 2)
IMPATIENT = """
patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: podvisor-controller}
      spec:
        template:
          spec:
            containers:
              - name: controller
                env: [{name: PODVISOR_FAULT_TOLERANCE_CONFIG__ENGINE_RELAUNCH_BACKOFF_SEC, value: "2"}]
"""


def impatient_controller(directory: Path) -> Manifests:
    """The shipped one, but for two seconds before a second relaunch, long enough to be seen, in place of thirty."""
    return added_to(controller_of("sqlite"), directory=directory / "controller", more=IMPATIENT)


async def test_the_shipped_statefulset_serves_survives_two_kills_and_leaves(stage: Stage, tmp_path: Path) -> None:
    async with stage.running(kustomized(STATEFULSET.overlay) + impatient_controller(tmp_path)) as cluster:
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == "podvisor-engine-0"
        seats = {member["node_rank"]: member["pod_ip"] for member in instance["supervisors"]}
        placed = {rank: supervisor.pod.address for rank, supervisor in enumerate(cluster.supervisors)}
        assert seats == placed, "by the pods' ordinals"

        said = await served(cluster)
        assert len(said) > 0
        for supervisor in cluster.supervisors:
            assert await users_and_capabilities(supervisor) == {"65532 0"}

        await _kill_engine(cluster.supervisors[0])
        again = await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > instance["epoch"])
        assert again["epoch"] == instance["epoch"] + 1
        assert await served(cluster) == said
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 0]

        async with not_ready(stage.kubelet, cluster.supervisors[0]):
            _kill_container(cluster.supervisors[1])
        await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > again["epoch"])
        assert await served(cluster) == said
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 1], "the other waited in place"
        assert "the previous container was killed" in cluster.supervisors[1].logs[1].read_text(), "its volume stayed"

        await leave(cluster.supervisors)
        assert [supervisor.exit_codes for supervisor in cluster.supervisors] == [[0], [137, 0]]


@needs_etcd
async def test_the_charts_two_controllers_take_over_from_each_other_and_no_engine_notices(
    stage: Stage, tmp_path: Path
) -> None:
    manifests = templated({**STATEFULSET.values, "controller": {"store": "etcd"}}, tmp_path)
    etcd = await stage.network.add_pod("etcd")
    async with stage.running(manifests, hosts={etcd.name: etcd.address}) as cluster:
        await stage.kubelet.start(etcd, etcd_spec(etcd))  # Last: nobody minds in which order things are applied.
        instance = await cluster.instance(lambda found: found["status"] == "active")
        said = await served(cluster)
        roles = {await role(cluster, controller): controller for controller in cluster.controllers}
        first, second = roles["leader"], roles["standby"]

        # Else it might be back, and lead again, before the other has looked.
        await stage.network.cut(first.pod)
        _kill_container(first)
        await until_it_is("leader", cluster, second)
        found = await cluster.instance(lambda found: found["status"] == "active")
        assert found["epoch"] == instance["epoch"]
        assert await served(cluster) == said
        await stage.network.heal(first.pod)
        await until_it_is("standby", cluster, first)
        await eventually(
            lambda: typed_in(first, "instances", "--json"),
            lambda said: '"status":"active"' in said,
            "an answer of whom the standby names, once it knows",
        )

        await _kill_engine(cluster.supervisors[1])
        again = await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > instance["epoch"])
        assert again["epoch"] == instance["epoch"] + 1
        assert await served(cluster) == said

        await second.remove()
        await until_it_is("leader", cluster, first)
        await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] == again["epoch"])
        assert (first.exit_codes, second.exit_codes) == ([137], [0])
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 0], "no container was needed"


async def test_a_pod_of_a_deployment_is_an_instance_that_tells_the_kubelet_how_it_is(
    stage: Stage, tmp_path: Path
) -> None:
    """Through the death of its engine, of its container, and its deletion."""
    manifests = added_to(Path("pod"), "engines/llama-server", "platforms/deployment", directory=tmp_path / "engine")
    async with stage.running(manifests + impatient_controller(tmp_path)) as cluster:
        (supervisor,) = cluster.supervisors
        said = await served(cluster)
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == supervisor.pod.name

        async with not_ready(stage.kubelet, supervisor):
            _kill_container(supervisor)
        assert await served(cluster) == said

        before = await cluster.instance(lambda found: found["status"] == "active")
        async with not_ready(stage.kubelet, supervisor):
            await _kill_engine(supervisor)
        assert await served(cluster) == said
        await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] == before["epoch"] + 1)
        assert supervisor.exit_codes == [137], "in place, and liveness did not fail"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.remove)
            left = await cluster.instance(lambda found: "is leaving" in found["reason"])
            assert left["status"] == "inactive"
            assert await probed(cluster, supervisor, "/readyz") == (503, "ending: SIGTERM received\n")
            assert await probed(cluster, supervisor, "/livez") == (200, "ok\n")
        assert supervisor.exit_codes == [137, 0]


async def test_volcanos_pods_are_one_job_and_end_with_a_code_that_completes_no_task(
    stage: Stage, tmp_path: Path
) -> None:
    parts = ("engines/llama-server", "platforms/volcano")
    manifests = added_to(Path("pod"), *parts, directory=tmp_path) + kustomized(controller_of("sqlite"))
    async with stage.running(manifests) as cluster:
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == "podvisor-engine"
        assert len(await served(cluster)) > 0
        await leave(cluster.supervisors)
        assert [supervisor.exit_codes for supervisor in cluster.supervisors] == [[143], [143]]


async def test_a_leader_worker_set_serves_under_mutual_tls_and_the_controller_tells_of_it(
    stage: Stage, tmp_path: Path
) -> None:
    parts = ("engines/llama-server", "components/tls", "platforms/leaderworkerset")
    manifests = added_to(Path("pod"), *parts, directory=tmp_path / "engine")
    manifests += added_to(controller_of("sqlite"), "components/tls", directory=tmp_path)
    async with stage.running(manifests) as cluster:

        async def told() -> str:
            return await typed_in(cluster.controller, "instances", "--json")

        said = await eventually(told, lambda text: '"status":"active"' in text, "an active instance")
        assert '"job_name":"podvisor-engine-0"' in said
        assert len(await served(cluster)) > 0
        assert await cluster.from_controller("/v1/instances") is None, "nobody answers without a certificate"
        assert [kept.restart_count for kept in (cluster.controller, *cluster.supervisors)] == [0, 0, 0], "all are alive"


async def served(cluster: Cluster) -> str:
    """A completion, from the engine's Service, as soon as the kubelet calls all pods ready."""

    async def are_ready() -> bool:
        return all(supervisor.ready for supervisor in cluster.supervisors)

    await eventually(are_ready, bool, "ready pods")
    return await complete(cluster.http, f"http://{cluster.network.hub.address}")


@asynccontextmanager
async def not_ready(kubelet: Kubelet, supervisor: KubeletPod) -> AsyncIterator[None]:
    """What is done in the block makes the kubelet call the pod not ready."""
    since, wanted = kubelet.timeline.next_number, ReadinessChanged(supervisor.pod.name, False)
    yield
    with trio.fail_after(TIMEOUT_SEC):
        await kubelet.timeline.wait_for(lambda event: event == wanted, since=since)


async def until_it_is(wanted: str, cluster: Cluster, controller: KubeletPod) -> None:
    await eventually(partial(role, cluster, controller), lambda found: found == wanted, f"a controller as {wanted}")


async def role(cluster: Cluster, controller: KubeletPod) -> str | None:
    try:
        answer = await cluster.http.get(f"http://{controller.pod.address}:{CONTROLLER_PORT}/leader")
    except httpx.TransportError:
        return None
    return str(answer.raise_for_status().json()["role"])


async def probed(cluster: Cluster, supervisor: KubeletPod, path: str) -> tuple[int, str]:
    answer = await cluster.http.get(f"http://{supervisor.pod.address}:{PROBE_PORT}{path}")
    return answer.status_code, answer.text


async def leave(supervisors: Sequence[KubeletPod]) -> None:
    """The pods are deleted together: SIGTERM, and SIGKILL after the grace period."""
    async with trio.open_nursery() as nursery:
        for supervisor in supervisors:
            nursery.start_soon(supervisor.remove)


_LOOK = """
import os
from pathlib import Path
for path in Path("/proc").glob("[0-9]*/status"):
    if path.parent.name != str(os.getpid()):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        print(lines["Uid"].split()[0], int(lines["CapEff"], 16))
"""


async def users_and_capabilities(supervisor: KubeletPod) -> set[str]:
    """Of every process in the container but the one that looks."""
    assert supervisor.container is not None
    done = await supervisor.container.exec([sys.executable, "-I", "-c", _LOOK])
    assert done.exit_code == 0, done.output
    return set(done.output.splitlines())


def _kill_container(supervisor: KubeletPod) -> None:
    assert supervisor.container is not None
    supervisor.container.kill(signal.SIGKILL)


async def _kill_engine(supervisor: KubeletPod) -> None:
    assert supervisor.container is not None
    done = await supervisor.container.exec(["pkill", f"-{signal.SIGKILL}", "llama-server|ggml-rpc-server"])
    assert done.exit_code == 0, done.output
