"""The shipped StatefulSet really runs: what kustomize renders, carried out in pods, becomes an instance that serves."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo.cluster import Cluster
from controller.demo.engines import GGML_RPC_SERVER, LLAMA_SERVER, Engines, tiny_model
from controller.demo.kubelet import Kubelet, KubeletPod, ReadinessChanged
from controller.demo.pod import Network, Pod, base_environment
from controller.demo.tiny_model import Shape
from tests.deploy.choices import ENGINES, deployed
from tests.deploy.in_pods.carried_out import CarriedOut, Given, Image
from tests.deploy.platforms import PlannedPod, pods_of
from tests.deploy.rendered import Manifests
from tests.engines.asking import complete
from tests.pods.conftest import PodsFactory
from tests.pods.harness import PODVISOR, TIMEOUT_SEC
from tests.support.installed_engines import program

pytestmark = [pytest.mark.pods, pytest.mark.engines]

(CHOICE,) = (choice for choice in ENGINES if str(choice) == "llama-server-statefulset")
TOKEN = secrets.token_hex(16)


def images(directory: Path, engines: Engines) -> dict[str, Image]:
    """podvisor's has its programs in /opt/podvisor; the engine's has an engine and knows nothing of podvisor."""
    programs = directory / "image" / "bin"
    programs.mkdir(parents=True)
    launcher = programs / "podvisor"
    launcher.write_text(f'#!/bin/sh\nexec {PODVISOR} "$@"\n')
    launcher.chmod(0o755)
    path = os.pathsep.join((engines.search_path, base_environment()["PATH"]))
    python = (Path(sys.prefix), Path(sys.base_prefix))
    return {
        "podvisor": Image(directories={"/opt/podvisor": programs.parent}, programs=python),
        "llama-server": Image(variables={"PATH": path}, programs=(*python, engines.directory.resolve())),
    }


async def what_is_given(directory: Path, engines: Engines, hub: Pod) -> Given:
    """What docs/in-the-cluster.md says has to be there first."""
    models = directory / "models"
    models.mkdir()
    (models / "model.gguf").write_bytes((await tiny_model(engines, Shape())).read_bytes())
    return Given(
        images=images(directory, engines),
        secrets={"podvisor-token": {"token": TOKEN}},
        claims={"models": models, "podvisor-controller": _made(directory / "journal")},
        hosts={"podvisor-controller": hub.address},
    )


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def started(kubelet: Kubelet, planned: PlannedPod, pod: Pod, manifests: Manifests, given: Given) -> KubeletPod:
    """Init containers to their end, then the pod's container."""
    carried_out = CarriedOut(planned, pod, manifests, given)
    for name, command in carried_out.init_containers():
        async with pod.container(command, log=pod.logs / f"init-{name}.log") as container:
            with trio.fail_after(TIMEOUT_SEC):
                code = await container.wait()
            assert code == 0, f"{name} exited {code}: {container.log.read_text()}"
    return await kubelet.start(pod, carried_out.spec(planned.spec["containers"][0]["name"]))


@asynccontextmanager
async def running(network: Network, kubelet: Kubelet, engines: Engines, directory: Path) -> AsyncIterator[Cluster]:
    for name in (LLAMA_SERVER, GGML_RPC_SERVER):
        program(engines, name)
    manifests = deployed(CHOICE, "sqlite")
    given = await what_is_given(directory, engines, network.hub)
    planned = {name: [pod for pod in pods_of(manifests) if name in pod.name] for name in ("controller", "engine")}
    (controller,) = planned["controller"]
    in_hub = await started(kubelet, controller, network.hub, manifests, given)
    places = zip(planned["engine"], network.pods, strict=True)
    supervisors = [await started(kubelet, each, pod, manifests, given) for each, pod in places]
    # Everything is on this machine: the environment's proxies are for the world outside.
    async with httpx.AsyncClient(
        timeout=TIMEOUT_SEC, trust_env=False, headers={"Authorization": f"Bearer {TOKEN}"}
    ) as http:
        cluster = Cluster(network, kubelet, in_hub, tuple(supervisors), http)
        try:
            yield cluster
        except Exception as error:
            error.add_note(cluster.logs())
            raise


def service_addresses(network: Network) -> list[str]:
    """Where the Service sends requests, ready or not."""
    manifests = deployed(CHOICE, "sqlite")
    spec = manifests.one("Service", "podvisor-engine")["spec"]
    planned = [pod for pod in pods_of(manifests) if "engine" in pod.name]
    (port,) = spec["ports"]
    return [
        f"http://{place.address}:{named['containerPort']}"
        for pod, place in zip(planned, network.pods, strict=True)
        if spec["selector"].items() <= pod.labels.items()
        for named in pod.container("engine")["ports"]
        if named["name"] == port["targetPort"]
    ]


async def test_two_pods_and_a_controller_serve_relaunch_and_leave(
    pods: PodsFactory, kubelet: Kubelet, engines: Engines, tmp_path: Path
) -> None:
    network = await pods(2)
    async with running(network, kubelet, engines, tmp_path) as cluster:
        instance = await cluster.instance(lambda found: found["status"] == "active")
        assert instance["job_name"] == "podvisor-engine-0"
        seats = {member["node_rank"]: member["pod_ip"] for member in instance["supervisors"]}
        assert seats == {rank: place.address for rank, place in enumerate(network.pods)}, "by the pods' ordinals"
        for place in network.pods:
            await kubelet.timeline.wait_for(lambda event, name=place.name: event == ReadinessChanged(name, True))

        (base,) = service_addresses(network)
        said = await complete(cluster.http, base)
        assert len(said) > 0
        for supervisor in cluster.supervisors:
            assert await users_and_capabilities(supervisor) == {"65532 0"}

        await _kill_engine(cluster.supervisors[0])
        again = await cluster.instance(lambda found: found["status"] == "active" and found["epoch"] > instance["epoch"])
        assert again["epoch"] == instance["epoch"] + 1
        assert await complete(cluster.http, base) == said
        assert [supervisor.restart_count for supervisor in cluster.supervisors] == [0, 0]

        async with trio.open_nursery() as nursery:
            for supervisor in cluster.supervisors:
                nursery.start_soon(supervisor.remove)
        assert [supervisor.exit_codes for supervisor in cluster.supervisors] == [[0], [0]], "within the grace period"


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


async def _kill_engine(supervisor: KubeletPod) -> None:
    assert supervisor.container is not None
    done = await supervisor.container.exec(["pkill", f"-{signal.SIGKILL}", "llama-server"])
    assert done.exit_code == 0, done.output
