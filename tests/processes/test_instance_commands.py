"""`podvisor instance …` against a running controller: what each does, its exit codes, and how instances are named."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import trio

from supervisor import wire
from tests.processes.test_controller_process import Running, controller, podvisor


def registration(job_name: str, namespace: str = "default") -> wire.RegisterMsg:
    """Of a supervisor that nobody can reach."""
    return wire.RegisterMsg(
        job_name=job_name,
        namespace=namespace,
        model_name="tiny",
        role="union",
        pod_ip="127.0.0.9",
        nm_port="1",
        nnodes=1,
        business_port=("8000",),
        mgmt_port=("8001",),
        boot_id=f"boot-{namespace}-{job_name}",
        features=wire.FEATURES,
    )


@asynccontextmanager
async def with_instances(*names: str) -> AsyncIterator[tuple[Running, list[int]]]:
    async with controller() as running, httpx.AsyncClient(base_url=running.url) as client:
        ids = []
        for name in names:
            namespace, _, job = name.rpartition("/")
            body = wire.encode(registration(job, namespace or "default"))
            answer = await client.post(
                "/controller/register", content=body, headers={"Content-Type": "application/json"}
            )
            ids.append(wire.decode(wire.RegisterAnswer, answer.content).instance_id)
        yield running, ids


async def test_an_instance_is_held_released_and_ended_by_its_name() -> None:
    async with with_instances("llm") as (running, (id_,)):
        there = ("--controller", running.url)
        held = await podvisor("hold", "llm", "--reason", "maintenance", "--wait", *there)
        assert held.returncode == 0, held.stderr
        assert held.stdout.decode() == f"instance {id_} (default/llm): initial, held (maintenance)\n"
        shown = await podvisor("instances", str(id_), *there)
        assert "held: maintenance" in shown.stdout.decode()
        refused = await podvisor("instance", "relaunch", "llm", *there)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert "release it" in refused.stderr.decode()
        kept = await podvisor("rollout", "llm", *there)
        assert (kept.returncode, kept.stdout) == (1, b"")
        assert "release it first" in kept.stderr.decode()
        waiting = await podvisor("instance", "release", "default/llm", "--json", *there)
        assert json.loads(waiting.stdout)["held"] is None
        again = await podvisor("release", "llm", *there)
        assert again.returncode == 0, "what is not held may be released again"
        reset = await podvisor("instance", "reset-failed", str(id_), *there)
        assert reset.returncode == 0
        every = await podvisor("instance", "reset-failed", "--all", *there)
        assert every.stdout.decode() == "0 instances were reset\n", "an operator's hold is no failure"
        assert (await podvisor("instance", "reset-failed", *there)).returncode == 2
        ended = await podvisor("instance", "terminate", "llm", "--wait", *there)
        assert (ended.returncode, ended.stdout.decode()) == (0, f"instance {id_} ends\n")


async def test_a_held_instance_is_not_waited_for_for_ever() -> None:
    async with with_instances("llm") as (running, _):
        there = ("--controller", running.url)
        await podvisor("hold", "llm", *there)
        async with trio.open_nursery() as nursery, httpx.AsyncClient(base_url=running.url) as client:

            async def hold_again() -> None:
                for _ in range(600):
                    (view,) = (await client.get("/v1/instances")).json()["instances"]
                    if view["held"] is None:
                        break
                    await trio.sleep(0.05)
                await client.post(f"/v1/instances/{view['id']}/hold", json={"reason": "no, stay"})

            nursery.start_soon(hold_again)
            done = await podvisor("release", "llm", "--wait", *there)
        assert done.returncode == 1
        assert "is held: no, stay" in done.stderr.decode()


async def test_names_that_are_nobody_s_or_of_several_are_said() -> None:
    async with with_instances("llm", "other/llm") as (running, _):
        there = ("--controller", running.url)
        missing = await podvisor("hold", "lim", *there)
        assert missing.returncode == 4
        assert "there are: default/llm, other/llm" in missing.stderr.decode()
        several = await podvisor("hold", "llm", *there)
        assert several.returncode == 1
        assert "name it with its namespace" in several.stderr.decode()
        assert (await podvisor("hold", "other/llm", *there)).returncode == 0
        assert (await podvisor("hold", "4711", *there)).returncode == 4
