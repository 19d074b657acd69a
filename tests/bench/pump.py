"""`python -m tests.bench.pump MODE MEGABYTES`: one unit's output through one pump, in a process of its own.

Prints one line of JSON: `megabytes`, `lines`, `dropped` (bytes that the reader did not get), `wall_sec`, and `cpu_sec`
of the pump's process alone, without the program that writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import trio

from supervisor.process.children import Children, Spawn
from supervisor.process.output import ContainerStdout, Output

FLUSH_SEC = 60
LINE = "INFO 07-29 12:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 6.6 tokens/s, running: 1 reqs"
PRODUCER = """
import os, sys
block = (sys.argv[1] + "\\n").encode() * 1000
for _ in range(int(sys.argv[2]) // len(block)):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
"""


async def pump(mode: str, megabytes: int) -> dict[str, float]:
    """As the supervisor does it, with a reader of the container's stdout that takes whatever comes."""
    reader = subprocess.Popen(["wc", "-l"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdin is not None
    lines = megabytes * 1_000_000 // (1000 * len(LINE) + 1000) * 1000
    stdout = ContainerStdout(reader.stdin.fileno())
    output = Output("engine", mode, stdout)
    async with trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        pipes = output.open()
        producer = (sys.executable, "-I", "-S", "-c", PRODUCER, LINE, str(megabytes * 1_000_000))
        wall, cpu = time.perf_counter(), time.process_time()
        await Children().spawn(Spawn(producer, dict(os.environ), stdout=pipes.stdout, stderr=pipes.stderr))
        pipes.close_write_ends()
        await output.pump(pipes)
        await stdout.flush(trio.current_time() + FLUSH_SEC)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        nursery.cancel_scope.cancel()
    read = int(reader.communicate()[0])
    return {
        "megabytes": megabytes,
        "lines": lines,
        "dropped": 0 if mode == "null" else max(0, lines - read) * (len(LINE) + 1),
        "wall_sec": wall,
        "cpu_sec": cpu,
    }


if __name__ == "__main__":
    print(json.dumps(trio.run(pump, sys.argv[1], int(sys.argv[2]))))
