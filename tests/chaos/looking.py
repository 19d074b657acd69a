"""Looks at everything, from outside: the machine for processes and sockets, the controller as an operator asks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import httpx
import msgspec
import trio

from controller.demo.cluster import PROBE_PORT
from controller.events import ControllerEvent
from supervisor import wire
from tests.chaos import processes
from tests.chaos.judgement import ENGINE_PORT
from tests.chaos.seen import Look, PodLook
from tests.chaos.world import World


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
    return Look({}, instances, runs)


async def _get(world: World, path: str) -> str | None:
    url = await world.leader()
    if url is None:
        return None
    try:
        answer = await world.http.get(url + path)
    except httpx.TransportError:
        return None
    return answer.text if answer.is_success else None


async def _look_at_pod(world: World, name: str) -> PodLook:
    first = world.first_process(name)
    found = PodLook(name)
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
