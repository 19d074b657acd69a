"""The Services of rendered manifests: what kube-proxy does with a connection.

All of them have the hub's address, which is where their names lead. Not here: headless ones, since podvisor knows its
pods by their addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import trio

from controller.demo.kubelet import KubeletPod
from controller.demo.port_forward import carry
from tests.deploy.container import ports_of
from tests.deploy.platforms import PlannedPod
from tests.deploy.rendered import Manifests, Object


@dataclass(frozen=True)
class Placed:
    """A planned pod where it really runs."""

    planned: PlannedPod
    kept: KubeletPod


def with_addresses(manifests: Manifests) -> list[Object]:
    return [found for found in manifests.of("Service") if found["spec"].get("clusterIP") != "None"]


async def serve(
    service: Object, address: str, pods: Sequence[Placed], *, task_status: trio.TaskStatus[list[trio.SocketListener]]
) -> None:
    """Each new connection to the next of those `pods` that are selected and ready; it is closed where there is none.

    `pods` may grow meanwhile. Serves until cancelled.
    """
    (port,) = service["spec"]["ports"]
    turns = count()

    async def take(near: trio.SocketStream) -> None:
        if ready := list(_endpoints(service["spec"]["selector"], port["targetPort"], pods)):
            chosen, number = ready[next(turns) % len(ready)]
            await carry(near, address=chosen, port=number)

    await trio.serve_tcp(take, port["port"], host=address, task_status=task_status)


def _endpoints(selector: Mapping[str, str], target: str, pods: Sequence[Placed]) -> Iterator[tuple[str, int]]:
    for pod in pods:
        if pod.kept.ready and selector.items() <= pod.planned.labels.items():
            (container,) = pod.planned.spec["containers"]
            yield pod.kept.pod.address, ports_of(container)[target]
