"""A real etcd of one node: on loopback, with a directory and ports of its own, or as the container of a pod."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo.kubelet import ContainerSpec
from controller.demo.pod import Pod

PROGRAM = shutil.which("etcd")
PATIENCE_SEC = 60.0
POD_PORT = 2379

needs_etcd = pytest.mark.skipif(PROGRAM is None, reason="no etcd here: install etcd-server")


@dataclass(eq=False)
class RealEtcd:
    directory: Path
    port: int
    peer_port: int
    options: Mapping[str, str] = field(default_factory=dict)
    """More of its command line."""
    tls: ssl.SSLContext | None = None
    """What it is to be spoken to with."""
    process: trio.Process | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, verify=self.tls or True)

    async def start(self) -> None:
        """Until it answers. What it had acknowledged before is there again."""
        assert PROGRAM is not None
        peers = f"http://127.0.0.1:{self.peer_port}"
        arguments = {
            "data-dir": str(self.directory),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "log-level": "error",
            **self.options,
        }
        command = [PROGRAM, *(f"--{name}={value}" for name, value in arguments.items())]
        log = self.directory.with_suffix(".log").open("ab")
        with log:
            self.process = await trio.lowlevel.open_process(command, stdout=log, stderr=log, env=os.environ)
        async with self.client() as client:
            with trio.fail_after(PATIENCE_SEC):
                while not await _answers(client):
                    assert self.process.poll() is None, self.directory.with_suffix(".log").read_text()[-2000:]
                    await trio.sleep(0.05)

    async def kill(self) -> None:
        """As by kill -9."""
        assert self.process is not None
        # It may be stopped.
        self.process.send_signal(signal.SIGKILL)
        with trio.fail_after(PATIENCE_SEC):
            await self.process.wait()

    def stop(self) -> None:
        """It neither answers nor refuses, until `go_on`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def compact(self) -> None:
        """Everything but the newest values is forgotten, at once."""
        async with self.client() as client:
            revision = (await client.post("/v3/kv/range", json={"key": "AA=="})).json()["header"]["revision"]
            answer = await client.post("/v3/kv/compaction", json={"revision": revision, "physical": True})
            assert answer.status_code == 200, answer.text


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        # It makes a read that needs a majority, and asks for no user.
        health: object = (await client.get("/health", timeout=2)).json()
    except httpx.TransportError:
        return False
    return health == {"health": "true"}


def etcd_url(pod: Pod) -> str:
    return f"http://{pod.address}:{POD_PORT}"


def etcd_spec(pod: Pod) -> ContainerSpec:
    """Its data are on the pod's volume. Raises RuntimeError where there is no etcd."""
    arguments = {
        "data-dir": str(pod.volume / "etcd"),
        "listen-client-urls": etcd_url(pod),
        "advertise-client-urls": etcd_url(pod),
        "log-level": "error",
        "unsafe-no-fsync": "true",
    }
    if PROGRAM is None:
        raise RuntimeError("no etcd here: install etcd-server")
    return ContainerSpec([PROGRAM, *(f"--{name}={value}" for name, value in arguments.items())], grace_period_sec=10)


@asynccontextmanager
async def real_etcd(
    directory: Path, options: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RealEtcd]:
    client, peer = _free_ports(2)
    etcd = RealEtcd(directory / "etcd", client, peer, options or {}, tls)
    try:
        await etcd.start()
        yield etcd
    finally:
        with trio.move_on_after(10, shield=True):
            if etcd.process is not None and etcd.process.poll() is None:
                await etcd.kill()


def _free_ports(count: int) -> list[int]:
    """None of them is taken now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
