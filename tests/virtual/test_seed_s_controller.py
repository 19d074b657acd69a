"""A controller that speaks only the reference system's form: no epochs, no terms, no runs, nothing in its answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from quart import Response, request
from quart_trio import QuartTrio
from trio.testing import MockClock

from supervisor.wire import Step
from tests.support.controller_world import HOST, PORT
from tests.support.virtual_gang import Gang, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

ALONE: dict[str, object] = {"start_without_controller_after_sec": 0}
INSTANCE = 5


class SeedsController:
    """Takes everything, remembers it, and says as little as possible."""

    def __init__(self, gang: Gang, body: str) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        application = QuartTrio("the reference system's")

        @application.post("/controller/<what>")
        async def take(what: str) -> Response:
            self.received.append((what, json.loads(await request.get_data())))
            return Response(body, content_type="application/json")

        gang.world.network.listen(HOST, PORT, application)

    def last(self, what: str) -> dict[str, Any]:
        return [message for kind, message in self.received if kind == what][-1]

    def did_receive(self, what: str) -> bool:
        return any(kind == what for kind, _ in self.received)


@pytest.mark.parametrize("body", ["null", '"ok"', "true", "", "{}", '{"code": 0, "message": "success"}'])
async def test_a_whole_life_under_it(autojump_clock: MockClock, body: str) -> None:
    async with open_gang(1, without_controller=True, supervisor=ALONE) as gang:
        (pod,) = gang.pods
        controller = SeedsController(gang, body)
        await gang.until(lambda: controller.did_receive("heartbeat"))
        registered = controller.last("register")
        assert registered["protocol"] == 1
        assert "prepare" in registered["features"]
        endpoint = {"id": 0, "ip": pod.ip, "business_port": "8000", "mgmt_port": "8000"}
        start = {
            "job_name": "job",
            "role": "both",
            "instance_id": INSTANCE,
            "endpoints": [endpoint],
            "master_dp_ip": pod.ip,
        }
        async with gang.client(pod) as client:
            assert (await client.post("/node-manager/start", json=start)).status_code == 200
            await gang.until(lambda: pod.serves, within=30)
            await gang.until(lambda: controller.last("heartbeat")["ins_id"] == INSTANCE, within=5)
            assert controller.last("heartbeat")["status"] == {"0": "normal"}
            assert pod.not_ready == "", "it says nothing of the instance, which is nothing against it"
            pod.kill_engine()
            await gang.until(lambda: pod.is_frozen, within=5)
            assert controller.last("report_software_fault")["engine_status"] == 1
            restart = {"action": "restart", "instance_id": INSTANCE}
            assert (await client.post("/node-manager/engine-restart", json=restart)).status_code == 200
            await gang.until(lambda: pod.serves, within=30)
            assert pod.spawns() == 2
            assert (await client.get("/node-manager/status")).json()["status"] is True
            pod.kill_engine()
            await gang.until(lambda: pod.is_frozen, within=5)
            abort = {"action": "abort", "instance_id": INSTANCE}
            assert (await client.post("/node-manager/engine-restart", json=abort)).status_code == 200
        await gang.until(lambda: bool(pod.ended), within=60)
        assert pod.ended[0][0] == 255


async def test_the_page_of_another_server_is_no_registration(autojump_clock: MockClock) -> None:
    async with open_gang(1, without_controller=True, supervisor=ALONE) as gang:
        controller = SeedsController(gang, "<html>welcome</html>")
        await gang.until(lambda: controller.did_receive("register"))
        await trio.sleep(60)
        assert not controller.did_receive("heartbeat")


async def test_an_order_of_a_newer_controller_that_is_not_known_here_does_no_harm(autojump_clock: MockClock) -> None:
    async with open_gang(1, without_controller=True, supervisor=ALONE) as gang:
        (pod,) = gang.pods
        orders = [{"order": "dance"}, {"order": "abort", "run_id": "r", "term": 1}]
        answer = {"term": 1, "orders": orders, "news": {"x": 1}}
        controller = SeedsController(gang, json.dumps(answer))
        await gang.until(lambda: controller.did_receive("heartbeat"))
        await gang.until(lambda: "r" in pod.state.aborted_runs, within=10)
        assert pod.state.step is Step.IDLE
