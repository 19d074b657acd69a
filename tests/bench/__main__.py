"""`python -m tests.bench [NAME…]`: figures, beside those of peers taken in the same run.

Nothing is asserted: a figure is shown with its goal and with the machine's noise. JSON, and a PNG where matplotlib is
installed, go into bench-results/. Exit code 1 only if a benchmark itself failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import trio

from supervisor.process.subreaper import become_subreaper
from supervisor.version import VERSION
from tests.bench import (
    before_after,
    before_after_picture,
    crash,
    fleet,
    install_peers,
    noise,
    output,
    reap,
    relaunch,
    report,
    restart,
    start,
)
from tests.bench.figures import Sheet
from tests.bench.running import end_leftovers
from tests.bench.workers import compiled, results_directory
from tests.support.compiled import compile_packages

LIMIT_SEC = 120.0


@dataclass(frozen=True, slots=True)
class Benchmark:
    about: str
    measure: Callable[[Sheet, Path], Awaitable[None]]
    """Adds to the sheet; the directory is empty and its own."""
    limit_sec: float = LIMIT_SEC
    """After so long it is cancelled."""
    picture: Callable[[Sheet, Path], None] | None = None
    """One of its own, beside the bars of figures with a goal; drawn where matplotlib is installed."""


BENCHMARKS = {
    "restart": Benchmark("a standalone unit's process is killed and replaced", restart.measure),
    "start": Benchmark("the manager itself: to its first unit, to its API, and what it costs at rest", start.measure),
    "relaunch": Benchmark("one worker of a gang over two pods is killed, both are started anew", relaunch.measure),
    "reap": Benchmark("a thousand orphans end at one moment", reap.measure),
    "crash": Benchmark("a program that had started something in a session of its own is killed", crash.measure),
    "output": Benchmark("one unit's output through one pump", output.measure),
    "before-after": Benchmark(
        "an engine is killed: engines relaunched in place, beside containers that restart",
        before_after.measure,
        before_after.LIMIT_SEC,
        before_after_picture.draw,
    ),
    "fleet": Benchmark("thousands of supervisors before one controller", fleet.measure, fleet.LIMIT_SEC),
}


def main() -> None:
    options = _options()
    if options.install_peers:
        install_peers.install(with_torch=options.torch)
        return
    become_subreaper()
    compile_packages()
    results = []
    for name in options.names or BENCHMARKS:
        result = _take(name, BENCHMARKS[name])
        print(report.table(result), end="\n\n", flush=True)
        results.append(result)
    _write(results)
    sys.exit(any(result.failure for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--install-peers", action="store_true", help="install supervisord and circus, and leave")
    parser.add_argument("--torch", action="store_true", help="with --install-peers: torch too, for torchrun (1 GB)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return options


def _take(name: str, benchmark: Benchmark) -> report.Result:
    sheet = Sheet()
    if compiled("worker") is None:
        sheet.remark("no C compiler: the workers are Python scripts, whose own start is part of every figure")
    before, cpu, began = noise.look(), noise.CpuTimes.now(), time.monotonic()
    failure = trio.run(_bounded, benchmark, sheet)
    end_leftovers()
    took, busy = time.monotonic() - began, noise.CpuTimes.now().busy_since(cpu)
    return report.Result(name, benchmark.about, sheet, before, noise.look(), busy, took, failure)


async def _bounded(benchmark: Benchmark, sheet: Sheet) -> str | None:
    """Why it ended early. What it had found until then is on the sheet."""
    async with trio.open_nursery() as nursery:
        ended_early: list[str] = []
        nursery.start_soon(_end_in_time, benchmark.limit_sec, trio.lowlevel.current_task(), nursery, ended_early)
        with tempfile.TemporaryDirectory(prefix="podvisor-bench-") as scratch:
            try:
                await benchmark.measure(sheet, Path(scratch))
            except Exception as error:  # noqa: BLE001 - the others still have to be taken; the trace is shown
                traceback.print_exc()
                ended_early.append(_cause(error))
        nursery.cancel_scope.cancel()
    return ended_early[0] if ended_early else None


def _cause(error: BaseException) -> str:
    """The first of a group, in one line; the trace has the rest."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error).strip().rpartition(chr(10))[2]}"


async def _end_in_time(
    limit_sec: float, measuring: trio.lowlevel.Task, nursery: trio.Nursery, ended_early: list[str]
) -> None:
    await trio.sleep(limit_sec)
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in measuring.iter_await_frames()]
    ours = [f"{path.name}:{line}" for path, line in frames if path.parent == Path(__file__).parent]
    ended_early.append(f"not done within {limit_sec:g} s; it stood at {' > '.join(ours[1:])}")
    nursery.cancel_scope.cancel()


def _write(results: Sequence[report.Result]) -> None:
    machine: dict[str, object] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "podvisor": VERSION,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }
    directory = results_directory()
    directory.mkdir(exist_ok=True)
    path = directory / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(report.as_json(results, machine))
    print(f"written: {path}")
    if report.draw(results, path.with_suffix(".png")):
        print(f"drawn:   {path.with_suffix('.png')}")
    for result in results:
        picture = BENCHMARKS[result.name].picture
        if picture is not None and result.failure is None and result.sheet.figures and find_spec("matplotlib"):
            own = path.with_name(f"{path.stem}-{result.name}.png")
            picture(result.sheet, own)
            print(f"drawn:   {own}")


if __name__ == "__main__":
    main()
