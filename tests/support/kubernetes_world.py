"""A controller with its Kubernetes client, fake supervisors, and a fake API whose pods they are, on one memory network.

What makes new pods in place of deleted ones is here too: it is what a StatefulSet and a kubelet do together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from controller.election import Election
from controller.kubernetes.kubernetes import Make, kubernetes_of
from controller.kubernetes.trouble import Trouble
from controller.policy import Policy
from controller.sections import KubernetesSection
from tests.support.controller_world import World, open_world
from tests.support.fake_kubernetes.access import shipped_rules
from tests.support.fake_kubernetes.objects import EVENTS, PODS, STATEFUL_SETS
from tests.support.fake_kubernetes.server import FakeKubernetes, pod
from tests.support.fake_kubernetes.serving import TOKEN, USER
from tests.support.fake_supervisor import FakeSupervisor, Script
from tests.support.memory_network import MemoryNetwork

HOST, PORT = "kubernetes", 80
GRACE_SEC = 30.0
DEAF = Script(hang=frozenset({"prepare", "start", "abort", "stop", "status", "recover"}))
"""Of a PID 1 that was stopped: nothing is answered."""

Json = dict[str, Any]


@dataclass
class KubernetesWorld:
    world: World
    fake: FakeKubernetes
    account: Path
    by_pod: dict[str, FakeSupervisor] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    """Pods whose deletion took effect, in that order."""

    def add_gang(self, job_name: str = "job", size: int = 2) -> list[FakeSupervisor]:
        """Its pods are there first, owned by one that makes new ones."""
        owner = self.fake.objects.create(STATEFUL_SETS, "default", {"metadata": {"name": job_name}})
        for rank in range(size):
            self.fake.objects.create(PODS, "default", pod(f"{job_name}-{rank}", owner=owner))
        gang = self.world.add_gang(job_name, size)
        for each in gang:
            each.pod_uid = self.uid(each.pod_name)
            self.by_pod[each.pod_name] = each
        return gang

    @property
    def trouble(self) -> Trouble:
        """Of the controller that leads now."""
        found = self.world.it.sources.kubernetes
        assert found is not None
        return found

    def uid(self, name: str) -> str:
        return str(self.fake.objects.pod(name)["metadata"]["uid"])

    def condition(self, name: str) -> tuple[str, str] | None:
        """Status and reason."""
        for each in self.fake.objects.pod(name)["status"]["conditions"]:
            if each["type"] == "podvisor.io/InstanceActive":
                return each["status"], each["reason"]
        return None

    def events(self, about: str) -> list[Json]:
        """In the order in which they came, of a pod or an owner."""
        found = self.fake.objects.list(EVENTS, "default", lambda each: each["involvedObject"]["name"] == about)
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def reasons(self, about: str) -> set[str]:
        return {each["reason"] for each in self.events(about)}

    def deaf(self, supervisor: FakeSupervisor) -> None:
        """Its PID 1 hangs: it says nothing, and answers nothing."""
        supervisor.script = DEAF
        supervisor.mute = True

    def replace_deleted_pods(self) -> None:
        """As kubelet and owner do: the containers end by the grace period, another pod takes the name."""
        self.fake.objects.ended_gracefully = lambda found: self.world.nursery.start_soon(self._replace, found)

    async def _replace(self, deleted: Json) -> None:
        name = deleted["metadata"]["name"]
        self.ended.append(name)
        supervisor = self.by_pod[name]
        await trio.sleep(GRACE_SEC if supervisor.mute else 1.0)
        self.fake.objects.remove(PODS, "default", name)
        again = pod(name)
        again["metadata"]["ownerReferences"] = deleted["metadata"]["ownerReferences"]
        supervisor.pod_uid = self.fake.objects.create(PODS, "default", again)["metadata"]["uid"]
        supervisor.script, supervisor.mute = Script(), False
        supervisor.kill_container()


@asynccontextmanager
async def open_kubernetes_world(
    directory: Path,
    *,
    policy: Policy | None = None,
    elect: Callable[[], Election] | None = None,
    fake: FakeKubernetes | None = None,
    **settings: Any,
) -> AsyncIterator[KubernetesWorld]:
    """The client may do what the shipped role allows. `settings`: of `[kubernetes]`."""
    fake = fake or FakeKubernetes()
    fake.access.tokens[TOKEN] = USER
    fake.access.roles[USER] = shipped_rules()
    (directory / "token").write_text(TOKEN)
    (directory / "namespace").write_text("default")
    given = {"enable": True, "api_url": f"http://{HOST}:{PORT}", "service_account_dir": str(directory), **settings}
    section = KubernetesSection(**given)

    def client(network: MemoryNetwork) -> Make:
        network.listen(HOST, PORT, fake.app())
        make = kubernetes_of(section, {}, lambda: network.transport("controller"))
        assert make is not None
        return make

    async with open_world(policy, elect, kubernetes=client) as world:
        yield KubernetesWorld(world, fake, directory)
