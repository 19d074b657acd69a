"""A fleet of simulated supervisors before one controller: what each costs it, and how soon it answers.

The supervisors are one process (`fleet_load`), the controller another, between them real sockets of the loopback. Of
the controller alone processor time and memory are taken. Beside it stands the same application behind hypercorn and
quart-trio alone, as every route but that of the heartbeat is served.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import trio

from tests.bench.figures import Goal, Sheet
from tests.bench.fleet_load import GANG, INTERVAL_SEC, LOAD_SEC, STOP_SEC, Fail, Grow, Measure, Order, Report
from tests.bench.running import Running, free_port, running

SIZES = (100, 500, 1000, 2000, 5000)
SIZES_OF_THE_ORDINARY_ROUTE = (100, 500, 1000)
"""Beyond, it needs more than a core."""
LIMIT_SEC = 300.0
SETTLE_SEC = INTERVAL_SEC
MEASURED_SEC = 3 * INTERVAL_SEC
RUNS = 100
PROGRAM = Path(sys.prefix) / "bin" / "podvisor"
"""Of this checkout: the load speaks its messages."""
ORDINARY = "hypercorn + quart-trio"
START_SEC = 15.0
CLOSE_SEC = 10.0
LOOK_SEC = 0.05
PROCESSOR, MEMORY = Goal(50), Goal(300)
SLOWEST, OVERHEAD = Goal(50), Goal(1000)
NO_LIMITS: Mapping[str, Mapping[str, object]] = {
    "fault_tolerance_config": {"engine_relaunch_backoff_sec": 0, "max_concurrent_runs": RUNS}
}


async def measure(sheet: Sheet, scratch: Path) -> None:
    await _podvisor(sheet, scratch / "podvisor")
    await _ordinary(sheet, scratch / "ordinary")


class Load:
    """The process of the supervisors; takes one order after the other."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def order(self, order: Order) -> Report:
        await self._stdin.send_all(msgspec.json.encode(order) + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            if not (data := await self._stdout.receive_some()):
                raise RuntimeError("the simulated supervisors have ended")
            answer += data
        return msgspec.json.decode(answer, type=Report)


async def _podvisor(sheet: Sheet, directory: Path) -> None:
    directory.mkdir()
    port = free_port()
    argv = [str(PROGRAM), "controller", "--config", str(_configured(directory, port))]
    async with running(argv, directory) as controller, _supervisors(port) as load:
        await _sizes(sheet, "podvisor", SIZES, controller, load)
        await _runs(sheet, controller, load, port)


async def _ordinary(sheet: Sheet, directory: Path) -> None:
    directory.mkdir()
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.fleet_ordinary", str(port)]
    async with running(argv, directory) as controller, _supervisors(port) as load:
        await _sizes(sheet, ORDINARY, SIZES_OF_THE_ORDINARY_ROUTE, controller, load)


def _configured(directory: Path, port: int) -> Path:
    sections = {"controller": {"port": port, "probe_port": 0, "state_dir": str(directory / "journal")}, **NO_LIMITS}
    lines = [
        line
        for name, section in sections.items()
        for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items()))
    ]
    path = directory / "podvisor.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


@asynccontextmanager
async def _supervisors(controller_port: int) -> AsyncIterator[Load]:
    await _listens(controller_port)
    argv = [sys.executable, "-m", "tests.bench.fleet_load", str(controller_port)]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            lambda task_status: trio.run_process(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False, task_status=task_status
            )
        )
        yield Load(process)
        nursery.cancel_scope.cancel(reason="measured")


async def _listens(port: int) -> None:
    with trio.fail_after(START_SEC):
        while True:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                return
            except OSError:
                await trio.sleep(LOOK_SEC)


async def _sizes(sheet: Sheet, subject: str, sizes: Sequence[int], controller: Running, load: Load) -> None:
    for size in sizes:
        begun = controller.cpu_sec
        came = await load.order(Grow(to=size))
        introducing = controller.cpu_sec - begun
        await load.order(Measure(seconds=SETTLE_SEC))
        begun = controller.cpu_sec
        report = await load.order(Measure(seconds=MEASURED_SEC))
        used = (controller.cpu_sec - begun) / report.seconds
        resident = psutil.Process(controller.pid).memory_info().rss / 2**20
        is_largest = size == max(SIZES)
        sheet.add(
            subject, f"{size} supervisors: processor", "% of a core", [100 * used], PROCESSOR if is_largest else None
        )
        sheet.add(subject, f"{size} supervisors: processor for each", "µs/s", [1e6 * used / size])
        sheet.add(subject, f"{size} supervisors: resident", "MiB", [resident], MEMORY if is_largest else None)
        ordered = sorted(report.latencies_ms)
        sheet.add(subject, f"{size} supervisors: heartbeat answered, median", "ms", [ordered[len(ordered) // 2]])
        sheet.add(
            subject,
            f"{size} supervisors: heartbeat answered, p99",
            "ms",
            [ordered[99 * len(ordered) // 100]],
            SLOWEST if is_largest else None,
        )
        sheet.remark(
            f"{subject}, {size}: {len(ordered) / report.seconds:.0f} heartbeats/s, {report.refused} refused;"
            f" the load itself took {100 * report.cpu_sec / report.seconds:.0f} % of a core;"
            f" they were taken over in {came.seconds:.1f} s and {introducing:.1f} s of processor time"
        )


async def _runs(sheet: Sheet, controller: Running, load: Load, port: int) -> None:
    """Each takes as long as its engines need to stop and to load; what is beyond is ours."""
    begun = controller.cpu_sec
    report = await load.order(Fail(instances=RUNS))
    used = controller.cpu_sec - begun
    runs = await _closed_runs(port)
    overheads = sorted(1e3 * (_lasted(run) - STOP_SEC - LOAD_SEC) for run in runs if run["outcome"] == "done")
    name = f"{RUNS} relaunches at once: overhead"
    sheet.add("podvisor", f"{name} of the slowest", "ms", overheads[-1:] if len(overheads) == RUNS else [], OVERHEAD)
    sheet.add("podvisor", f"{name}, median", "ms", overheads[RUNS // 2 :][:1])
    sheet.remark(
        f"{len(overheads)} of {RUNS} relaunches of {GANG} pods each done within {report.seconds:.1f} s,"
        f" {1e3 * used / RUNS:.0f} ms of processor time for each, heartbeats of the whole fleet meanwhile included"
    )


async def _closed_runs(port: int) -> Sequence[Mapping[str, Any]]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        with trio.fail_after(CLOSE_SEC):
            while True:
                runs: Sequence[Mapping[str, Any]] = (await client.get("/v1/relaunches")).json()["relaunches"]
                if all(run["outcome"] is not None for run in runs):
                    return runs
                await trio.sleep(LOOK_SEC)


def _lasted(run: Mapping[str, Any]) -> float:
    began, ended = (
        datetime.fromisoformat(text) for text in (run["steps"][0]["started_at"], run["steps"][-1]["ended_at"])
    )
    return (ended - began).total_seconds()
