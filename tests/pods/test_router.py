"""The router of docs/routing.md, while engines are killed: it sends to no instance that it knows is INACTIVE."""

import json
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from controller.demo.cluster import controller_url
from controller.demo.engines import LLAMA_SERVER, REDIS_SERVER, tiny_model
from controller.demo.kubelet import ContainerSpec, KubeletPod
from controller.demo.tiny_model import Shape
from tests.pods.harness import Cluster, Tables, eventually
from tests.pods.stage import ENGINE, NO_LIMITS, QUICK, Part, Stage, is_active, kill_engine, shipped
from tests.pods.streaming import Streamed, stream

pytestmark = [pytest.mark.pods, pytest.mark.engines]

ROUTER = Path(__file__).parents[2] / "docs" / "examples" / "router.py"
ROUTER_PORT = 8000
JOBS = ("wide", "wide", "narrow")
"""Of the instance of each pod: one over two pods that both serve, one of a single pod."""
KILLS = int(os.environ.get("PODVISOR_TEST_KILLS", "4"))
CLIENTS = 3
TOKENS = 100
PAUSE_SEC = 0.1
"""Between a client's questions: engines, router and clients are to leave the machine time for everybody else."""
SEED = 5


@dataclass(frozen=True)
class Sent:
    """A line of the router's log."""

    to: str
    heard: int
    """The last event that it knew then."""


@dataclass
class Steady:
    """Clients that go on asking, whatever the last answer was."""

    url: str
    answers: list[Streamed] = field(default_factory=list)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        async with httpx.AsyncClient() as http, trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(self._ask, http)
            yield
            nursery.cancel_scope.cancel()

    async def _ask(self, http: httpx.AsyncClient) -> None:
        while True:
            self.answers.append(await stream(http, self.url, TOKENS))
            await trio.sleep(PAUSE_SEC)


@asynccontextmanager
async def two_instances(stage: Stage) -> AsyncIterator[Cluster]:
    stage.need(LLAMA_SERVER, REDIS_SERVER)
    units = {"engine.toml": ENGINE.format(model=await tiny_model(stage.engines, Shape()), context=1024)}
    parts = [Part(units | shipped("redis"), _placed(rank)) for rank in range(len(JOBS))]
    async with stage.cluster(await stage.pods(len(JOBS)), parts, controller_settings=NO_LIMITS) as running:
        yield running


def _placed(rank: int) -> Tables:
    job = JOBS[rank]
    members = JOBS.count(job)
    place = {"job_name": job, "nnodes": members, "node_index": rank - JOBS.index(job)}
    return {"supervisor": {**QUICK["supervisor"], **place}, "parallel": {"dp_size": members}}


async def active(running: Cluster, job: str, epoch: int = 1) -> Mapping[str, Any]:
    """Once it serves, in that epoch or a later one. While the controller restarts nobody knows."""

    async def ask() -> Mapping[str, Any] | None:
        listing = await running.from_controller("/v1/instances") or {"instances": []}
        return next((each for each in listing["instances"] if each["job_name"] == job), None)

    found = await eventually(ask, lambda it: it is not None and is_active(it) and it["epoch"] >= epoch, f"{job} active")
    assert found is not None
    return found


async def start_router(stage: Stage, running: Cluster) -> tuple[str, KubeletPod]:
    pod = await running.network.add_pod("router")
    listen = f"{pod.address}:{pod.port(ROUTER_PORT)}"
    argv = [sys.executable, str(ROUTER), "--listen", listen, "--model", "tiny", controller_url(running.network)]
    kept = await stage.kubelet.start(pod, ContainerSpec(argv))

    async def serves() -> bool:
        try:
            return (await running.http.get(f"http://{listen}/v1/models")).status_code == 200
        except httpx.TransportError:
            return False

    await eventually(serves, lambda yes: yes, "the router to route")
    return f"http://{listen}", kept


def sent(log: str) -> list[Sent]:
    said = [json.loads(line) for line in log.splitlines() if line.startswith('{"to"')]
    return [Sent(line["to"], int(line["heard"].rpartition("-")[2])) for line in said]


def wrongly_sent(requests: Sequence[Sent], events: Sequence[Mapping[str, Any]]) -> Iterator[Sent]:
    """Those that went where, after the last event that the router had heard, no ACTIVE instance was: told by replaying
    the controller's own record, with nothing of the router's."""
    for request in requests:
        status: dict[int, str] = {}
        endpoints: dict[int, Sequence[str]] = {}
        for event in events:
            if event["id"] > request.heard:
                break
            if event["kind"] == "identity":
                endpoints[event["instance_id"]] = event["endpoints"]
            elif event["kind"] == "instance":
                status[event["instance_id"]] = event["status"]
        if not any(status.get(id_) == "active" and request.to in where for id_, where in endpoints.items()):
            yield request


def nobody_served(events: Sequence[Mapping[str, Any]]) -> bool:
    """At some moment since both served: a machine that is busy elsewhere for long may call both INACTIVE."""
    status: dict[int, str] = {}
    for event in events:
        if event["kind"] == "instance":
            status[event["instance_id"]] = event["status"]
            if len(status) == len(set(JOBS)) and "active" not in status.values():
                return True
    return False


async def recorded(running: Cluster) -> list[Mapping[str, Any]]:
    answer = await running.http.get(f"{controller_url(running.network)}/v1/events?follow=0")
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[0]["kind"] != "gap", "the record is whole"
    return events


async def test_a_router_that_follows_the_events_never_sends_to_an_inactive_instance(stage: Stage) -> None:
    """Nor does a client get an answer that looks whole and is not, or none at all: one instance serves at any time."""
    chance = random.Random(SEED)
    async with two_instances(stage) as running:
        epochs = {job: (await active(running, job))["epoch"] for job in dict.fromkeys(JOBS)}
        url, router = await start_router(stage, running)
        steady = Steady(url)
        async with steady.asking():
            for kill in range(KILLS):
                victim = chance.randrange(len(JOBS))
                await has_heard_all(running, router)
                await kill_engine(running, victim)
                epochs[JOBS[victim]] += 1
                await active(running, JOBS[victim], epochs[JOBS[victim]])
                if kill == KILLS // 2:
                    assert running.controller.container is not None
                    running.controller.container.kill(9)
                    for job, epoch in epochs.items():
                        await active(running, job, epoch)
            await has_heard_all(running, router)
            before = len(steady.answers)
            await eventually(
                lambda: count(steady), lambda asked: asked > before + CLIENTS, "answers of the last engines"
            )

        said, events = router.logs[-1].read_text(), await recorded(running)

    requests = sent(said)
    changes = [event["status"] for event in events if event["kind"] == "instance"]
    assert changes.count("inactive") >= KILLS
    assert list(wrongly_sent(requests, events)) == []
    assert {request.to for request in requests} == {f"{pod.address}:10000" for pod in running.network.pods[:3]}
    assert [str(answer) for answer in steady.answers if answer.looks_whole != answer.is_whole] == []
    refused = [str(answer) for answer in steady.answers if answer.status == 503]
    assert refused == [] or nobody_served(events), f"another instance was ACTIVE all the time\n{said}"
    assert {answer.tokens for answer in steady.answers if answer.is_whole} == {TOKENS}
    broken = [str(answer) for answer in steady.answers if not answer.is_whole]
    print(f"{len(steady.answers)} asked, {len(broken)} broke off in the middle: {broken}")
    print(f"{len(requests)} sent, {len(requests) - len(steady.answers)} of them once more, elsewhere")


async def has_heard_all(running: Cluster, router: KubeletPod) -> None:
    """Once a request was sent by what the last change of an instance told: what is ACTIVE is known to be so."""
    last = max(event["id"] for event in await recorded(running) if event["kind"] == "instance")
    await eventually(lambda: last_heard(router), lambda heard: heard >= last, f"requests by what event {last} told")


async def last_heard(router: KubeletPod) -> int:
    """By which event it last sent a request somewhere."""
    return max((line.heard for line in sent(router.logs[-1].read_text())), default=0)


async def count(steady: Steady) -> int:
    return len(steady.answers)
