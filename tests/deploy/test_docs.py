"""What docs/in-the-cluster.md shows can be applied, and names what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from controller.settings import load as load_controller_settings
from tests.deploy.container import config_maps, environment_of, option, write_files
from tests.deploy.platforms import pods_of
from tests.deploy.reading import controller_pods
from tests.deploy.rendered import KUSTOMIZE, PROJECT, kustomized, templated
from tests.deploy.validation import check_builtin, check_custom

PAGE = (PROJECT / "docs" / "in-the-cluster.md").read_text()
FENCED = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\S+\.yaml)\n")


def files() -> Iterator[tuple[str, str]]:
    """(path, text) of the examples that begin with the name of a file."""
    for text in FENCED.findall(PAGE):
        if named := NAMED.match(text):
            yield named[1], text


def write_files_of_the_page(directory: Path) -> None:
    """The page names paths as from a checkout; kustomize wants relative ones."""
    for name, text in files():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        up = "../" * (len(path.parent.parts) - 1)
        path.write_text(text.replace(" deploy/kubernetes", f" {up}{KUSTOMIZE.relative_to('/')}"))


def test_the_example_of_an_overlay_renders_and_does_what_the_page_says(tmp_path: Path) -> None:
    write_files_of_the_page(tmp_path)
    manifests = kustomized(tmp_path)
    check_builtin(manifests, tmp_path)
    assert check_custom(manifests) == 1
    assert {found["metadata"]["namespace"] for found in manifests} == {"serving"}
    pods = pods_of(manifests)
    assert len(pods) == 2
    for pod in pods:
        container = pod.container("engine")
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert container["image"] == "registry.example/vllm:1"
        assert pod.spec["initContainers"][0]["image"] == "registry.example/podvisor:0.1.0"
        assert variables["TENSOR_PARALLEL_SIZE"] == "16"
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_the_recipe_for_ipv6_alone_gives_the_controller_an_address_with_brackets(tmp_path: Path) -> None:
    """By the overlay of the page, and by its variables in the chart's values."""
    write_files_of_the_page(tmp_path)
    by_kustomize = kustomized(tmp_path / "ipv6")
    check_builtin(by_kustomize, tmp_path)
    (recipe,) = yaml.safe_load((tmp_path / "ipv6" / "kustomization.yaml").read_text())["patches"]
    (patched,) = yaml.safe_load(recipe["patch"])["spec"]["template"]["spec"]["containers"]
    own = {variable["name"]: variable["value"] for variable in patched["env"] if "value" in variable}
    by_helm = templated({"controller": {"env": own}}, tmp_path)
    for manifests in (by_kustomize, by_helm):
        (pod,) = controller_pods(manifests)
        write_files(config_maps(pod, "controller", manifests), tmp_path)
        config = tmp_path / option(pod.container("controller")["command"], "config").lstrip("/")
        settings = load_controller_settings(config, environment_of(pod, "controller", address="fd00::11"))
        assert (settings.controller.host, settings.controller.advertise_url) == ("::", "http://[fd00::11]:1026")


def test_every_yaml_of_the_page_can_be_read() -> None:
    assert len([yaml.safe_load(text) for text in FENCED.findall(PAGE)]) >= 5


def test_paths_that_the_page_names_exist() -> None:
    for path in set(re.findall(r"(?<!exec )deploy/[A-Za-z/.-]+[A-Za-z]", PAGE)):
        assert (PROJECT / path).exists(), path


def test_the_grace_period_that_the_page_shows_is_the_shipped_one() -> None:
    shown = {int(number) for number in re.findall(r"terminationGracePeriodSeconds: (\d+)", PAGE)}
    (shipped,) = {
        pod.spec["terminationGracePeriodSeconds"] for pod in pods_of(kustomized(KUSTOMIZE / "overlays/vllm-volcano"))
    }
    assert shown == {shipped}
