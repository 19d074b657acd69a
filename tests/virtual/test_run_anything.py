"""Whatever number a key takes: the unit runs and stops with it, or fails with words, and nothing of ours breaks."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.unit.errors import ConfigurationError
from supervisor.unit.parse import load_units
from tests.support.fake_processes import Program
from tests.support.services import running
from tests.unit.test_unit_load_anything import KEYS, written

NUMBERS = (
    '"infinity"', "inf", "1e308", "0.001", "0.1", "1e-300", "0", "1", "18446744073709551615", '"18446744073709551615"',
    f'"{"9" * 400}"',
)  # fmt: skip


@pytest.mark.parametrize("key", [key for section, key in KEYS if section == "Service"])
async def test_a_unit_runs_with_whatever_is_taken(
    key: str, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for value in NUMBERS:
        (tmp_path / "u.toml").write_text(written("Service", key, value))
        try:
            (declared,) = load_units([tmp_path])
        except ConfigurationError:
            continue
        async with running(declared) as world:
            world.processes.programs = defaultdict(Program, {"true": Program(runs_sec=50.0)})
            world.service.ask_to_start("test")
            await trio.sleep(200.0)
            world.service.view(trio.current_time())
            await world.service.stop(asked_by="test", reason="enough")
        assert "this is a bug of podvisor" not in caplog.text, value
