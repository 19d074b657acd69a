"""What a pod is run on: processes, their output, the hygiene gate, the container's stdout.

In one value, so that the whole life of a pod fits into a test that costs no time; `linux_host` is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from supervisor.engine.hygiene import Gate
from supervisor.engine.segments import SegmentsOf
from supervisor.process.children import Children
from supervisor.process.disk import Disk
from supervisor.process.drops import DropObserver
from supervisor.process.gate import run_gate
from supervisor.process.output import ContainerStdout, Output, rate_limit_of
from supervisor.process.segments import segments_of
from supervisor.process.stream import Redact
from supervisor.service.credentials import Secrets
from supervisor.service.processes import LinuxProcesses, Processes
from supervisor.service.unit_output import UnitOutput
from supervisor.unit.model import Unit


class Host(msgspec.Struct, frozen=True):
    processes: Processes
    gate: Gate
    segments_of: SegmentsOf
    output_of: Callable[[Unit, DropObserver], UnitOutput]
    """Made once for each unit, and kept over all its invocations."""
    write_stdout: Callable[[bytes], None]
    disk: Disk = msgspec.field(default_factory=Disk)
    secrets: Secrets = msgspec.field(default_factory=Secrets)
    """What units have loaded, and nobody is shown."""


def linux_host(children: Children, stdout: ContainerStdout, units: Sequence[Unit], secrets: Secrets) -> Host:
    """This container, through the one module that forks and reaps."""
    disk = Disk()
    return Host(
        processes=LinuxProcesses(children),
        gate=partial(run_gate, children, disk=disk),
        segments_of=partial(segments_of, disk=disk),
        output_of=partial(_output, stdout, units[0].name if len(units) == 1 else None, secrets.redact_bytes),
        write_stdout=stdout.write,
        disk=disk,
        secrets=secrets,
    )


def _output(stdout: ContainerStdout, alone: str | None, redact: Redact, unit: Unit, drops: DropObserver) -> Output:
    """`alone`: the only unit there was at the start, whose lines need no name; those that a reload adds have one."""
    logging = unit.service.logging
    default_mode = "pass" if unit.name == alone else "prefix"
    return Output(
        unit.name,
        logging.stdout or default_mode,
        stdout,
        stderr_mode=logging.stderr,
        tail_bytes=logging.tail_bytes,
        rate_limit=rate_limit_of(logging),
        rotate_size=logging.rotate_size,
        rotate_keep=logging.rotate_keep,
        default_mode=default_mode,
        drops=drops,
        redact=redact,
    )
