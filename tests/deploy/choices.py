"""What can be chosen: an engine on a platform, and the store of the controller; in kustomize and in the chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.rendered import CHART, KUSTOMIZE, Manifests, kustomized


@dataclass(frozen=True)
class Choice:
    engine: str
    platform: str
    nnodes: int

    @property
    def overlay(self) -> Path:
        return KUSTOMIZE / "overlays" / f"{self.engine}-{self.platform}"

    @property
    def values(self) -> Mapping[str, Any]:
        """Of the chart, as far as they differ from its defaults, which are vLLM's."""
        shipped = {} if self.engine == "vllm" else yaml.safe_load(values_of(self.engine).read_text())["engine"]
        return {"engine": {**shipped, "platform": self.platform, "nnodes": self.nnodes}}

    def __str__(self) -> str:
        return f"{self.engine}-{self.platform}"


ENGINES = [
    Choice("vllm", "leaderworkerset", 2),
    Choice("vllm", "statefulset", 2),
    Choice("vllm", "volcano", 2),
    Choice("vllm", "deployment", 1),
    Choice("sglang", "leaderworkerset", 2),
    Choice("llama-server", "statefulset", 2),
]
STORES = ["sqlite", "etcd"]


def values_of(engine: str) -> Path:
    """The shipped values for an engine that is not the chart's default."""
    return CHART / f"values-{engine}.yaml"


def controller_of(store: str) -> Path:
    return KUSTOMIZE / "controller" / store


def deployed(choice: Choice, store: str) -> Manifests:
    """The engine and a controller in one namespace."""
    return kustomized(choice.overlay) + kustomized(controller_of(store))
