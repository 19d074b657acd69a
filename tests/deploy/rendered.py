"""Manifests as `kubectl kustomize` and `helm template` write them out, and a way to find objects in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import output_of, tool

PROJECT = Path(__file__).parents[2]
KUSTOMIZE = PROJECT / "deploy" / "kubernetes"
CHART = PROJECT / "deploy" / "chart"
RELEASE = "podvisor"
"""kustomize's names are those of a release of this name."""

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Manifests:
    objects: tuple[Object, ...]

    def of(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        found = [each for each in self.of(kind) if each["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects are {kind}/{name}"
        return found[0]

    def names(self, kind: str) -> set[str]:
        return {found["metadata"]["name"] for found in self.of(kind)}

    def __add__(self, other: Manifests) -> Manifests:
        return Manifests(self.objects + other.objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects)


def read(text: str) -> Manifests:
    return Manifests(tuple(found for found in yaml.safe_load_all(text) if found is not None))


@cache
def kustomized(directory: Path) -> Manifests:
    """Without any flag, as `kubectl apply -k` does it."""
    return read(output_of([tool("kubectl"), "kustomize", str(directory)]))


def templated(values: Mapping[str, Any], directory: Path, *, release: str = RELEASE) -> Manifests:
    """`directory`: where the values may be written."""
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return read(output_of([tool("helm"), "template", release, str(CHART), "--values", str(path)]))
