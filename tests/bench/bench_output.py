"""How much one pump moves: `python -m tests.bench.bench_output [MEGABYTES]`. Prints figures, judges nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import trio

from supervisor.process.children import Children, Spawn
from supervisor.process.output import ContainerStdout, Output
from supervisor.process.subreaper import become_subreaper

LINE = "INFO 07-29 12:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 6.6 tokens/s, running: 1 reqs"
PRODUCER = """
import os, sys
block = (sys.argv[1] + "\\n").encode() * 1000
for _ in range(int(sys.argv[2]) // len(block)):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
"""


async def _measure(mode: str, megabytes: int) -> None:
    become_subreaper()
    wanted = megabytes * 1_000_000
    reader = subprocess.Popen(["sh", "-c", "exec cat > /dev/null"], stdin=subprocess.PIPE)
    assert reader.stdin is not None
    children = Children()
    stdout = ContainerStdout(reader.stdin.fileno())
    output = Output("engine", mode, stdout)
    async with trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        pipes = output.open()
        producer = (sys.executable, "-I", "-S", "-c", PRODUCER, LINE, str(wanted))
        spawn = Spawn(producer, dict(os.environ), stdout=pipes.stdout, stderr=pipes.stderr)
        wall, cpu = time.perf_counter(), time.process_time()
        await children.spawn(spawn)
        pipes.close_write_ends()
        await output.pump(pipes)
        await stdout.flush(trio.current_time() + 60)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        nursery.cancel_scope.cancel()
    reader.stdin.close()
    reader.wait()
    moved = output.bytes_total / 1e6
    print(
        f"{mode:7} {moved / wall:5.0f} MB/s  {output.lines_total / wall / 1e6:5.2f} M lines/s  {cpu / wall:4.2f} cores"
        f"  {moved / cpu:5.0f} MB per core second  dropped {output.dropped_total} bytes of {output.bytes_total}"
    )


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    for mode, share in (("pass", 1.0), ("null", 1.0), ("prefix", 0.1), ("json", 0.1)):
        trio.run(_measure, mode, int(megabytes * share))


if __name__ == "__main__":
    main()
