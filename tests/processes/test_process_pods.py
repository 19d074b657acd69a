"""Pods out of plain processes leave nothing behind, whatever the processes in them do."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from controller.demo.cluster import eventually
from controller.demo.processes import open_process_network
from supervisor.process import procfs

LEAVES_EVERYTHING = "setsid env -i sleep 54321 & setsid sleep 54322 & wait"
"""A child without our mark in its environment, and one outside the session: as redis and as a daemon are."""


def sleepers() -> set[str]:
    found = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return {words[1] for words in found if words and words[0] == "sleep"} & {"54321", "54322"}


async def looked_for() -> set[str]:
    return sleepers()


@pytest.fixture(autouse=True)
def none_left_for_others() -> Iterator[None]:
    """Once an earlier test has made this process a subreaper, what is killed here falls to it as zombies."""
    yield
    for pid in procfs.children_of_ours():
        os.waitpid(pid, 0)


@pytest.mark.parametrize("how", ["removed", "killed"])
async def test_nothing_is_left_of_a_container(tmp_path: Path, how: str) -> None:
    async with open_process_network(1, tmp_path) as network:
        pod = network.pods[0]
        async with pod.container(["sh", "-c", LEAVES_EVERYTHING], log=pod.logs / "log") as container:
            await eventually(looked_for, lambda found: len(found) == 2, "both children")
            if how == "killed":
                container.kill(signal.SIGKILL)
                assert await container.wait() == 137
                assert not sleepers()
        assert not sleepers()
