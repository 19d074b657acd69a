"""The pods of tests/pods, for manifests that are carried out in them."""

from pathlib import Path

import pytest

from controller.demo.engines import Engines
from controller.demo.kubelet import Kubelet
from tests.deploy.in_pods.world import Stage
from tests.pods.conftest import kubelet, namespaces, pods
from tests.pods.harness import PodsFactory
from tests.support.installed_engines import engines

__all__ = ["engines", "kubelet", "namespaces", "pods"]


@pytest.fixture
async def stage(pods: PodsFactory, kubelet: Kubelet, engines: Engines, prefix: Path, tmp_path: Path) -> Stage:
    directory = tmp_path / "stage"
    directory.mkdir()
    return Stage(await pods(0), kubelet, engines, prefix, directory)
