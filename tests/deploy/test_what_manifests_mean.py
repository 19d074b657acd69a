"""What the manifests mean to those who read them: podvisor, the kubelet, Services, network policies.

Their text is read by podvisor's own parsers, with the environment and the files that a pod would have. The chart's
objects are the same ones (test_chart.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.settings import load as load_controller_settings
from supervisor.cli.verify import GRACE_PERIOD, Report, verify
from supervisor.settings import Settings, load_settings
from tests.deploy.choices import ENGINES, STORES, Choice, deployed
from tests.deploy.container import config_maps, environment_of, option, ports_of, write_files
from tests.deploy.platforms import PlannedPod, made_by_platforms, pods_of
from tests.deploy.rendered import Manifests

GIVEN = {("Secret", "podvisor-token"), ("PersistentVolumeClaim", "models")}
"""What whoever deploys brings along; docs/in-the-cluster.md says so."""

choices = pytest.mark.parametrize("choice", ENGINES, ids=str)
stores = pytest.mark.parametrize("store", STORES)


def engine_pods(manifests: Manifests) -> list[PlannedPod]:
    return [pod for pod in pods_of(manifests) if pod.labels["app.kubernetes.io/component"] == "engine"]


def controller_pods(manifests: Manifests) -> list[PlannedPod]:
    return [pod for pod in pods_of(manifests) if pod.labels["app.kubernetes.io/component"] == "controller"]


def addressed(pods: list[PlannedPod]) -> Iterator[tuple[PlannedPod, str]]:
    for number, pod in enumerate(pods):
        yield pod, f"10.0.0.{11 + number}"


def supervisor_files(pod: PlannedPod, manifests: Manifests, root: Path) -> tuple[Path, Path]:
    """(settings file, directory of units) below `root`, as the command line names them."""
    write_files(config_maps(pod, "engine", manifests), root)
    command = pod.container("engine")["command"]
    return root / option(command, "config").lstrip("/"), root / option(command, "units").lstrip("/")


def verified(pod: PlannedPod, address: str, manifests: Manifests, root: Path) -> Report:
    config, units = supervisor_files(pod, manifests, root)
    return verify([units], config, environment_of(pod, "engine", address=address), elsewhere=True)


def settings_of(pod: PlannedPod, address: str, manifests: Manifests, root: Path) -> Settings:
    config, _ = supervisor_files(pod, manifests, root)
    return load_settings(config, environment_of(pod, "engine", address=address))


@choices
def test_podvisor_verify_finds_nothing_wrong_in_any_pod(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    pods = engine_pods(manifests)
    assert len(pods) == choice.nnodes
    for pod, address in addressed(pods):
        report = verified(pod, address, manifests, tmp_path)
        assert report.problems == ()
        assert [unit.engine.launcher for unit in report.units if unit.engine is not None] == [choice.engine]
        # The engine's program is not on this machine; nothing else may be amiss.
        amiss = [warning for warning in report.warnings if not warning.message.startswith("cannot find")]
        assert amiss == []


@choices
def test_the_grace_period_is_what_podvisor_verify_says(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    for pod, address in addressed(engine_pods(manifests)):
        report = verified(pod, address, manifests, tmp_path)
        assert report.grace_period_sec is not None
        needed = math.ceil(report.grace_period_sec)
        given = pod.spec["terminationGracePeriodSeconds"]
        assert environment_of(pod, "engine", address=address)[GRACE_PERIOD] == str(given), "it has to be told"
        assert needed <= given <= needed + 30, "enough, and not much more: a node is drained for so long"


@choices
def test_every_pod_knows_which_instance_it_is_and_where_in_it(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    known = [
        settings_of(pod, address, manifests, tmp_path).supervisor for pod, address in addressed(engine_pods(manifests))
    ]
    assert [each.node_index for each in known] == (list(range(choice.nnodes)) if choice.nnodes > 1 else [None])
    assert {each.nnodes for each in known} == {choice.nnodes}
    assert len({each.job_name for each in known}) == 1
    assert known[0].controller_url == ("http://podvisor-controller:1026",)
    assert known[0].exit_on_term == ("signal" if choice.platform == "volcano" else "success")
    pod = settings_of(engine_pods(manifests)[0], "10.0.0.11", manifests, tmp_path).pod
    assert (pod.namespace, pod.uid, pod.node_name, pod.ip) == ("default", "uid-1", "node-1", "10.0.0.11")


@choices
def test_probes_ports_and_settings_agree(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    for pod, address in addressed(engine_pods(manifests)):
        supervisor = settings_of(pod, address, manifests, tmp_path).supervisor
        engine = next(unit.engine for unit in verified(pod, address, manifests, tmp_path).units if unit.engine)
        container = pod.container("engine")
        assert ports_of(container) == {
            "http": engine.base_port,
            "node-manager": supervisor.port,
            "probe": supervisor.probe_port,
        }
        probes = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert probes == {
            "startupProbe": {"path": "/startupz", "port": "probe"},
            "livenessProbe": {"path": "/livez", "port": "probe"},
            "readinessProbe": {"path": "/readyz", "port": "probe"},
        }
        assert container["readinessProbe"]["periodSeconds"] == 2
        assert container["readinessProbe"]["failureThreshold"] == 1


@choices
def test_a_start_may_take_as_long_as_podvisor_lets_it(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    pod = engine_pods(manifests)[0]
    cap = max(unit.service.start.timeout_sec for unit in verified(pod, "10.0.0.11", manifests, tmp_path).units)
    startup = pod.container("engine")["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > cap
    for deployment in manifests.of("Deployment"):
        if deployment["metadata"]["name"] == "podvisor-engine":
            assert deployment["spec"]["progressDeadlineSeconds"] > cap


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
def test_paths_of_settings_are_mounts(choice: Choice, tmp_path: Path) -> None:
    """What outlives a container lies on a volume of the pod, shared memory in memory."""
    manifests = deployed(choice, "sqlite")
    pod = engine_pods(manifests)[0]
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in pod.container("engine")["volumeMounts"]}
    settings = settings_of(pod, "10.0.0.11", manifests, tmp_path)
    assert settings.supervisor.state_dir is None
    assert mounts["/run/podvisor"]["emptyDir"] == {}, "where state_dir and socket are by default"
    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    assert settings.auth.token_file is not None
    assert mounts[str(Path(settings.auth.token_file).parent)]["secret"]["secretName"] == "podvisor-token"
    (copying,) = pod.spec["initContainers"]
    (copied,) = copying["volumeMounts"]
    program = Path(pod.container("engine")["command"][0])
    assert program == Path("/opt/podvisor/bin/podvisor")
    assert mounts["/opt/podvisor"] == volumes[copied["name"]], "where podvisor is run is what was copied to"
    assert copying["command"][-1].rstrip("/") == copied["mountPath"]


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


def ports_reached(ingress: list[Mapping[str, Any]], labels: Mapping[str, str], namespace: str) -> set[str | None]:
    """None: all."""
    of_namespace = {"kubernetes.io/metadata.name": namespace}
    return {
        port.get("port")
        for rule in ingress
        for peer in rule["from"]
        if _matches(peer.get("podSelector"), labels)
        and (
            _matches(peer["namespaceSelector"], of_namespace) if "namespaceSelector" in peer else namespace == "default"
        )
        for port in rule["ports"]
    }


def _matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selector.get("matchLabels", {}).items() <= labels.items()


@stores
def test_the_controller_loads_its_settings(store: str, tmp_path: Path) -> None:
    manifests = deployed(ENGINES[0], store)
    for pod, address in addressed(controller_pods(manifests)):
        write_files(config_maps(pod, "controller", manifests), tmp_path)
        container = pod.container("controller")
        path = tmp_path / option(container["command"], "config").lstrip("/")
        settings = load_controller_settings(path, environment_of(pod, "controller", address=address))
        assert settings.controller.store == store
        assert settings.controller.host == "0.0.0.0"
        assert settings.controller.advertise_url == f"http://{address}:1026"
        assert ports_of(container) == {"api": settings.controller.port, "probe": settings.controller.probe_port}
        if store == "sqlite":
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert str(Path(settings.controller.state_dir).parent) in mounts


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
    """The reading of policies above is itself right."""
    rule = {"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": "x"}]}
    assert ports_reached([rule], {"a": "b"}, "default") == {"x"}
    assert ports_reached([rule], {"a": "c"}, "default") == set()
    assert ports_reached([rule], {"a": "b"}, "elsewhere") == set()
