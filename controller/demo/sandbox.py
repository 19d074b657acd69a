"""Where the demo and the pods tests run.

A network of pods on this one machine, as well isolated as the machine allows.
"""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controller.demo.namespaces import open_namespace_network
from controller.demo.pod import Network
from controller.demo.processes import open_process_network

PROGRAMS = ("unshare", "nsenter", "ip", "mount", "pivot_root", "sh")
PROBE_TIMEOUT_SEC = 20


def can_use_namespaces() -> str | None:
    """None when pods can be made out of namespaces here, else the reason why not.

    Blocks for some milliseconds.
    """
    if os.geteuid() != 0:
        return "not root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: util-linux, iproute2)"
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--ipc", "--uts"]
    probe += ["sh", "-ec", "ip link add probe type bridge && mount -t tmpfs probe /mnt"]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=PROBE_TIMEOUT_SEC, check=False)
    except subprocess.TimeoutExpired:
        return f"unshare did not answer within {PROBE_TIMEOUT_SEC} s"
    if done.returncode != 0:
        return f"the kernel refuses: {done.stderr.decode(errors='replace').strip()}"
    return None


@asynccontextmanager
async def open_network(pods: int, directory: Path, *, namespaces: bool | None = None) -> AsyncIterator[Network]:
    """A hub and `pods` pods named pod0, pod1…, with volumes and logs under `directory`.

    `namespaces` None takes them where they can be had and plain processes elsewhere; `Network.isolation`
    says which. Nothing of it remains after the block, nor after this process was killed (plain processes:
    after it was left only).
    """
    if namespaces is None:
        namespaces = can_use_namespaces() is None
    opened = open_namespace_network(pods, directory) if namespaces else open_process_network(pods, directory)
    async with opened as network:
        yield network
