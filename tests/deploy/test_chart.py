"""deploy/chart: valid for every choice, made of the files that are shipped, and the same objects as kustomize's."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.version import VERSION
from tests.deploy.choices import ENGINES, STORES, Choice, deployed, values_of
from tests.deploy.container import environment_of
from tests.deploy.platforms import pods_of
from tests.deploy.rendered import CHART, PROJECT, Manifests, Object, templated
from tests.deploy.test_kustomize import added_to
from tests.deploy.tools import output_of, tool
from tests.deploy.validation import check_builtin, check_custom

choices = pytest.mark.parametrize("choice", ENGINES, ids=str)
EVERYTHING = {
    "tlsSecretName": "podvisor-tls",
    "podMonitor": {"enabled": True},
    "controller": {"podAccess": True, "store": "etcd"},
}
OF_HELM = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")


def by_name(manifests: Manifests) -> dict[str, Object]:
    """Comparable: without Helm's own labels, and with lists of named things in one order."""
    return {f"{found['kind']}/{found['metadata']['name']}": _sorted(_without_helm(found)) for found in manifests}


def _without_helm(found: Object) -> Object:
    labels = {name: value for name, value in found["metadata"].get("labels", {}).items() if name not in OF_HELM}
    return {**found, "metadata": {**found["metadata"], "labels": labels}}


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    named = [_sorted(each) for each in value]
    return sorted(named, key=lambda each: each["name"]) if all(_has_name(each) for each in named) else named


def _has_name(value: object) -> bool:
    return isinstance(value, Mapping) and "name" in value


@choices
@pytest.mark.parametrize("store", STORES)
def test_the_chart_makes_the_objects_that_kustomize_makes(choice: Choice, store: str, tmp_path: Path) -> None:
    chart = by_name(templated({**choice.values, "controller": {"store": store}}, tmp_path))
    kustomize = by_name(deployed(choice, store))
    assert chart.keys() == kustomize.keys()
    for name, found in chart.items():
        assert found == kustomize[name]


def test_with_everything_that_is_optional_they_are_still_the_same(tmp_path: Path) -> None:
    chart = templated({**ENGINES[1].values, **EVERYTHING}, tmp_path)
    parts = ("engines/vllm", "components/tls", "platforms/statefulset")
    optional = ("components/tls", "components/monitoring", "components/pod-access")
    kustomize = by_name(
        added_to(Path("pod"), *parts, directory=tmp_path / "engine")
        + added_to(Path("controller/etcd"), *optional, directory=tmp_path)
    )
    # The component is named for one controller in a namespace and has no labels of its own.
    for name, found in by_name(chart).items():
        expected = dict(kustomize.pop(name))
        if expected["kind"] in ("Role", "RoleBinding", "ServiceAccount"):
            expected["metadata"] = {**expected["metadata"], "labels": found["metadata"]["labels"]}
        assert found == expected
    assert kustomize == {}


@choices
def test_every_object_is_what_its_api_takes(choice: Choice, tmp_path: Path) -> None:
    manifests = templated({**choice.values, **EVERYTHING}, tmp_path)
    check_builtin(manifests, tmp_path)
    assert check_custom(manifests) == 1 + (choice.platform in ("leaderworkerset", "volcano"))


@choices
def test_helm_lint_has_nothing_to_say(choice: Choice, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**choice.values, **EVERYTHING}))
    output_of([tool("helm"), "lint", "--strict", str(CHART), "--values", str(values)])


@pytest.mark.parametrize(
    "values, complaint",
    [
        ({"engine": {"plattform": "volcano"}}, "plattform"),
        ({"engine": {"name": "sglang"}}, "values-sglang.yaml"),
        ({"engine": {"name": "llama-server"}}, "values-llama-server.yaml"),
        ({"engine": {"platform": "job"}}, "platform"),
        ({"engine": {"platform": "deployment", "nnodes": 2}}, "nnodes"),
        ({"engine": {"platform": "statefulset", "nnodes": 2, "instances": 2}}, "instances"),
        ({"engine": {"platform": "volcano", "nnodes": 2, "instances": 2}}, "instances"),
        ({"engine": {"env": {"TENSOR_PARALLEL_SIZE": 2}}}, "TENSOR_PARALLEL_SIZE"),
        ({"controller": {"enabled": False}}, "controllerUrl"),
        ({"controller": {"store": "memory"}}, "store"),
    ],
)
def test_wrong_values_are_refused_by_name(values: Mapping[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        templated(values, tmp_path)


def test_many_instances_and_settings_find_their_way(tmp_path: Path) -> None:
    own_unit = '[Engine]\nLauncher = "vllm"\nModel = "m"\nBasePort = 9000\n'
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gw"}}}
    values = {
        "controller": {"enabled": False},
        "controllerUrl": "https://podvisor.other:1026",
        "engine": {
            "instances": 3,
            "nnodes": 4,
            "env": {"PODVISOR_SUPERVISOR__DRAIN_SEC": "1min"},
            "units": {"vllm.toml": own_unit, "redis.toml": "[Service]\nExecStart = ['redis-server']\n"},
        },
        "networkPolicy": {"clients": [gateway]},
    }
    manifests = templated(values, tmp_path, release="big")
    check_builtin(manifests, tmp_path)
    spec = manifests.one("LeaderWorkerSet", "big-engine")["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, 4)
    assert manifests.one("PodDisruptionBudget", "big-engine")["spec"]["maxUnavailable"] == 4
    (container,) = spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["PODVISOR_SUPERVISOR__DRAIN_SEC"] == "1min"
    assert variables["PODVISOR_SUPERVISOR__CONTROLLER_URL"] == "https://podvisor.other:1026"
    assert {"name": "http", "containerPort": 9000} in container["ports"], "the port is the unit file's"
    units = manifests.one("ConfigMap", "big-engine-units")["data"]
    assert units.keys() == {"vllm.toml", "redis.toml"}
    assert units["vllm.toml"] == own_unit
    clients = manifests.one("NetworkPolicy", "big-engine")["spec"]["ingress"][-1]["from"]
    assert clients == [{"podSelector": {}}, gateway]
    assert not manifests.of("Deployment")


def environments(manifests: Manifests) -> Iterator[dict[str, str]]:
    """Of every container that runs podvisor, as a kubelet makes it."""
    for pod in pods_of(manifests):
        for container in pod.spec["containers"]:
            names = [variable["name"] for variable in container["env"]]
            assert len(names) == len(set(names)), "no variable stands twice"
            yield environment_of(pod, container["name"], address="10.0.0.11")


def test_variables_of_the_values_take_the_place_of_the_shipped_ones(tmp_path: Path) -> None:
    """And those that refer to others come after them, whoever brings which."""
    values = {
        "tlsSecretName": "podvisor-tls",
        "controller": {
            "env": {"PODVISOR_CONTROLLER__ADVERTISE_URL": "https://[$(POD_IP)]:1026", "PODVISOR_TLS_DIR": "/elsewhere"},
        },
        "engine": {
            "platform": "volcano",
            "env": {
                "A_PLACE": "$(POD_IP)/$(ZONE)",
                "MODEL_PATH": "$(HOME)/model",
                "HOME": "/models/home",
                "PODVISOR_SUPERVISOR__EXIT_ON_TERM": "success",
                "ZONE": "z",
            },
        },
    }
    manifests = templated(values, tmp_path)
    check_builtin(manifests, tmp_path)
    engine, _, controller = sorted(environments(manifests), key=lambda each: "PODVISOR_CONTROLLER" in each)
    assert engine["A_PLACE"] == "10.0.0.11/z"
    assert engine["MODEL_PATH"] == "/models/home/model"
    assert engine["PODVISOR_SUPERVISOR__EXIT_ON_TERM"] == "success"
    assert controller["PODVISOR_CONTROLLER__ADVERTISE_URL"] == "https://[10.0.0.11]:1026"
    assert controller["PODVISOR_TLS_DIR"] == "/elsewhere"


@pytest.mark.parametrize(
    "engine, ranks",
    [
        ({}, "2"),
        ({"platform": "deployment", "nnodes": 1}, "1"),
        ({"nnodes": 4, "resources": {"limits": {"nvidia.com/gpu": "8"}}}, "32"),
        ({"nnodes": 4, "resources": {"limits": {"nvidia.com/gpu": 8}}}, "32"),
        ({"nnodes": 4, "env": {"PIPELINE_PARALLEL_SIZE": "4"}}, "1"),
        ({"env": {"PIPELINE_PARALLEL_SIZE": "$(STAGES)", "STAGES": "1"}}, "2"),
        ({"env": {"TENSOR_PARALLEL_SIZE": "1", "PIPELINE_PARALLEL_SIZE": "2"}}, "1"),
        ({"resources": {"limits": {"nvidia.com/gpu": None, "amd.com/gpu": "8"}}}, None),
        ({"units": {"vllm.toml": "[Engine]\nBasePort = 8000\n"}}, None),
    ],
)
def test_an_engine_is_told_of_all_gpus_of_its_instance(
    engine: Mapping[str, Any], ranks: str | None, tmp_path: Path
) -> None:
    """Unless the values say what it is told, the GPUs are of another maker, or its unit file does not ask."""
    manifests = templated({"controller": {"enabled": False}, "controllerUrl": "http://c", "engine": engine}, tmp_path)
    assert {each.get("TENSOR_PARALLEL_SIZE") for each in environments(manifests)} == {ranks}


def test_an_engine_that_fetches_its_model_as_root_needs_no_claim(tmp_path: Path) -> None:
    values = {
        "engine": {
            "model": {"claimName": "", "path": "org/model"},
            "envFrom": [{"secretRef": {"name": "hub-token"}}],
            "runAsUser": 0,
        },
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    }
    manifests = templated(values, tmp_path)
    check_builtin(manifests, tmp_path)
    assert check_custom(manifests) == 2
    pod = next(found for found in pods_of(manifests) if "engine" in found.name)
    container = pod.container("engine")
    assert {"name": "MODEL_PATH", "value": "org/model"} in container["env"]
    assert container["envFrom"] == values["engine"]["envFrom"]
    assert "models" not in {named["name"] for named in (*pod.spec["volumes"], *container["volumeMounts"])}
    assert (pod.spec["securityContext"]["runAsNonRoot"], pod.spec["securityContext"]["runAsUser"]) == (False, 0)
    assert manifests.one("PodMonitor", "podvisor")["metadata"]["labels"]["release"] == "prometheus"


def shipped_files() -> Iterator[tuple[str, Path]]:
    """(in the chart, the file that it is)."""
    kubernetes = PROJECT / "deploy" / "kubernetes"
    yield "files/engine.toml", kubernetes / "pod" / "podvisor.toml"
    for store in STORES:
        yield f"files/controller-{store}.toml", kubernetes / "controller" / store / "podvisor.toml"
    for path in (PROJECT / "units" / "profiles").glob("*/*.toml"):
        yield f"files/units/{path.name}", path


def test_a_packaged_chart_holds_the_shipped_files_themselves(tmp_path: Path) -> None:
    output_of([tool("helm"), "package", str(CHART), "--destination", str(tmp_path)])
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        packed = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        files = {name: found.read() for name, found in packed.items() if found is not None}
    expected = {f"podvisor/{name}": path.read_bytes() for name, path in shipped_files()}
    assert {name: text for name, text in files.items() if name.startswith("podvisor/files/")} == expected


def test_chart_and_manifests_take_the_image_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    for pod in pods_of(deployed(ENGINES[0], "sqlite")):
        containers = (*pod.spec["containers"], *pod.spec.get("initContainers", ()))
        assert f"podvisor:{VERSION}" in {container["image"] for container in containers}


def test_the_notes_name_what_has_to_be_brought_and_where_requests_go(tmp_path: Path) -> None:
    written = output_of([tool("helm"), "install", "--dry-run=client", "podvisor", str(CHART)])
    notes = written.partition("NOTES:")[2]
    assert "create secret generic podvisor-token" in notes
    assert "http://podvisor-engine-http.default.svc" in notes
    assert {path.name for path in CHART.glob("values-*.yaml")} <= set(notes.split())


def test_every_choice_of_the_schema_is_tried() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    engine = schema["engine"]["properties"]
    assert set(engine["name"]["enum"]) == {choice.engine for choice in ENGINES}
    assert {values_of(name).name for name in engine["name"]["enum"] if name != "vllm"} == {
        path.name for path in CHART.glob("values-*.yaml")
    }
    assert set(engine["platform"]["enum"]) == {choice.platform for choice in ENGINES}
    assert set(schema["controller"]["properties"]["store"]["enum"]) == set(STORES)
