"""Pods for vLLM. `make test-vllm` installs it and runs these tests alone, with what they report."""

import faulthandler

import pytest

from controller.demo.engines import Engines
from controller.demo.kubelet import Kubelet
from tests.engines.vllm.gang import Stage
from tests.pods.conftest import kubelet, namespaces, pods
from tests.pods.harness import PodsFactory
from tests.support.installed_engines import engines

__all__ = ["engines", "kubelet", "namespaces", "pods"]


@pytest.fixture(autouse=True)
def minutes_are_no_hang() -> None:
    """Otherwise pytest prints every stack after two."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def stage(pods: PodsFactory, kubelet: Kubelet, engines: Engines) -> Stage:
    return Stage(pods, kubelet, engines)
