"""`podvisor controller` as a process of a test: started, frozen, killed, and asked whether it leads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import trio

from supervisor import wire

COMMAND = (sys.executable, "-m", "supervisor", "controller")
PATIENCE_SEC = 60.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
ASK_SEC = 1.0


@dataclass(eq=False)
class ControllerProcess:
    """Of several; its log is kept."""

    settings: dict[str, str]
    process: trio.Process
    url: str = ""
    log: list[dict[str, object]] = field(default_factory=list)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def said(self, words: str) -> list[dict[str, object]]:
        return [line for line in self.log if words in str(line["message"])]

    async def standing(self) -> wire.LeaderView | None:
        """What it says of itself; None: it does not answer."""
        try:
            async with httpx.AsyncClient(base_url=self.url, timeout=ASK_SEC, trust_env=False) as client:
                return wire.decode(wire.LeaderView, (await client.get("/leader")).content)
        except httpx.TransportError:
            return None

    async def leads(self) -> bool:
        view = await self.standing()
        return view is not None and view.role == "leader"

    async def instances(self) -> tuple[wire.InstanceView, ...]:
        """None on a standby."""
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SEC, trust_env=False) as client:
            answer = await client.get("/v1/instances")
        return wire.decode(wire.InstancesView, answer.content).instances if answer.status_code == 200 else ()

    async def runs(self) -> tuple[wire.RunView, ...]:
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SEC, trust_env=False) as client:
            answer = await client.get("/v1/relaunches")
        return wire.decode(wire.RelaunchesView, answer.content).relaunches if answer.status_code == 200 else ()


@asynccontextmanager
async def controller_process(
    command: tuple[str, ...] = COMMAND, /, **settings: str
) -> AsyncIterator[ControllerProcess]:
    """`settings` as `SECTION__KEY`. Once it serves; it ends with the block at the latest."""
    chosen = {"CONTROLLER__PORT": "0", "CONTROLLER__PROBE_PORT": "0"} | settings
    environment = {"PATH": "/usr/bin:/bin", **{f"PODVISOR_{key}": value for key, value in chosen.items()}}
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(list(command), stderr=subprocess.PIPE, env=environment)
        running = ControllerProcess(settings, process)
        try:
            with trio.fail_after(PATIENCE_SEC):
                await nursery.start(_read_log, running)
            yield running
        finally:
            if process.poll() is None:
                running.kill()
            with trio.move_on_after(10, shield=True):
                await process.wait()
        nursery.cancel_scope.cancel()


async def _read_log(running: ControllerProcess, *, task_status: trio.TaskStatus[None]) -> None:
    assert running.process.stderr is not None
    pending = ""
    async for data in running.process.stderr:
        *lines, pending = (pending + data.decode()).split("\n")
        for line in lines:
            if not line.startswith("{"):
                continue  # the last words, written past the log
            record = json.loads(line)
            running.log.append(record)
            if record["message"] == "the controller serves":
                running.url = record["url"]
                task_status.started()
