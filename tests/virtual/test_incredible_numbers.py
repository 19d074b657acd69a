"""Numbers that no controller has given out: whoever tells them is refused, and nobody else is any the worse for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from quart import Response
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from controller.terms import MOST_AHEAD
from supervisor import wire
from supervisor.wire.bounds import EXACT
from tests.support.controller_world import World, open_world


def identity(name: str) -> dict[str, Any]:
    return {
        "job_name": name,
        "namespace": "tenant",
        "model_name": "m",
        "role": "union",
        "pod_ip": "10.66.0.1",
        "nm_port": "1026",
        "parallel_config": wire.ParallelConfig(dp_size=2),
        "device_num": 1,
        "nnodes": 2,
    }


def registration(**told: int) -> wire.RegisterMsg:
    return replace(wire.RegisterMsg(**identity("new"), business_port=("1",), mgmt_port=("2",)), **told)


def reregistration(**told: int) -> wire.ReregisterMsg:
    endpoint = wire.Endpoint(id=0, ip="10.66.0.1", business_port="1", mgmt_port="2")
    message = wire.ReregisterMsg(**identity("old"), endpoints=(endpoint,), instance_id=1, epoch=1)
    return replace(message, **told)


async def check_relaunches(world: World, job: str) -> None:
    """With numbers that supervisors take."""
    epoch = world.instance(job).epoch
    world.gangs[job][0].kill_engine()
    await world.until_active(job, epoch + 1)
    assert world.it.registry.terms.current <= EXACT
    assert world.it.registry.next_id <= EXACT


@pytest.mark.parametrize("beyond", [MOST_AHEAD + 10**9, EXACT])
@pytest.mark.parametrize("number", ["term", "epoch", "instance_id"])
async def test_who_registers_with_them_is_refused_and_told_what_to_do(
    autojump_clock: MockClock, number: str, beyond: int
) -> None:
    async with open_world() as world:
        world.add_gang(size=2)
        await world.until_active()
        messages: list[tuple[str, Any]] = [("reregister", reregistration(**{number: beyond}))]
        if number != "instance_id":
            messages.append(("register", registration(**{number: beyond})))
        for route, message in messages:
            answer = await world.client.post(f"/controller/{route}", content=wire.encode(message))
            assert (answer.status_code, answer.json()["error"]) == (400, "malformed")
            assert f"{number}: {beyond} is no number" in answer.json()["message"]
            assert "state_dir" in answer.json()["message"]
        await check_relaunches(world, "job")


@pytest.mark.seed("S33")
async def test_who_knows_of_a_term_that_can_be_is_believed(autojump_clock: MockClock) -> None:
    """F18: a lost volume has set us back."""
    async with open_world() as world:
        world.add_gang(size=2)
        await world.until_active()
        message = wire.encode(registration(term=1000))
        assert (await world.client.post("/controller/register", content=message)).status_code == 200
        await check_relaunches(world, "job")
        assert world.it.registry.terms.current > 1000


@pytest.mark.parametrize("term", [EXACT, 2**63])
async def test_a_refusal_that_tells_one_costs_its_own_gang_alone(autojump_clock: MockClock, term: int) -> None:
    async with open_world() as world:
        world.add_gang(size=1)
        bad = world.add_gang("other", size=1)[0]
        await world.until_active()
        await world.until_active("other")
        answer = bad._answer

        async def refuse(what: str, command: Any, message: Any) -> Response:
            if what != "prepare":
                return await answer(what, command, message)
            body = b'{"error": "stale_term", "message": "no", "term": %d}' % term
            return Response(body, 409, content_type="application/json")

        bad._answer = refuse  # type: ignore[method-assign]
        bad.kill_engine()
        await world.until(lambda: world.instance("other").status is not InstanceStatus.ACTIVE)
        await check_relaunches(world, "job")
        assert world.it.registry.terms.current == 1
        assert world.instance("other").status is not InstanceStatus.ACTIVE
