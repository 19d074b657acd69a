"""Whether objects are what their API takes: Kubernetes' own kinds by its schemas, others by ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import yaml

from tests.deploy.platforms import template_of
from tests.deploy.rendered import Manifests, Object
from tests.deploy.tools import output_of, tool

SCHEMAS = {
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "LeaderWorkerSet",
    ("batch.volcano.sh/v1alpha1", "Job"): "VolcanoJob",
    ("monitoring.coreos.com/v1", "PodMonitor"): "PodMonitor",
}


def check_builtin(manifests: Manifests, directory: Path) -> None:
    """By kubernetes-validate, strictly; pod templates of other kinds too. AssertionError with its words."""
    path = directory / "objects.yaml"
    path.write_text(yaml.safe_dump_all([dict(found) for found in _builtin(manifests)]))
    output_of([tool("kubernetes-validate"), "--strict", str(path)])


def check_custom(manifests: Manifests) -> int:
    """How many there were. jsonschema.ValidationError."""
    found = [each for each in manifests if _kind(each) in SCHEMAS]
    for each in found:
        jsonschema.validate(each, schema_of(each))
    return len(found)


def schema_of(found: Object) -> Object:
    path = Path(__file__).with_name("schemas") / f"{SCHEMAS[_kind(found)]}.json"
    schema: Object = json.loads(path.read_text())
    return schema


def _builtin(manifests: Manifests) -> Iterator[Object]:
    for found in manifests:
        if _kind(found) not in SCHEMAS:
            yield found
        elif found["kind"] != "PodMonitor":
            name = {"name": found["metadata"]["name"]}
            yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": name, "template": template_of(found)}


def _kind(found: Object) -> tuple[str, str]:
    return found["apiVersion"], found["kind"]
