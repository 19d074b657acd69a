"""Does what a fault says, and undoes it after its time. Whatever happens meanwhile, what was cut is healed.

A fault whose victim is not there at that moment does nothing: the strike before it may have killed the victim.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import trio

from controller.demo.cluster import CONTROLLER_PORT, SUPERVISOR_PORT
from tests.chaos import operators
from tests.chaos.faults import (
    Ask,
    Cut,
    Fault,
    Freeze,
    FullDisk,
    Kill,
    Lossy,
    NoDescriptors,
    OutOfMemory,
    Restart,
    Slow,
    Strike,
    Unplug,
    Way,
    Whom,
)
from tests.chaos.judgement import ENGINE_PORT
from tests.chaos.looking import living
from tests.chaos.memory import cgroup_of
from tests.chaos.processes import listeners
from tests.chaos.seen import ENGINE, STORE, Process
from tests.chaos.world import World
from tests.support.cut_path import open_path

HEALING_SEC = 30.0
MEMORY_BYTES = 64 << 20

Lasting = Freeze | Cut | Unplug | Lossy | Slow | FullDisk | NoDescriptors


async def carry_out(world: World, strike: Strike, tell: operators.Tell) -> None:
    """All faults of the strike; returns when the last of them is undone. Cancelled: they are undone."""

    async def in_time(after_sec: float, fault: Fault) -> None:
        await trio.sleep(after_sec)
        await _carry_out(world, fault, tell)

    async with trio.open_nursery() as nursery:
        for timed in strike.faults:
            nursery.start_soon(in_time, timed.after_sec, timed.fault)


async def _carry_out(world: World, fault: Fault, tell: operators.Tell) -> None:
    match fault:
        case Kill(pod=pod, whom=whom):
            await _signal(world, pod, whom, signal.SIGKILL)
        case Restart(pod=pod):
            await _signal(world, pod, Whom.FIRST, signal.SIGTERM)
        case OutOfMemory(pod=pod):
            await _exhaust_memory(world, pod)
        case Ask():
            await operators.ask(world, fault, tell)
        case _:
            async with _happening(world, fault):
                await trio.sleep(fault.lasting_sec)


def _happening(world: World, fault: Lasting) -> AbstractAsyncContextManager[None]:
    match fault:
        case Freeze():
            return _frozen(world, fault)
        case Cut():
            return _cut(world, fault)
        case Unplug():
            return _unplugged(world, fault)
        case Lossy():
            return _lossy(world, fault)
        case Slow():
            return _slow(world, fault)
        case FullDisk():
            return _full_disk(world, fault)
        case NoDescriptors():
            return _no_descriptors(world, fault)


async def _victim(world: World, pod: str, whom: Whom) -> Process | None:
    first = world.first_process(pod)
    if whom is Whom.FIRST:
        return Process(first, 0, pod) if first is not None else None
    looked = (await living(world)).get(pod)
    found = looked.of(STORE if whom is Whom.STORE else ENGINE) if looked is not None else ()
    return next(iter(found[1:] if whom is Whom.WORKER else found), None)


async def _signal(world: World, pod: str, whom: Whom, number: signal.Signals) -> Process | None:
    """Whom it was sent to. The moment between the look and the signal is too short for a number to come again."""
    victim = await _victim(world, pod, whom)
    if victim is None:
        return None
    try:
        os.kill(victim.pid, number)
    except ProcessLookupError:
        return None
    return victim


@asynccontextmanager
async def _frozen(world: World, fault: Freeze) -> AsyncIterator[None]:
    victim = await _victim(world, fault.pod, fault.whom)
    descriptor = _open(victim)
    try:
        _send(descriptor, signal.SIGSTOP)
        yield
    finally:
        _send(descriptor, signal.SIGCONT)
        if descriptor is not None:
            os.close(descriptor)


def _open(process: Process | None) -> int | None:
    try:
        return os.pidfd_open(process.pid) if process is not None else None
    except ProcessLookupError:
        return None


def _send(descriptor: int | None, number: signal.Signals) -> None:
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return


@asynccontextmanager
async def _undone(world: World, pod: str, do: str, undo: str) -> AsyncIterator[None]:
    """A shell script in the pod's network, and another at the end."""
    try:
        await world.network.run_in(world.pod(pod), do)
        yield
    finally:
        with trio.move_on_after(HEALING_SEC, shield=True):
            await world.network.run_in(world.pod(pod), undo)


@asynccontextmanager
async def _cut(world: World, fault: Cut) -> AsyncIterator[None]:
    one, other = world.pod(fault.pod), world.pod(fault.peer)
    sender, receiver = (other, one) if fault.way is Way.BACK else (one, other)
    try:
        await world.network.cut_pair(sender, receiver, one_way=fault.way is not Way.BOTH)
        yield
    finally:
        with trio.move_on_after(HEALING_SEC, shield=True):
            await world.network.heal_pair(one, other)


@asynccontextmanager
async def _unplugged(world: World, fault: Unplug) -> AsyncIterator[None]:
    try:
        await world.network.cut(world.pod(fault.pod))
        yield
    finally:
        with trio.move_on_after(HEALING_SEC, shield=True):
            await world.network.heal(world.pod(fault.pod))


@asynccontextmanager
async def _lossy(world: World, fault: Lossy) -> AsyncIterator[None]:
    rule = f"INPUT -m statistic --mode random --probability {fault.part} -j DROP"
    async with _undone(world, fault.pod, *_rule("filter", rule)):
        yield


def _rule(table: str, rule: str) -> tuple[str, str]:
    """(how it is added, how it is taken away)"""
    return f"iptables -w -t {table} -A {rule}", f"iptables -w -t {table} -D {rule} || true"


@asynccontextmanager
async def _slow(world: World, fault: Slow) -> AsyncIterator[None]:
    """Connections between the pod and the controllers break, and new ones lead through a slow proxy in the hub."""
    pod = world.pod(fault.pod)
    async with trio.open_nursery() as nursery:
        for name in world.stage.controllers:
            controller = world.pod(name)
            ways = [(fault.pod, controller.address, CONTROLLER_PORT), (name, pod.address, SUPERVISOR_PORT)]
            for source, address, port in ways:
                await nursery.start(_detour, world, source, address, port, fault.delay_sec)
        yield
        nursery.cancel_scope.cancel(reason="the path is as fast as ever")


async def _detour(
    world: World, source: str, address: str, port: int, delay_sec: float, *, task_status: trio.TaskStatus[None]
) -> None:
    hub = world.network.hub.address
    async with open_path(port, target_host=address, host=hub, delay_sec=delay_sec) as path:
        to = f"-d {address} -p tcp --dport {port} -j"
        detour, undo_detour = _rule("nat", f"OUTPUT {to} DNAT --to-destination {hub}:{path.port}")
        breaks, undo_breaks = _rule("filter", f"OUTPUT {to} REJECT --reject-with tcp-reset")
        async with _undone(world, source, f"{detour}; {breaks}", f"{undo_breaks}; {undo_detour}"):
            task_status.started()
            await trio.sleep_forever()


@asynccontextmanager
async def _full_disk(world: World, fault: FullDisk) -> AsyncIterator[None]:
    ballast = world.state(fault.pod) / "ballast"
    fill = f"cat /dev/zero >{ballast} 2>/dev/null || true"
    async with _undone(world, fault.pod, fill, f"rm -f {ballast}"):
        yield


@asynccontextmanager
async def _no_descriptors(world: World, fault: NoDescriptors) -> AsyncIterator[None]:
    """Of a program that is up: without descriptors Python itself does not start."""
    first = world.first_process(fault.pod)
    if first is None or not listeners([Process(first, 0, fault.pod)]):
        yield
        return
    before = _limit(first, lambda taken: max(taken, default=0) + 1)
    try:
        yield
    finally:
        if before is not None and world.first_process(fault.pod) == first:
            _limit(first, lambda _: before)


def _limit(pid: int, choose: Callable[[Iterable[int]], int]) -> int | None:
    """Set how many descriptors it may have; what it might before. None: it is gone."""
    try:
        taken = [int(number) for number in os.listdir(f"/proc/{pid}/fd")]
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(choose(taken), hard), hard))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return soft


async def _exhaust_memory(world: World, pod: str) -> None:
    """The engine is put where little memory is, and asked to take more."""
    victim = await _victim(world, pod, Whom.ENGINE)
    if victim is None:
        return
    with cgroup_of(victim.pid, MEMORY_BYTES):
        try:
            url = f"http://{world.pod(pod).address}:{ENGINE_PORT}/allocate"
            await world.http.post(url, json={"bytes": 4 * MEMORY_BYTES})
        except httpx.TransportError:
            return  # as it is meant
