"""`podvisor run` as a process: how it starts, what its signals do, and how it ends."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.running_supervisor import FOREVER, left_behind, service, shell, supervisor


def noting(name: str, log: Path) -> list[str]:
    """A program that writes when it starts and when it is asked to end."""
    return shell(f"trap 'echo stop {name} >>{log}; exit 0' TERM; echo start {name} >>{log}; sleep 600 & wait")


async def test_sigterm_stops_in_reverse_order_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    units = {
        "store": service(*noting("store", log)),
        "engine": service(*noting("engine", log), unit={"Requires": ["store"], "After": ["store"]}),
        "monitor": service(*noting("monitor", log), unit={"After": ["engine"]}),
    }
    async with supervisor(tmp_path, units) as running:
        await running.started("monitor")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
    names = ["store", "engine", "monitor"]
    said = log.read_text().splitlines()
    assert [line for line in said if line.startswith("start")] == [f"start {name}" for name in names]
    assert [line for line in said if line.startswith("stop")] == [f"stop {name}" for name in reversed(names)]
