"""What the machine itself says, asked past podvisor: processes of engines, holders of ports. Everything here blocks.

An engine's processes are found by the variables in their environment, so a daemon that has left its parent, group
and session is found too, unless it has written over its environment. A zombie has none, so the processes seen
before are remembered by pid and start time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from controller.demo.pod import Container

HOLDERS = """
import json, sys
from supervisor.process.holders import port_holders
print(json.dumps(sorted(holder.pid for holder in port_holders(int(sys.argv[1])))))
"""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    process: psutil.Process
    """By its pid on this machine, whatever its pod calls it."""
    pod_ip: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.process.pid} ({self.pod_ip}, epoch {self.epoch})"


def engine_processes(job_name: str) -> tuple[EngineProcess, ...]:
    """All that runs for that job's engines, in all pods, as far as we may look."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if environment.get("JOB_NAME") == job_name and environment.get("PODVISOR_UNIT") == "engine":
            found.append(EngineProcess(process, environment["POD_IP"], int(environment["PODVISOR_EPOCH"])))
    return tuple(found)


def left_of(old: Iterable[EngineProcess], now: Iterable[EngineProcess], epoch: int) -> tuple[EngineProcess, ...]:
    """Those of `old` that still exist, zombies too, and those of `now` that belong to that epoch or an older one."""
    remembered = {one.process.pid: one for one in old if one.process.is_running()}
    return tuple({**{one.process.pid: one for one in now if one.epoch <= epoch}, **remembered}.values())


async def port_holders(container: Container, port: int) -> tuple[int, ...]:
    """Pids with a socket on that port, as the container numbers them."""
    done = await container.exec([sys.executable, "-c", HOLDERS, str(port)])
    if done.exit_code != 0:
        raise RuntimeError(f"cannot look for the holders of port {port}: {done.output}")
    return tuple(json.loads(done.output))
