"""Relaunches in a row leave memory, descriptors and /dev/shm where they were.

PODVISOR_VLLM_RELAUNCHES says how many (20 take half an hour or more); without it the test skips.
"""

import os
from collections.abc import Mapping
from itertools import cycle

import psutil
import pytest

from tests.engines.vllm.faults import DEATHS, OVER_TWO_PODS, relaunch_after
from tests.engines.vllm.gang import ENGINE, Gang, Stage, report

pytestmark = [pytest.mark.pods, pytest.mark.vllm, pytest.mark.timeout(6 * 3600)]

COUNT = "PODVISOR_VLLM_RELAUNCHES"
MIB = 1 << 20
MEMORY_SLACK = 8
"""MiB by which a supervisor or controller may have grown; a leak of an engine's page or log would be more."""
FILES_SLACK = 2
"""A heartbeat or a poll may be in flight at one look and not at the other."""
ENGINE_SLACK = 0.1
"""Of its own size: no two starts of an engine are alike."""


async def test_relaunches_in_a_row_leave_nothing_behind(stage: Stage) -> None:
    count = int(os.environ.get(COUNT, "0"))
    if count == 0:
        pytest.skip(f"minutes each; {COUNT}=20 make test-vllm runs it")
    async with stage.gang(2, environment=OVER_TWO_PODS) as gang:
        await gang.active()
        said = await gang.complete()
        await relaunch_after(DEATHS[0], gang, said)  # what is allocated once and kept is there now
        first = await measures(gang)
        report(f"before: {in_words(first)}")
        for number, fault in zip(range(count), cycle(DEATHS), strict=False):
            await relaunch_after(fault, gang, said)
            report(f"after {number + 1}: {in_words(await measures(gang))}")
        last = await measures(gang)
        for name, before in first.items():
            assert last[name] <= before + slack(name, before), f"{name}: {before} -> {last[name]}"


def slack(name: str, before: int) -> float:
    if name.endswith("files"):
        return FILES_SLACK
    if name.endswith("segments"):
        return 0
    return before * ENGINE_SLACK if ENGINE in name else MEMORY_SLACK


def in_words(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())


async def measures(gang: Gang) -> Mapping[str, int]:
    """Resident MiB, open files, segments: of the controller, the supervisors and the engines."""
    look = await gang.look()
    container = gang.running.controller.container
    assert container is not None
    controller = psutil.Process(container.init_pid)
    found = {"controller memory": controller.memory_info().rss // MIB, "controller files": controller.num_fds()}
    for rank, pod in enumerate(look.pods):
        supervisor = next(one for one in pod.processes if one.pid == look.units[rank]["supervisor"])
        found[f"pod {rank} supervisor memory"] = supervisor.resident // MIB
        found[f"pod {rank} supervisor files"] = supervisor.files
        found[f"pod {rank} {ENGINE} memory"] = sum(one.resident for one in look.engine(rank)) // MIB
        found[f"pod {rank} {ENGINE} files"] = sum(one.files for one in look.engine(rank))
        found[f"pod {rank} segments"] = len(pod.segments)
    return found
