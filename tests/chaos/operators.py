"""Commands as operators give them: of a controller over HTTP, of a supervisor over its socket in the pod."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence

import httpx
import msgspec
import trio

from supervisor import wire
from tests.chaos.faults import Ask, Verb
from tests.chaos.judgement import jobs
from tests.chaos.looking import instances_and_runs
from tests.chaos.seen import Asked
from tests.chaos.world import World, node_manager_url

ANSWER_SEC = 10.0
"""Who gets no answer goes on: what was asked may be done all the same."""
REASON = {"reason": "the weather"}

Tell = Callable[[Asked], None]

IN_THE_POD = {
    Verb.STOP_ENGINE: ("/v1/units/engine/stop", "/v1/units/engine/start"),
    Verb.STOP_STORE: ("/v1/units/redis/stop", "/v1/units/redis/start"),
    Verb.RESTART_ENGINE: ("/v1/units/engine/restart", None),
    Verb.RESTART_STORE: ("/v1/units/redis/restart", None),
    Verb.RELOAD: ("/v1/reload", None),
}


async def ask(world: World, fault: Ask, tell: Tell) -> None:
    """What the command says, and after its time the opposite. Cancelled: the opposite may not have been asked for."""
    match fault.verb:
        case Verb.DRAIN:
            await _in_pod(world, fault.pod, "/v1/drain", tell)
            _terminate(world, fault.pod)
        case Verb.RESET_FAILED:
            await _of_controller(world, "/v1/reset-failed", tell)
        case Verb.ABORT:
            await _abort(world, fault.pod, tell)
        case Verb.HOLD:
            await _of_instance(world, fault.pod, "hold", tell)
            await trio.sleep(fault.lasting_sec)
            await _of_instance(world, fault.pod, "release", tell)
        case Verb.RELAUNCH | Verb.TERMINATE:
            await _of_instance(world, fault.pod, fault.verb, tell)
        case _:
            command, opposite = IN_THE_POD[fault.verb]
            await _in_pod(world, fault.pod, command, tell)
            if opposite is not None:
                await trio.sleep(fault.lasting_sec)
                await _in_pod(world, fault.pod, opposite, tell)


async def let_go(world: World, tell: Tell) -> None:
    """Whatever is held is released, whoever holds it, as somebody does who has looked at it."""
    instances, _ = await instances_and_runs(world)
    for instance in instances or ():
        if instance.held is not None:
            verb = "release" if instance.held_by == "operator" else "reset-failed"
            await _of_controller(world, f"/v1/instances/{instance.id}/{verb}", tell)


async def start_stopped(world: World, pod: str, unit: str, tell: Tell) -> None:
    await _in_pod(world, pod, f"/v1/units/{unit}/start", tell)


async def commands_out_of_date(world: World, pod: str) -> Sequence[Asked]:
    """`prepare` of the epoch that runs, and of a deposed controller for the epoch to come."""
    url = f"{node_manager_url(world.pod(pod))}/node-manager"
    try:
        answer = await world.http.get(f"{url}/status")
    except httpx.TransportError:
        return ()
    status = msgspec.json.decode(answer.content, type=wire.NodeManagerStatus)
    outdated = [(status.epoch, status.term)]
    # Before the second life of a controller there is no deposed one.
    outdated += [(status.epoch + 1, status.term - 1)] if status.term > 1 else []
    body = {
        "action": "prepare",
        "instance_id": status.instance_id,
        "run_id": "of-an-older-controller",
        "boot_id": status.boot_id,
    }
    return [
        await _sent(
            world.http,
            f"{url}/engine-restart",
            body | {"epoch": epoch, "term": term},
            f"prepare of epoch {epoch} in term {term}, to {pod} of epoch {status.epoch} in term {status.term},",
        )
        for epoch, term in outdated
    ]


async def _of_instance(world: World, pod: str, verb: str, tell: Tell) -> None:
    job = _job_of(world, pod)
    instances, _ = await instances_and_runs(world)
    found = next((instance for instance in instances or () if instance.job_name == job), None)
    if found is None:
        tell(Asked(f"{verb} of {job}", None, "there is no such instance"))
    else:
        await _of_controller(world, f"/v1/instances/{found.id}/{verb}", tell)


def _job_of(world: World, pod: str) -> str:
    return next(job for job, gang in jobs(world.stage).items() if pod in gang)


async def _abort(world: World, pod: str, tell: Tell) -> None:
    _, runs = await instances_and_runs(world)
    for run in runs:
        if run.outcome is None and run.job_name == _job_of(world, pod):
            await _of_controller(world, f"/v1/relaunches/{run.id}/abort", tell)


async def _of_controller(world: World, path: str, tell: Tell) -> None:
    url = await world.leader()
    if url is None:
        tell(Asked(f"POST {path}", None, "no controller leads"))
    else:
        tell(await _sent(world.http, url + path, REASON, f"POST {path}"))


async def _in_pod(world: World, pod: str, path: str, tell: Tell) -> None:
    tell(await _sent(world.sockets[pod], path, None, f"POST {path} in {pod}"))


async def _sent(client: httpx.AsyncClient, url: str, body: Mapping[str, object] | None, what: str) -> Asked:
    with trio.move_on_after(ANSWER_SEC):
        try:
            answer = await client.post(url, json=body, timeout=ANSWER_SEC)
        except httpx.TransportError as error:
            return Asked(what, None, f"{type(error).__name__}: {error}")
        return Asked(what, answer.status_code, answer.text)
    return Asked(what, None, f"no answer in {ANSWER_SEC:g} s")


def _terminate(world: World, pod: str) -> None:
    """As a kubelet does when the preStop hook is done."""
    container = world.kept[pod].container
    if container is not None:
        container.kill(signal.SIGTERM)
