"""One engine of two pods is killed: engines relaunched in place, beside containers that only restart.

Both in turns in the same run, with the same programs, pods, kill and steady client; the one difference is
`enable_engine_relaunch`. All times are those of service: 3 s between heartbeats, and the kubelet's back-off as it is.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio

from controller.demo.engines import LLAMA_SERVER, NODE_EXPORTER, REDIS_SERVER, find_engines, tiny_model
from controller.demo.kubelet import ContainerExited, ContainerStarted, open_kubelet
from controller.demo.pod import Network
from controller.demo.sandbox import can_use_namespaces, open_network
from controller.demo.tiny_model import Shape
from tests.bench.figures import Sheet
from tests.engines.probing import ask_tcp
from tests.pods.harness import Cluster, Tables
from tests.pods.stage import ENGINE, ENGINE_PORT, Stage, is_active, kill_process, pids

LIMIT_SEC = 420.0
PODS = 2
ROUNDS = 5
VICTIM = 1
"""The pod whose engine is killed."""
MODEL = Shape(layers=4, width=1024, feed_forward=4096, heads=16)  # 0.3 GB
ENTRIES = 10_000
"""In the Redis of each pod, of 1 kB."""
PACE_SEC = 0.05
"""Between two requests, to the two endpoints in turn: nobody routes around the dead one."""
REQUEST_LIMIT_SEC = 5.0
CALM_SEC = 1.0
"""Before the kill, and after all endpoints have answered again."""

IN_PLACE = "podvisor, engines relaunched in place"
CONTAINERS = "container restart only"
BACK = "kill -9 of one engine to all endpoints answering"
ENDING = "- until its container has ended"
RESTARTING = "- until both containers run again"
STARTING = "- until all engines are stopped, started, loaded and answer"
KEPT = "KV entries kept"
RESTARTED = "containers restarted"
FAILED = "requests failed"
SENT = "requests sent"
SECOND = "a second kill at once: to all endpoints answering"

REMARKS = (
    f"one instance of {PODS} pods, in each a llama-server of 0.3 GB that serves, and a Redis with {ENTRIES} entries",
    "containers: five looks of the arbiter, 3 s apart, end the first; the kubelet restarts it at once",
    "a second kill within ten minutes waits: in place 30 s of back-off, containers 15 s of looks and 10 s of back-off",
)
SIDES: Mapping[str, Tables] = {
    IN_PLACE: {"fault_tolerance_config": {"enable_engine_relaunch": True}},
    CONTAINERS: {"fault_tolerance_config": {"enable_engine_relaunch": False}},
}
FILL = f"""
import socket
with socket.create_connection(("127.0.0.1", 6379), 30) as redis:
    redis.sendall(b"".join(b"SET key%d %s\\r\\n" % (number, b"x" * 1000) for number in range({ENTRIES})))
    answers = b""
    while answers.count(b"+OK") < {ENTRIES}:
        answers += redis.recv(65536)
"""


@dataclass(frozen=True)
class Asked:
    rank: int
    """Of the pod."""
    is_answered: bool
    over_at: float


@dataclass
class Steady:
    """A client that asks at a steady pace, whatever became of the requests before."""

    network: Network
    http: httpx.AsyncClient
    asked: list[Asked] = field(default_factory=list)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, nursery)
            yield
            nursery.cancel_scope.cancel(reason="measured")

    async def _ask(self, nursery: trio.Nursery) -> None:
        begun = trio.current_time()
        for number in itertools.count():
            await trio.sleep_until(begun + number * PACE_SEC)
            nursery.start_soon(self._one, number % PODS)

    async def _one(self, rank: int) -> None:
        is_answered = await _answers(self.http, self.network, rank)
        self.asked.append(Asked(rank, is_answered, trio.current_time()))

    @property
    def failed(self) -> int:
        return sum(not each.is_answered for each in self.asked)

    def all_back_at(self) -> float:
        """When the last of the endpoints answered again, after its last failure."""
        return max(self._back_at(rank) for rank in range(PODS))

    def _back_at(self, rank: int) -> float:
        own = [each for each in self.asked if each.rank == rank]
        failed = [each.over_at for each in own if not each.is_answered]
        return min(each.over_at for each in own if each.is_answered and each.over_at > max(failed, default=0.0))


@dataclass(frozen=True)
class Taken:
    """What one kill has cost."""

    back_sec: float
    container_ended_sec: float
    """0: it did not."""
    containers_back_sec: float
    kept: int
    restarted: int
    failed: int
    sent: int


async def measure(sheet: Sheet, scratch: Path) -> None:
    reason = can_use_namespaces()
    if reason is not None:
        sheet.remark(f"no pods, so nothing was measured: {reason}")
        return
    engines = find_engines()
    needed = (LLAMA_SERVER, REDIS_SERVER, NODE_EXPORTER)
    if missing := [engines.missing[each] for each in needed if each in engines.missing]:
        sheet.remark(f"nothing was measured: {'; '.join(missing)}")
        return
    taken: dict[str, list[Taken]] = {side: [] for side in SIDES}
    second: dict[str, list[float]] = {side: [] for side in SIDES}
    try:
        for number in range(ROUNDS):
            for side, switch in SIDES.items():
                print(f"  round {number + 1} of {ROUNDS}: {side}", file=sys.stderr, flush=True)
                async with _two_pods(scratch / f"{number}-{side}", switch) as running:
                    taken[side].append(await _kill(running))
                    if number == 0:
                        second[side].append((await _kill(running)).back_sec)
    finally:
        for side in SIDES:
            _add(sheet, side, taken[side])
            sheet.add(side, SECOND, "s", second[side])
        for remark in REMARKS:
            sheet.remark(remark)


def _add(sheet: Sheet, side: str, taken: list[Taken]) -> None:
    sheet.add(side, BACK, "s", [each.back_sec for each in taken])
    sheet.add(side, ENDING, "s", [each.container_ended_sec for each in taken])
    sheet.add(side, RESTARTING, "s", [each.containers_back_sec for each in taken])
    spent = [each.back_sec - each.container_ended_sec - each.containers_back_sec for each in taken]
    sheet.add(side, STARTING, "s", spent)
    sheet.add(side, KEPT, "entries", [each.kept for each in taken])
    sheet.add(side, RESTARTED, "containers", [each.restarted for each in taken])
    sheet.add(side, FAILED, "requests", [each.failed for each in taken])
    sheet.add(side, SENT, "requests", [each.sent for each in taken])


@asynccontextmanager
async def _two_pods(directory: Path, switch: Tables) -> AsyncIterator[Cluster]:
    engines = find_engines()
    engine = ENGINE.format(model=await tiny_model(engines, MODEL), context=256) + "no-mmap = true\n"
    settings = {"parallel": {"dp_size": PODS}, **switch}
    async with open_network(PODS, directory, namespaces=True) as network, open_kubelet() as kubelet:

        async def pods(_: int) -> Network:
            return network

        stage = Stage(pods, kubelet, engines)
        async with stage.gang(engine=engine, supervisor_settings=settings, controller_settings=switch) as running:
            await running.instance(is_active)
            yield running


async def _kill(running: Cluster) -> Taken:
    for rank in range(PODS):
        await _inside(running, rank, [sys.executable, "-I", "-c", FILL])
    restarts = _restarts(running)
    epoch = (await running.instance(is_active))["epoch"]
    engine = (await pids(running, VICTIM))["engine"]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=REQUEST_LIMIT_SEC, limits=limits, trust_env=False) as http:
        steady = Steady(running.network, http)
        async with steady.asking():
            await trio.sleep(CALM_SEC)
            since, killed_at = running.kubelet.timeline.next_number, trio.current_time()
            await kill_process(running, VICTIM, engine)
            await running.instance(partial(_serves_after, epoch))
            await trio.sleep(CALM_SEC)
    ended, back = _containers(running, since)
    kept = [await _entries(running, rank) for rank in range(PODS)]
    return Taken(
        steady.all_back_at() - killed_at,
        ended - killed_at if ended else 0.0,
        back - ended if ended else 0.0,
        sum(kept),
        _restarts(running) - restarts,
        steady.failed,
        len(steady.asked),
    )


def _serves_after(epoch: int, instance: Mapping[str, Any]) -> bool:
    return is_active(instance) and bool(instance["epoch"] > epoch)


def _containers(running: Cluster, since: int) -> tuple[float, float]:
    """When the first one ended, and when the last one was started again; zeros if none was touched."""
    entries = [entry for entry in running.kubelet.timeline.entries if entry.number >= since]
    ended = [entry.at for entry in entries if isinstance(entry.event, ContainerExited)]
    started = [entry.at for entry in entries if isinstance(entry.event, ContainerStarted)]
    return (min(ended), max(started)) if ended else (0.0, 0.0)


async def _entries(running: Cluster, rank: int) -> int:
    answer = await _inside(running, rank, ask_tcp("127.0.0.1:6379", "DBSIZE\r\n"))
    return int(answer.strip().removeprefix(":"))


def _restarts(running: Cluster) -> int:
    return sum(kept.restart_count for kept in running.supervisors)


async def _inside(running: Cluster, rank: int, argv: list[str]) -> str:
    container = running.supervisors[rank].container
    assert container is not None
    done = await container.exec(argv)
    assert done.exit_code == 0, done.output
    return done.output


async def _answers(http: httpx.AsyncClient, network: Network, rank: int) -> bool:
    url = f"http://{network.pods[rank].address}:{ENGINE_PORT}/v1/completions"
    try:
        answer = await http.post(url, json={"prompt": "Hello", "max_tokens": 1, "temperature": 0})
    except httpx.TransportError:
        return False
    return answer.status_code == 200
