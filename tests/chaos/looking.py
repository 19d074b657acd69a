"""Looks at everything, from outside: the machine for processes and sockets, the controller as an operator asks it."""

from __future__ import annotations

import base64
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import trio

from controller.demo.cluster import PROBE_PORT
from controller.events import ControllerEvent
from controller.store.sqlite import FILE
from supervisor import wire
from tests.chaos import processes
from tests.chaos.judgement import ENGINE_PORT
from tests.chaos.seen import Look, PodLook
from tests.chaos.world import ETCD_PORT, World

OPEN_RUNS = "SELECT job_name, count(*) FROM runs WHERE open GROUP BY job_name"
OPEN_RUN = b"/podvisor/open-run/"
"""How keys of open runs begin in etcd; `0` comes after `/`."""
JOURNAL_SEC = 2.0


async def look(world: World) -> Look:
    """At all pods at once; takes as long as the slowest answer."""
    pods: dict[str, PodLook] = {}
    found: dict[str, Look] = {}

    async def look_at(name: str) -> None:
        pods[name] = await _look_at_pod(world, name)

    async def ask() -> None:
        found["centre"] = await _ask_centre(world)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for name in world.stage.pods:
            nursery.start_soon(look_at, name)
    return replace(found["centre"], pods=pods)


async def living(world: World) -> Mapping[str, PodLook]:
    """Only the processes of every pod, by one look of the kernel."""
    firsts = {name: world.first_process(name) for name in world.stage.pods}

    def scan() -> Mapping[str, PodLook]:
        return {name: PodLook(name, *processes.living(pid)) for name, pid in firsts.items() if pid is not None}

    return await trio.to_thread.run_sync(scan)


async def events_since(world: World, last_id: int) -> tuple[ControllerEvent, ...]:
    """What the controller tells; nothing while nobody leads."""
    text = await _get(world, f"/v1/events?since={last_id}&follow=0")
    return tuple(msgspec.json.decode(line, type=ControllerEvent) for line in (text or "").splitlines() if line)


async def instances_and_runs(
    world: World,
) -> tuple[tuple[wire.InstanceView, ...] | None, tuple[wire.RunView, ...]]:
    """As whoever leads tells them; None: nobody leads."""
    instances, runs = await _get(world, "/v1/instances"), await _get(world, "/v1/relaunches")
    if instances is None or runs is None:
        return None, ()
    return (
        msgspec.json.decode(instances, type=wire.InstancesView).instances,
        msgspec.json.decode(runs, type=wire.RelaunchesView).relaunches,
    )


async def _ask_centre(world: World) -> Look:
    instances, runs = await instances_and_runs(world)
    journal = trio.to_thread.run_sync(_journal, world) if world.stage.etcd is None else _etcd(world, world.stage.etcd)
    return Look(time.time(), {}, instances, runs, await journal)


async def _get(world: World, path: str) -> str | None:
    url = await world.leader()
    if url is None:
        return None
    try:
        answer = await world.http.get(url + path)
    except httpx.TransportError:
        return None
    return answer.text if answer.is_success else None


def _journal(world: World) -> Mapping[str, int] | None:
    """Read in the controller's own file system, past the controller."""
    (name,) = world.stage.controllers
    first = world.first_process(name)
    if first is None:
        return None
    path = Path(f"/proc/{first}/root{world.state(name)}", FILE)
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=JOURNAL_SEC)
        try:
            return dict(connection.execute(OPEN_RUNS).fetchall())
        finally:
            connection.close()
    except sqlite3.Error:
        return None


async def _etcd(world: World, name: str) -> Mapping[str, int] | None:
    """The same, asked of etcd."""
    keys = [base64.b64encode(key).decode() for key in (OPEN_RUN, OPEN_RUN[:-1] + b"0")]
    question = {"key": keys[0], "range_end": keys[1], "keys_only": True}
    try:
        answer = await world.http.post(f"http://{world.pod(name).address}:{ETCD_PORT}/v3/kv/range", json=question)
    except httpx.TransportError:
        return None
    if not answer.is_success:
        return None
    found = [base64.b64decode(row["key"]).rpartition(b"/")[2].decode() for row in answer.json().get("kvs", ())]
    return Counter(found)


async def _look_at_pod(world: World, name: str) -> PodLook:
    first = world.first_process(name)
    found = PodLook(name, lives=len(world.kept[name].logs))
    if first is None:
        return found
    alive, zombies = await trio.to_thread.run_sync(processes.living, first)
    return replace(
        found,
        processes=alive,
        zombies=zombies,
        listeners=await trio.to_thread.run_sync(processes.listeners, alive),
        view=await _view(world.sockets[name]),
        answers=await _is_well(world, f"http://{world.pod(name).address}:{ENGINE_PORT}/health"),
        ready=await _is_well(world, f"http://{world.pod(name).address}:{PROBE_PORT}/readyz"),
    )


async def _view(supervisor: httpx.AsyncClient) -> wire.UnitsView | None:
    try:
        answer = await supervisor.get("/v1/units")
    except httpx.TransportError:
        return None
    return msgspec.json.decode(answer.content, type=wire.UnitsView) if answer.is_success else None


async def _is_well(world: World, url: str) -> bool:
    try:
        answer = await world.http.get(url)
    except httpx.TransportError:
        return False
    return answer.is_success
