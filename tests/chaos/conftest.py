"""One world for a test, where this machine can make one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.demo.engines import REDIS_SERVER, Engines
from controller.demo.sandbox import can_use_namespaces
from tests.chaos.world import World, open_world, stage_of, what_is_missing
from tests.support.compiled import compile_packages
from tests.support.installed_engines import engines

__all__ = ["engines"]


@pytest.fixture
async def world(engines: Engines, tmp_path: Path) -> AsyncIterator[World]:
    reason = can_use_namespaces()
    if reason is not None:
        pytest.skip(f"cannot make pods: {reason}")
    if REDIS_SERVER in engines.missing:
        pytest.skip(engines.missing[REDIS_SERVER])
    for kind, why in what_is_missing().items():
        print(f"no {kind}: {why}")
    compile_packages()
    async with open_world(stage_of(etcd=False), engines, tmp_path / "world") as made:
        yield made
