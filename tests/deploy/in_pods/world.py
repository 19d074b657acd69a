"""A cluster of one machine for rendered manifests: what has to be there first, and all pods carried out in place."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio

from controller.demo.cluster import Cluster
from controller.demo.engines import GGML_RPC_SERVER, LLAMA_SERVER, Engines, tiny_model
from controller.demo.kubelet import Kubelet, KubeletPod
from controller.demo.pod import Network, Pod, base_environment
from controller.demo.tiny_model import Shape
from supervisor.version import VERSION
from tests.deploy.in_pods.carried_out import CarriedOut, Given, Image
from tests.deploy.platforms import PlannedPod, pods_of
from tests.deploy.rendered import Manifests
from tests.pods.harness import TIMEOUT_SEC
from tests.support.certificates import make_ca, make_certificate
from tests.support.installed_engines import program

TOKEN = secrets.token_hex(16)


def images(prefix: Path, engines: Engines) -> dict[str, Image]:
    """podvisor's holds its prefix; the engine's has an engine and a Python, and knows nothing of podvisor."""
    path = os.pathsep.join((engines.search_path, base_environment()["PATH"]))
    return {
        f"podvisor:{VERSION}": Image(directories={"/opt/podvisor": prefix}),
        "llama-server": Image(variables={"PATH": path}, programs=[engines.directory.resolve()]),
    }


async def what_is_given(directory: Path, prefix: Path, engines: Engines, hub: Pod) -> Given:
    """What docs/in-the-cluster.md says has to be there first."""
    models = directory / "models"
    models.mkdir()
    (models / "model.gguf").write_bytes((await tiny_model(engines, Shape())).read_bytes())
    return Given(
        images=images(prefix, engines),
        secrets={"podvisor-token": {"token": TOKEN}, "podvisor-tls": _certificate(_made(directory / "tls"))},
        claims={"models": models, "podvisor-controller": _made(directory / "journal")},
        hosts={"podvisor-controller": hub.address},
    )


def _certificate(directory: Path) -> dict[str, str]:
    """A Secret of the kind kubernetes.io/tls, with the CA as cert-manager adds it."""
    make_ca(directory)
    make_certificate(directory, "tls")
    return {name: (directory / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt")}


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
async def running(
    network: Network, kubelet: Kubelet, engines: Engines, prefix: Path, directory: Path, manifests: Manifests
) -> AsyncIterator[Cluster]:
    """The controller in the hub and the engine's pods in those of the network, in their order."""
    for name in (LLAMA_SERVER, GGML_RPC_SERVER):
        program(engines, name)
    given = await what_is_given(directory, prefix, engines, network.hub)
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


async def typed_in(kept: KubeletPod, *arguments: str) -> str:
    """What a podvisor command says that is typed with `kubectl exec`, which gives it the container's variables."""
    assert kept.container is not None
    variables = [f"{name}={value}" for name, value in kept.spec.environment.items()]
    done = await kept.container.exec(["env", *variables, "/opt/podvisor/bin/podvisor", *arguments])
    return done.output


def service_addresses(network: Network, manifests: Manifests) -> list[str]:
    """Where the engine's Service sends requests, ready or not."""
    spec = manifests.one("Service", "podvisor-engine-http")["spec"]
    planned = [pod for pod in pods_of(manifests) if "engine" in pod.name]
    (port,) = spec["ports"]
    return [
        f"http://{place.address}:{named['containerPort']}"
        for pod, place in zip(planned, network.pods, strict=True)
        if spec["selector"].items() <= pod.labels.items()
        for named in pod.container("engine")["ports"]
        if named["name"] == port["targetPort"]
    ]
