"""Has the memory of the devices come back? A killed engine's is freed some time after its death is seen.

Asked is NVML, through a helper program (`nvml.py`), or a command of the unit's. What was in use before the engine's
first start is the baseline: other users of the same device are none of our business.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from supervisor.process import nvml
from supervisor.process.children import Children
from supervisor.process.helper import ask

TIMEOUT_SEC = 50.0
TOLERANCE_BYTES = 512 * 1024 * 1024
ASK_SEC = 10.0
"""For one question: a driver that takes longer hangs."""
AGAIN_SEC = 0.5
"""Drivers tell nobody when memory is free: ask again."""

InUse = Mapping[str, int]
"""Bytes, by device."""


class DeviceMemoryProbe(msgspec.Struct, frozen=True):
    environment: Mapping[str, str]
    """The engine's: CUDA_VISIBLE_DEVICES says which devices, LD_LIBRARY_PATH where the library is."""
    command: tuple[str, ...] | None = None
    """Exits 0 when memory is back. None: NVML."""
    required: bool = True
    """Without NVML the check fails; else it is passed over, which is right where it is only the default."""


class Unavailable(Exception):
    """There is nothing to ask here; waiting will not help."""


class ProbeFailed(Exception):
    """No answer, or none that can be understood; the next try may do better."""


async def read_nvml(children: Children, environment: Mapping[str, str]) -> InUse:
    """Raise Unavailable, ProbeFailed, SpawnError, OSError."""
    argv = (sys.executable, "-I", "-S", nvml.__file__)
    answer = await ask(children, argv, environment, ASK_SEC)
    if answer.status is None:
        raise ProbeFailed(f"NVML did not answer within {ASK_SEC:g} s: the driver hangs")
    if answer.status.code == nvml.UNAVAILABLE:
        raise Unavailable(answer.last_line)
    if answer.status.code != 0:
        raise ProbeFailed(f"NVML: {answer.last_line or answer.status}")
    try:
        return {device: int(used) for device, used in (line.split() for line in answer.output.splitlines())}
    except ValueError:
        raise ProbeFailed(f"NVML said what cannot be understood: {answer.last_line!r}") from None


async def run_command(children: Children, probe: DeviceMemoryProbe) -> str | None:
    """None: memory is back; else why not, in words. Raise SpawnError, OSError."""
    assert probe.command is not None, "only a probe with a command is asked so"
    answer = await ask(children, probe.command, probe.environment, ASK_SEC)
    if answer.status is None:
        return f"{probe.command[0]} did not end within {ASK_SEC:g} s"
    if answer.status.code == 0:
        return None
    return f"{probe.command[0]}: {answer.status}" + (f": {answer.last_line}" if answer.last_line else "")


def still_in_use(baseline: InUse, now: InUse) -> tuple[str, ...]:
    """The devices where more than the tolerance has not come back, in words."""
    return tuple(
        f"{device}: {in_mib(used)} in use, {in_mib(baseline.get(device, 0))} before the first start"
        for device, used in sorted(now.items())
        if used > baseline.get(device, 0) + TOLERANCE_BYTES
    )


def in_mib(used: int) -> str:
    return f"{used // 2**20} MiB"
