"""Pods for the tests here: networks of namespaces, the kubelet stand-in, real engines. Without root they skip."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controller.demo.engines import Engines
from controller.demo.kubelet import BackOff, Kubelet, open_kubelet
from controller.demo.pod import Network
from controller.demo.sandbox import can_use_namespaces, open_network
from tests.pods.harness import PodsFactory
from tests.pods.stage import Stage
from tests.support.installed_engines import engines

__all__ = ["engines"]

QUICK_BACK_OFF = BackOff().scaled(0.005)
"""50 ms, doubling to 1.5 s, anew after a life of 3 s."""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips where pods cannot be made out of namespaces."""
    reason = can_use_namespaces()
    if reason is not None:
        pytest.skip(f"cannot make pods: {reason}")


@pytest.fixture
async def pods(namespaces: None, tmp_path: Path) -> AsyncIterator[PodsFactory]:
    """`network = await pods(2)`: a hub and two pods, gone with everything in them after the test.

    While a network is open, trio's sockets of the test stand in its hub: use its addresses, not localhost.
    """
    async with AsyncExitStack() as stack:

        async def make(count: int) -> Network:
            return await stack.enter_async_context(open_network(count, tmp_path / "network", namespaces=True))

        yield make


@pytest.fixture
async def kubelet(pods: PodsFactory) -> AsyncIterator[Kubelet]:
    """Restarts containers as a kubelet does, 200 times as fast. Torn down before the network."""
    async with open_kubelet(QUICK_BACK_OFF) as running:
        yield running


@pytest.fixture
def stage(pods: PodsFactory, kubelet: Kubelet, engines: Engines) -> Stage:
    return Stage(pods, kubelet, engines)
