"""What can be chosen: an engine on a platform, and how the controller keeps its state; as kustomize has it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.deploy.rendered import KUSTOMIZE, Manifests, kustomized


@dataclass(frozen=True)
class Choice:
    engine: str
    platform: str
    nnodes: int

    @property
    def overlay(self) -> Path:
        return KUSTOMIZE / "overlays" / f"{self.engine}-{self.platform}"

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


def controller_of(store: str) -> Path:
    return KUSTOMIZE / "controller" / store


def deployed(choice: Choice, store: str) -> Manifests:
    """The engine and a controller in one namespace."""
    return kustomized(choice.overlay) + kustomized(controller_of(store))
