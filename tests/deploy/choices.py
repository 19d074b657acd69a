"""What can be chosen: an engine on a platform, and the store of the controller; in kustomize and in the chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.rendered import KUSTOMIZE, Manifests, kustomized


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
        """Of the chart, as far as they differ from its defaults."""
        engine = {"name": self.engine, "platform": self.platform, "nnodes": self.nnodes, **IN_THE_CHART[self.engine]}
        if self.nnodes == 1:
            engine["env"] = {"TENSOR_PARALLEL_SIZE": "1"}
        return {"engine": engine}

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
IN_THE_CHART: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    "sglang": {"image": "lmsysorg/sglang"},
    "llama-server": {
        "image": "llama-server",
        "model": {"path": "/models/model.gguf"},
        "env": {"TENSOR_PARALLEL_SIZE": None},
        "resources": {
            "requests": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": None},
            "limits": {"memory": "4Gi", "nvidia.com/gpu": None},
        },
    },
}
STORES = ["sqlite", "etcd"]


def controller_of(store: str) -> Path:
    return KUSTOMIZE / "controller" / store


def deployed(choice: Choice, store: str) -> Manifests:
    """The engine and a controller in one namespace."""
    return kustomized(choice.overlay) + kustomized(controller_of(store))
