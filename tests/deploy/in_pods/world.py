"""A cluster of one machine for rendered manifests: what has to be there first, and all pods carried out in place."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import trio

from controller.demo.cluster import Cluster
from controller.demo.engines import GGML_RPC_SERVER, LLAMA_SERVER, Engines, tiny_model
from controller.demo.kubelet import Kubelet, KubeletPod
from controller.demo.pod import Network, base_environment
from controller.demo.tiny_model import Shape
from supervisor.version import VERSION
from tests.deploy.in_pods.carried_out import CarriedOut, Given, Image
from tests.deploy.in_pods.services import Placed, serve, with_addresses
from tests.deploy.platforms import PlannedPod, pods_of
from tests.deploy.rendered import Manifests
from tests.pods.harness import TIMEOUT_SEC
from tests.support.certificates import make_ca, make_certificate
from tests.support.installed_engines import program

TOKEN = secrets.token_hex(16)
ANSWER_SEC = 10.0
"""Then a question is asked again: the link of whom it went to may be cut."""


@dataclass(frozen=True)
class Stage:
    """Made by the fixture `stage`; carries out one set of manifests."""

    network: Network
    """Still without pods."""
    kubelet: Kubelet
    engines: Engines
    prefix: Path
    directory: Path
    """An empty one."""

    @asynccontextmanager
    async def running(self, manifests: Manifests, hosts: Mapping[str, str] | None = None) -> AsyncIterator[Cluster]:
        """Each pod by its name, controllers first; and the Services, at the hub.

        `hosts` are further names -> addresses. `Cluster.from_controller` asks the Service of the controllers.
        """
        for name in (LLAMA_SERVER, GGML_RPC_SERVER):
            program(self.engines, name)
        services, hub = with_addresses(manifests), self.network.hub
        names = {service["metadata"]["name"]: hub.address for service in services}
        given = await self._given({**names, **(hosts or {})})
        pods: list[Placed] = []
        async with trio.open_nursery() as nursery:
            for service in services:
                await nursery.start(serve, service, hub.address, pods)
            for planned in sorted(pods_of(manifests), key=_role):
                pods.append(Placed(planned, await self._started(planned, manifests, given)))
            # Everything is on this machine: the environment's proxies are for the world outside.
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(timeout=ANSWER_SEC, trust_env=False, headers=headers) as http:
                of = {role: tuple(pod.kept for pod in pods if _role(pod.planned) == role) for role in ROLES}
                cluster = Cluster(self.network, self.kubelet, of["controller"], of["engine"], http)
                try:
                    yield cluster
                except Exception as error:
                    error.add_note(cluster.logs())
                    raise
            nursery.cancel_scope.cancel(reason="the cluster is needed no more")

    async def _given(self, hosts: Mapping[str, str]) -> Given:
        """What docs/in-the-cluster.md says has to be there first."""
        models = _made(self.directory / "models")
        (models / "model.gguf").write_bytes((await tiny_model(self.engines, Shape())).read_bytes())
        return Given(
            images=images(self.prefix, self.engines),
            secrets={"podvisor-token": {"token": TOKEN}, "podvisor-tls": _certificate(_made(self.directory / "tls"))},
            claims={"models": models, "podvisor-controller": _made(self.directory / "journal")},
            hosts=hosts,
        )

    async def _started(self, planned: PlannedPod, manifests: Manifests, given: Given) -> KubeletPod:
        """Init containers to their end, then the pod's container."""
        pod = await self.network.add_pod(planned.name)
        carried_out = CarriedOut(planned, pod, manifests, given)
        for name, command in carried_out.init_containers():
            async with pod.container(command, log=pod.logs / f"init-{name}.log") as container:
                with trio.fail_after(TIMEOUT_SEC):
                    code = await container.wait()
                assert code == 0, f"{name} exited {code}: {container.log.read_text()}"
        return await self.kubelet.start(pod, carried_out.spec(planned.spec["containers"][0]["name"]))


ROLES = ("controller", "engine")


def _role(planned: PlannedPod) -> str:
    return planned.labels["app.kubernetes.io/component"]


def images(prefix: Path, engines: Engines) -> dict[str, Image]:
    """podvisor's holds its prefix; the engine's has an engine and a Python, and knows nothing of podvisor."""
    path = os.pathsep.join((engines.search_path, base_environment()["PATH"]))
    return {
        f"podvisor:{VERSION}": Image(directories={"/opt/podvisor": prefix}),
        "llama-server": Image(variables={"PATH": path}, programs=[engines.directory.resolve()]),
    }


def _certificate(directory: Path) -> dict[str, str]:
    """A Secret of the kind kubernetes.io/tls, with the CA as cert-manager adds it."""
    make_ca(directory)
    make_certificate(directory, "tls")
    return {name: (directory / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt")}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def typed_in(kept: KubeletPod, *arguments: str) -> str:
    """What a podvisor command says that is typed with `kubectl exec`, which gives it the container's variables."""
    assert kept.container is not None
    variables = [f"{name}={value}" for name, value in kept.spec.environment.items()]
    done = await kept.container.exec(["env", *variables, "/opt/podvisor/bin/podvisor", *arguments])
    return done.output
