"""What each platform makes of its object: pods, with their names, labels, annotations and variables.

Stands in for controllers that are not on this machine, as far as podvisor takes notice of them. Read in Kubernetes' own
pages on StatefulSet and Deployment, in LeaderWorkerSet's `AddLWSVariables`, in `createJobPod` of Volcano and its plugin
`env`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deploy.rendered import Manifests, Object


@dataclass(frozen=True)
class PlannedPod:
    name: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Which the platform itself adds to every container."""

    def container(self, name: str) -> Mapping[str, Any]:
        return next(found for found in self.spec["containers"] if found["name"] == name)


def pods_of(manifests: Manifests) -> list[PlannedPod]:
    return [
        pod
        for found in manifests
        if (made := PLATFORMS.get((found["apiVersion"].partition("/")[0], found["kind"])))
        for pod in made(found)
    ]


def made_by_platforms(manifests: Manifests) -> set[tuple[str, str]]:
    """(kind, name) of what the platforms' controllers make beside pods, and take for theirs if it is there already."""
    made: set[tuple[str, str]] = set()
    for found in manifests:
        name, spec = found["metadata"]["name"], found.get("spec", {})
        if found["kind"] == "LeaderWorkerSet":
            groups = {("StatefulSet", f"{name}-{group}") for group in range(spec["replicas"])}
            made |= {("Service", name), ("StatefulSet", name), *groups}
        if "svc" in spec.get("plugins", {}):
            made |= {("Service", name), ("NetworkPolicy", name), ("ConfigMap", f"{name}-svc")}
    return made


def template_of(workload: Object) -> Object:
    """The pod template in an object of any of these kinds."""
    spec = workload["spec"]
    template: Object
    if "leaderWorkerTemplate" in spec:
        template = spec["leaderWorkerTemplate"]["workerTemplate"]
    else:
        template = spec["tasks"][0]["template"] if "tasks" in spec else spec["template"]
    return template


def _stateful_set(workload: Object) -> Iterator[PlannedPod]:
    template, name = template_of(workload), workload["metadata"]["name"]
    for ordinal in range(workload["spec"]["replicas"]):
        labels = {
            **template["metadata"]["labels"],
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
        }
        yield PlannedPod(f"{name}-{ordinal}", labels, template["spec"])


def _deployment(workload: Object) -> Iterator[PlannedPod]:
    template, name = template_of(workload), workload["metadata"]["name"]
    for number in range(workload["spec"]["replicas"]):
        # A suffix that could be taken for a number.
        yield PlannedPod(f"{name}-5d4f6c7b8-{number}4242", template["metadata"]["labels"], template["spec"])


def _leader_worker_set(workload: Object) -> Iterator[PlannedPod]:
    template, name, spec = template_of(workload), workload["metadata"]["name"], workload["spec"]
    size = spec["leaderWorkerTemplate"]["size"]
    for group in range(spec["replicas"]):
        for worker in range(size):
            labels = {
                **template["metadata"]["labels"],
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
            }
            # Leaders, and likewise workers, are pods of a StatefulSet.
            labels["apps.kubernetes.io/pod-index"] = str(worker or group)
            variables = {
                "LWS_LEADER_ADDRESS": f"{name}-{group}.{name}.default",
                "LWS_GROUP_SIZE": str(size),
                "LWS_WORKER_INDEX": str(worker),
            }
            pod = f"{name}-{group}-{worker}" if worker else f"{name}-{group}"
            yield PlannedPod(pod, labels, template["spec"], variables)


def _volcano_job(workload: Object) -> Iterator[PlannedPod]:
    name = workload["metadata"]["name"]
    for task in workload["spec"]["tasks"]:
        for index in range(task["replicas"]):
            labels = {
                **task["template"]["metadata"]["labels"],
                "volcano.sh/job-name": name,
                "volcano.sh/task-spec": task["name"],
                "volcano.sh/task-index": str(index),
            }
            variables = {"VC_TASK_INDEX": str(index)} if "env" in workload["spec"].get("plugins", {}) else {}
            yield PlannedPod(f"{name}-{task['name']}-{index}", labels, task["template"]["spec"], variables)


PLATFORMS: Mapping[tuple[str, str], Callable[[Object], Iterator[PlannedPod]]] = {
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "Deployment"): _deployment,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("batch.volcano.sh", "Job"): _volcano_job,
}
