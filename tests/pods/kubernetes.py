"""Pods of the fake Kubernetes API that really run: each is a pod of the network, kept by the kubelet stand-in.

What a kubelet writes into a pod's status is written here, and what a StatefulSet does when a pod is gone is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from controller.demo.kubelet import (
    ContainerExited,
    ContainerSpec,
    ContainerStarted,
    Kubelet,
    KubeletEvent,
    KubeletPod,
    ReadinessChanged,
    RestartWaits,
)
from controller.demo.pod import Network, Pod
from tests.support.fake_kubernetes.access import shipped_rules
from tests.support.fake_kubernetes.objects import PODS, STATEFUL_SETS
from tests.support.fake_kubernetes.patches import strategic_merge
from tests.support.fake_kubernetes.server import FakeKubernetes, pod
from tests.support.fake_kubernetes.serving import USER, Served, served

Json = dict[str, Any]
NAMESPACE = "default"


@dataclass
class Node:
    """All pods of one owner, and who runs them."""

    api: Served
    kubelet: Kubelet
    owner: Json
    nursery: trio.Nursery
    running: dict[str, KubeletPod] = field(default_factory=dict)
    """By the pod's name, the one that has it now."""
    ended: list[KubeletPod] = field(default_factory=list)
    """Deleted."""

    async def start(self, place: Pod, spec: ContainerSpec) -> None:
        """A pod object, and its container, which is told who it is as by the downward API."""
        made = self.api.fake.objects.create(PODS, NAMESPACE, pod(place.name, owner=self.owner))
        meta = made["metadata"]
        named = {"POD_NAME": meta["name"], "POD_NAMESPACE": meta["namespace"], "POD_UID": meta["uid"]}
        told = replace(spec, environment={**spec.environment, **named})
        self.running[place.name] = await self.kubelet.start(place, told)

    def uid(self, name: str) -> str:
        return str(self.api.fake.objects.pod(name)["metadata"]["uid"])

    def end(self, deleted: Json) -> None:
        """The API was asked to delete it."""
        self.nursery.start_soon(self._end, deleted["metadata"]["name"])

    async def _end(self, name: str) -> None:
        kept = self.running[name]
        await kept.remove()
        self.ended.append(kept)
        self.api.fake.objects.remove(PODS, NAMESPACE, name)
        await self.start(kept.pod, kept.spec)

    async def write_statuses(self) -> None:
        """As the kubelet tells what it does. Until cancelled."""
        number = 0
        while True:
            entry = await self.kubelet.timeline.wait_for(lambda _: True, since=number)
            number = entry.number + 1
            name = entry.event.pod
            if name in self.running and any(each["metadata"]["name"] == name for each in self._objects()):
                self._patch(name, _status(entry.event, self.running[name]))

    def _objects(self) -> list[Json]:
        return self.api.fake.objects.list(PODS, NAMESPACE)

    def _patch(self, name: str, status: Json) -> None:
        before = self.api.fake.objects.pod(name)
        self.api.fake.objects.replace(PODS, NAMESPACE, name, strategic_merge(before, {"status": status}))


def _status(event: KubeletEvent, kept: KubeletPod) -> Json:
    container: Json = {"name": "engine", "restartCount": kept.restart_count}
    match event:
        case ContainerStarted():
            return {"phase": "Running", "containerStatuses": [container | {"state": {"running": {}}}]}
        case ContainerExited(_, _, code):
            ended = {"terminated": {"exitCode": code}}
            return {"containerStatuses": [container | {"state": ended, "lastState": ended}]}
        case RestartWaits():
            return {"containerStatuses": [container | {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
        case ReadinessChanged(_, ready):
            return {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {}


@asynccontextmanager
async def open_node(
    network: Network, kubelet: Kubelet, specs: Callable[[int], ContainerSpec], directory: Path
) -> AsyncIterator[Node]:
    """An API in the hub, and a pod of it in each pod of the network; `specs` is told the rank.

    `directory` must be seen by whoever speaks to the API.
    """
    fake = FakeKubernetes()
    fake.access.roles[USER] = shipped_rules()
    directory.mkdir()
    async with served(fake, directory, network.hub.address) as api, trio.open_nursery() as nursery:
        owner = fake.objects.create(STATEFUL_SETS, NAMESPACE, {"metadata": {"name": "job"}})
        node = Node(api, kubelet, owner, nursery)
        fake.objects.ended_gracefully = node.end
        nursery.start_soon(node.write_statuses)
        for rank, place in enumerate(network.pods):
            await node.start(place, specs(rank))
        yield node
        nursery.cancel_scope.cancel(reason="the test is over")


def client_settings(api: Served) -> Mapping[str, object]:
    """`[kubernetes]` of a controller that is to use it."""
    return {"enable": True, "api_url": api.url, "service_account_dir": str(api.account)}
