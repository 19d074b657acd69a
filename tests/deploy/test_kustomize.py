"""deploy/kubernetes: what `kubectl apply -k` sends is valid, and names and labels of an overlay reach everywhere."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.deploy.platforms import pods_of, template_of
from tests.deploy.policies import ports_reached
from tests.deploy.reading import controller_pods, engine_pods
from tests.deploy.rendered import KUSTOMIZE, Manifests, Object, kustomized
from tests.deploy.validation import check_builtin, check_custom

OVERLAYS = sorted(path.parent.relative_to(KUSTOMIZE) for path in KUSTOMIZE.glob("overlays/*/kustomization.yaml"))
CONTROLLERS = [Path("controller/sqlite"), Path("controller/etcd")]


def added_to(base: Path, *components: str, directory: Path, more: str = "") -> Manifests:
    """An overlay of one's own over a shipped one. kustomize wants relative paths."""
    overlay = directory / "overlay"
    overlay.mkdir(parents=True)
    up = Path(*[".."] * len(overlay.parts[1:]))
    listed = "".join(f"  - {up / (KUSTOMIZE / name).relative_to('/')}\n" for name in components)
    (overlay / "kustomization.yaml").write_text(
        f"resources:\n  - {up / (KUSTOMIZE / base).relative_to('/')}\n"
        + (f"components:\n{listed}" if components else "")
        + more
    )
    return kustomized(overlay)


@pytest.mark.parametrize("directory", [*OVERLAYS, *CONTROLLERS], ids=str)
def test_every_object_is_what_its_api_takes(directory: Path, tmp_path: Path) -> None:
    manifests = kustomized(KUSTOMIZE / directory)
    check_builtin(manifests, tmp_path)
    check_custom(manifests)


@pytest.mark.parametrize("controller", CONTROLLERS, ids=str)
def test_components_of_the_controller_are_valid_too(controller: Path, tmp_path: Path) -> None:
    names = [f"components/{path.name}" for path in sorted((KUSTOMIZE / "components").iterdir())]
    manifests = added_to(controller, *names, directory=tmp_path)
    check_builtin(manifests, tmp_path)
    assert check_custom(manifests) == 1, "the PodMonitor"


def test_platforms_are_checked_by_our_own_schemas_where_kubernetes_knows_them_not() -> None:
    checked = {str(path): check_custom(kustomized(KUSTOMIZE / path)) for path in OVERLAYS}
    assert {path for path, count in checked.items() if count} == {
        "overlays/sglang-leaderworkerset",
        "overlays/vllm-leaderworkerset",
        "overlays/vllm-volcano",
    }


def _mended(found: Object, **keys: object) -> Object:
    return {**found, "spec": {**found["spec"], **keys}}


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """The checks can fail: a key misspelt, one of the wrong type, one that does not exist in a custom kind."""
    manifests = kustomized(KUSTOMIZE / "overlays/vllm-volcano")
    service, job = manifests.one("Service", "podvisor-engine-http"), manifests.one("Job", "podvisor-engine")
    with pytest.raises(AssertionError, match="publishNotReadyAdresses"):
        check_builtin(Manifests((_mended(service, publishNotReadyAdresses=True),)), tmp_path)
    with pytest.raises(jsonschema.ValidationError, match="maxRetries"):
        check_custom(Manifests((_mended(job, maxRetries=1),)))
    template = yaml.safe_load(yaml.safe_dump(template_of(job)))
    template["spec"]["terminationGracePeriodSeconds"] = "70"
    tasks = [{**job["spec"]["tasks"][0], "template": template}]
    with pytest.raises(AssertionError, match="terminationGracePeriodSeconds"):
        check_builtin(Manifests((_mended(job, tasks=tasks),)), tmp_path)


@pytest.mark.parametrize("platform", ["leaderworkerset", "statefulset", "volcano", "deployment"])
def test_an_overlay_names_and_labels_a_second_engine(platform: str, tmp_path: Path) -> None:
    """So that two engines stand side by side in one namespace and do not take each other's requests."""
    labels = "namePrefix: big-\nlabels:\n  - {pairs: {app.kubernetes.io/instance: big}, includeSelectors: true}\n"
    base = Path("overlays") / f"vllm-{platform}"
    manifests = added_to(base, "components/monitoring", directory=tmp_path, more=labels)
    assert {found["metadata"]["name"].split("-")[0] for found in manifests} == {"big"}
    maps = manifests.names("ConfigMap")
    for pod in pods_of(manifests):
        assert pod.labels["app.kubernetes.io/instance"] == "big"
        assert {volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume} == maps
    (policy,) = manifests.of("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "big"
    for service in manifests.of("Service"):
        assert service["spec"]["selector"]["app.kubernetes.io/instance"] == "big"
    monitor = manifests.one("PodMonitor", "big-podvisor")
    assert monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "big"


@pytest.mark.parametrize("second", [Path("overlays/vllm-leaderworkerset"), Path("controller/sqlite")], ids=str)
def test_labels_of_an_overlay_do_not_part_an_engine_from_the_controller(second: Path, tmp_path: Path) -> None:
    """Whichever of the two they are given to: policies keep letting in the other, by its role."""
    labels = "labels:\n  - {pairs: {app.kubernetes.io/instance: big}, includeSelectors: true}\n"
    shipped = {path: kustomized(KUSTOMIZE / path) for path in ("overlays/vllm-leaderworkerset", "controller/sqlite")}
    engine, controller = {**shipped, str(second): added_to(second, directory=tmp_path, more=labels)}.values()
    engine_pod, controller_pod = engine_pods(engine)[0], controller_pods(controller)[0]
    assert engine_pod.labels["app.kubernetes.io/instance"] != controller_pod.labels["app.kubernetes.io/instance"]
    policy = engine.one("NetworkPolicy", "podvisor-engine")["spec"]["ingress"]
    assert ports_reached(policy, controller_pod.labels, "default") == {"node-manager", "http"}
    assert ports_reached(policy, {**engine_pod.labels, "app.kubernetes.io/instance": "third"}, "default") == {"http"}
    policy = controller.one("NetworkPolicy", "podvisor-controller")["spec"]["ingress"]
    assert ports_reached(policy, engine_pod.labels, "default") == {"api"}
    assert ports_reached(policy, {"podvisor.io/client": "true"}, "default") == {"api"}


def test_a_changed_unit_file_makes_no_new_pods() -> None:
    """It reaches those that run, for `podvisor rollout`: so names of ConfigMaps carry no hash."""
    for directory in OVERLAYS:
        assert kustomized(KUSTOMIZE / directory).names("ConfigMap") == {
            "podvisor-engine-settings",
            "podvisor-engine-units",
        }
