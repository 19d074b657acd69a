"""Real engines for the tests here; each test skips, with the reason, what this machine has not."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controller.demo.pod import Network
from controller.demo.sandbox import open_network
from tests.pods.harness import TIMEOUT_SEC
from tests.support.installed_engines import engines

__all__ = ["engines"]


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    """Two pods, as well isolated as this machine allows."""
    async with open_network(2, tmp_path / "network") as opened:
        yield opened


@pytest.fixture
async def client(network: Network) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as opened:
        yield opened
