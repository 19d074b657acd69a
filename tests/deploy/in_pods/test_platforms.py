"""Rendered manifests really run: carried out in pods they become an instance that serves, relaunches and leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from functools import partial
from operator import eq
from pathlib import Path

import pytest
import trio

from controller.demo.cluster import eventually
from controller.demo.engines import Engines
from controller.demo.kubelet import Kubelet, KubeletPod, ReadinessChanged
from tests.deploy.choices import controller_of
from tests.deploy.in_pods.world import running, service_addresses, typed_in
from tests.deploy.rendered import KUSTOMIZE, kustomized
from tests.deploy.test_kustomize import added_to
from tests.engines.asking import complete
from tests.pods.harness import PodsFactory

pytestmark = [pytest.mark.pods, pytest.mark.engines]

STATEFULSET = KUSTOMIZE / "overlays" / "llama-server-statefulset"


async def test_the_shipped_statefulset_serves_survives_two_kills_and_leaves(
    pods: PodsFactory, kubelet: Kubelet, engines: Engines, prefix: Path, tmp_path: Path
) -> None:
    network = await pods(2)
    manifests = kustomized(STATEFULSET) + kustomized(controller_of("sqlite"))
    async with running(network, kubelet, engines, prefix, tmp_path, manifests) as cluster:
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == "podvisor-engine-0"
        seats = {member["node_rank"]: member["pod_ip"] for member in instance["supervisors"]}
        assert seats == {rank: place.address for rank, place in enumerate(network.pods)}, "by the pods' ordinals"
        for place in network.pods:
            await kubelet.timeline.wait_for(partial(eq, ReadinessChanged(place.name, True)))

        (base,) = service_addresses(network, manifests)
        said = await complete(cluster.http, base)
        assert len(said) > 0
        for supervisor in cluster.supervisors:
            assert await users_and_capabilities(supervisor) == {"65532 0"}

        await _kill_engine(cluster.supervisors[0])
        again = await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > instance["epoch"])
        assert again["epoch"] == instance["epoch"] + 1
        assert await complete(cluster.http, base) == said
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 0]

        _kill_container(cluster.supervisors[1])
        await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > again["epoch"])
        assert await complete(cluster.http, base) == said
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 1], "the other waited in place"
        assert "the previous container was killed" in cluster.supervisors[1].logs[1].read_text(), "its volume stayed"

        await leave(cluster.supervisors)
        assert [supervisor.exit_codes for supervisor in cluster.supervisors] == [[0], [137, 0]]


async def test_volcanos_pods_are_one_job_and_end_with_a_code_that_completes_no_task(
    pods: PodsFactory, kubelet: Kubelet, engines: Engines, prefix: Path, tmp_path: Path
) -> None:
    network = await pods(2)
    parts = ("engines/llama-server", "platforms/volcano")
    manifests = added_to(Path("pod"), *parts, directory=tmp_path) + kustomized(controller_of("sqlite"))
    async with running(network, kubelet, engines, prefix, tmp_path, manifests) as cluster:
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == "podvisor-engine"
        (base,) = service_addresses(network, manifests)
        assert len(await complete(cluster.http, base)) > 0
        await leave(cluster.supervisors)
        assert [supervisor.exit_codes for supervisor in cluster.supervisors] == [[143], [143]]


async def test_a_leader_worker_set_serves_under_mutual_tls_and_the_controller_tells_of_it(
    pods: PodsFactory, kubelet: Kubelet, engines: Engines, prefix: Path, tmp_path: Path
) -> None:
    network = await pods(2)
    parts = ("engines/llama-server", "components/tls", "platforms/leaderworkerset")
    manifests = added_to(Path("pod"), *parts, directory=tmp_path / "engine")
    manifests += added_to(controller_of("sqlite"), "components/tls", directory=tmp_path)
    async with running(network, kubelet, engines, prefix, tmp_path, manifests) as cluster:

        async def told() -> str:
            return await typed_in(cluster.controller, "instances", "--json")

        said = await eventually(told, lambda text: '"status":"active"' in text, "an active instance")
        assert '"job_name":"podvisor-engine-0"' in said
        (base,) = service_addresses(network, manifests)
        assert len(await complete(cluster.http, base)) > 0
        assert await cluster.from_controller("/v1/instances") is None, "nobody answers without a certificate"


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
    done = await supervisor.container.exec(["pkill", f"-{signal.SIGKILL}", "llama-server"])
    assert done.exit_code == 0, done.output
