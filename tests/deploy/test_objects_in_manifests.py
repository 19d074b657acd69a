"""What the objects mean to each other: Services, budgets and policies to pods, mounts to what is mounted.

The chart's objects are the same ones (test_chart.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.deploy.choices import ENGINES, Choice, deployed
from tests.deploy.container import ports_of
from tests.deploy.platforms import PlannedPod, made_by_platforms, pods_of
from tests.deploy.policies import ports_reached
from tests.deploy.reading import choices, controller_pods, engine_pods, settings_of, stores

GIVEN = {("Secret", "podvisor-token"), ("PersistentVolumeClaim", "models")}
"""What whoever deploys brings along; docs/in-the-cluster.md says so."""


def selected(selector: Mapping[str, str], pods: list[PlannedPod]) -> list[PlannedPod]:
    return [pod for pod in pods if selector.items() <= pod.labels.items()]


@choices
def test_the_service_selects_rank_0_and_the_headless_one_all(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    pods = pods_of(manifests)
    service = manifests.one("Service", "podvisor-engine-http")["spec"]
    (first,) = selected(service["selector"], pods)
    assert settings_of(first, "10.0.0.11", manifests, tmp_path).supervisor.node_index in (0, None)
    assert {port["targetPort"] for port in service["ports"]} <= ports_of(first.container("engine")).keys()
    for workload in manifests.of("StatefulSet"):
        headless = manifests.one("Service", workload["spec"]["serviceName"])["spec"]
        assert headless["clusterIP"] == "None"
        assert headless["publishNotReadyAddresses"] is True
        assert selected(headless["selector"], pods) == engine_pods(manifests)


@choices
@stores
def test_selectors_of_everything_else_match_the_pods_that_they_mean(choice: Choice, store: str) -> None:
    manifests = deployed(choice, store)
    pods = pods_of(manifests)
    meant = {"podvisor-engine": engine_pods(manifests), "podvisor-controller": controller_pods(manifests)}
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        for found in manifests.of(kind):
            assert selected(found["spec"]["selector"]["matchLabels"], pods) == meant[found["metadata"]["name"]]
    for found in manifests.of("NetworkPolicy"):
        assert selected(found["spec"]["podSelector"]["matchLabels"], pods) == meant[found["metadata"]["name"]]
    controllers = manifests.one("Service", "podvisor-controller")["spec"]
    assert selected(controllers["selector"], pods) == controller_pods(manifests)
    assert [port["port"] for port in controllers["ports"]] == [1026], "the one in the supervisors' controller_url"


@choices
@stores
def test_what_the_platform_makes_itself_has_names_of_its_own(choice: Choice, store: str) -> None:
    """LeaderWorkerSet would take a Service of its name for its headless one, Volcano would delete it with the Job."""
    manifests = deployed(choice, store)
    ours = {(found["kind"], found["metadata"]["name"]) for found in manifests}
    assert ours & made_by_platforms(manifests) == set()


@choices
@stores
def test_everything_that_is_mounted_exists_or_has_to_be_brought(choice: Choice, store: str) -> None:
    manifests = deployed(choice, store)
    here = {(found["kind"], found["metadata"]["name"]) for found in manifests}
    asked: set[tuple[str, str]] = set()
    for pod in pods_of(manifests):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        mounted = {
            mount["name"]
            for container in (*pod.spec["containers"], *pod.spec.get("initContainers", ()))
            for mount in container["volumeMounts"]
        }
        assert mounted == volumes.keys(), "every volume is mounted, every mount has a volume"
        for volume in volumes.values():
            if "configMap" in volume:
                asked.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                asked.add(("Secret", volume["secret"]["secretName"]))
            if "persistentVolumeClaim" in volume:
                asked.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    assert asked - here == GIVEN


@choices
def test_peers_are_allowed_in_by_the_network_policy(choice: Choice) -> None:
    """The table of ports in docs/in-the-cluster.md: who may reach which."""
    manifests = deployed(choice, "sqlite")
    engine, controller = engine_pods(manifests)[0], controller_pods(manifests)[0]
    policy = manifests.one("NetworkPolicy", "podvisor-engine")["spec"]["ingress"]
    assert ports_reached(policy, engine.labels, "default") == {None, "http"}, "all, between pods of an instance"
    assert ports_reached(policy, controller.labels, "default") == {"node-manager", "http"}
    assert ports_reached(policy, {"app": "prometheus"}, "monitoring") == {"probe"}
    assert ports_reached(policy, {"app": "router"}, "default") == {"http"}
    assert ports_reached(policy, controller.labels, "elsewhere") == set()
    policy = manifests.one("NetworkPolicy", "podvisor-controller")["spec"]["ingress"]
    assert ports_reached(policy, engine.labels, "default") == {"api"}
    assert ports_reached(policy, {"app": "prometheus"}, "monitoring") == {"probe"}
    assert ports_reached(policy, {"app": "router"}, "default") == set()
    assert ports_reached(policy, {"podvisor.io/client": "true"}, "default") == {"api"}
    named = {"http", "node-manager", "probe"}
    assert named == ports_of(engine.container("engine")).keys()
    assert {"api", "probe"} == ports_of(controller.container("controller")).keys()


@stores
def test_one_controller_writes_a_journal_and_two_share_an_etcd(store: str) -> None:
    spec = deployed(ENGINES[0], store).one("Deployment", "podvisor-controller")["spec"]
    if store == "sqlite":
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    else:
        assert spec["replicas"] == 2


def test_what_each_platform_does_with_a_container_that_ends_is_left_to_podvisor() -> None:
    by_name = {str(choice): deployed(choice, "sqlite") for choice in ENGINES}
    group = by_name["vllm-leaderworkerset"].one("LeaderWorkerSet", "podvisor-engine")["spec"]
    assert group["leaderWorkerTemplate"]["restartPolicy"] == "None"
    stateful = by_name["vllm-statefulset"].one("StatefulSet", "podvisor-engine")["spec"]
    assert stateful["podManagementPolicy"] == "Parallel"
    assert stateful["updateStrategy"] == {"type": "OnDelete"}, "pods of a gang take a new template together"
    job = by_name["vllm-volcano"].one("Job", "podvisor-engine")["spec"]
    assert job["policies"] == [{"event": "PodFailed", "action": "RestartPod"}]
    restarts = {name: engine_pods(found)[0].spec["restartPolicy"] for name, found in by_name.items()}
    assert restarts.pop("vllm-volcano") == "OnFailure"
    assert set(restarts.values()) == {"Always"}


@choices
def test_one_instance_is_disrupted_at_a_time(choice: Choice) -> None:
    budgets = [
        found
        for found in deployed(choice, "sqlite").of("PodDisruptionBudget")
        if found["metadata"]["name"] == "podvisor-engine"
    ]
    if choice.platform == "volcano":
        assert budgets == [], "its Job has no scale, so Kubernetes cannot tell what a part of it is"
        return
    (budget,) = budgets
    assert budget["spec"]["maxUnavailable"] == choice.nnodes
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@choices
@stores
def test_pods_meet_the_restricted_pod_security_standard(choice: Choice, store: str) -> None:
    """The parts of it that concern these pods, and no token of Kubernetes."""
    for pod in pods_of(deployed(choice, store)):
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["enableServiceLinks"] is False
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["runAsUser"] > 0
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        for container in (*pod.spec["containers"], *pod.spec.get("initContainers", ())):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["command"], "engine images bring an entry point of their own"
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
        kinds = {next(key for key in volume if key != "name") for volume in pod.spec["volumes"]}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}


def test_a_rule_reaches_whom_it_names_and_nobody_else() -> None:
    """The reading of policies is itself right."""
    selectors = [{"matchLabels": {"a": "b"}}, {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
    for selector in selectors:
        rule = {"from": [{"podSelector": selector}], "ports": [{"port": "x"}]}
        assert ports_reached([rule], {"a": "b"}, "default") == {"x"}
        assert ports_reached([rule], {"a": "c"}, "default") == set()
        assert ports_reached([rule], {"c": "b"}, "default") == set()
        assert ports_reached([rule], {"a": "b"}, "elsewhere") == set()
