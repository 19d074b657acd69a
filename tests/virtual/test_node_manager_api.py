"""The node-manager API: HTTP to one call and back (seed S10), in front of the real operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from quart.typing import TestClientProtocol as QuartClient

from supervisor import wire
from supervisor.api.node_manager import node_manager_app
from supervisor.engine.model import progress
from supervisor.engine.model.commands import Command
from supervisor.engine.model.condition import Restoring
from supervisor.shared.tokens import TokenFile
from supervisor.wire import ErrorCode, Step
from tests.virtual.test_engine_operator import World, placement, world

pytestmark = [pytest.mark.seed("S10"), pytest.mark.usefixtures("autojump_clock")]

ROUTE = "/node-manager/engine-restart"


class NodeManager:
    """The operator as the routes see it; what it says of the engine does not matter here."""

    def __init__(self, here: World) -> None:
        self._here = here
        self.runs_heard: list[str | None] = []

    async def command(self, command: Command) -> wire.CommandAnswer:
        return await self._here.operator.command(command)

    def pause(self, reason: str) -> wire.CommandAnswer:
        self._here.operator.feed(progress.Paused(reason))
        return self._answer()

    def resume(self) -> wire.CommandAnswer:
        self._here.operator.feed(progress.Resumed())
        return self._answer()

    def _answer(self) -> wire.CommandAnswer:
        state = self._here.operator.state
        return wire.CommandAnswer(step=state.step, epoch=state.epoch, term=state.term, boot_id=state.boot_id)

    def status(self) -> wire.NodeManagerStatus:
        state = self._here.operator.state
        operation = wire.OperationView(step=state.step, since="", run_id=state.run_id, epoch=state.epoch)
        return wire.NodeManagerStatus(
            status=False, epoch=state.epoch, term=state.term, boot_id=state.boot_id, operation=operation
        )

    def heard(self, run_id: str | None) -> None:
        self.runs_heard.append(run_id)


def client_of(here: World, token: TokenFile | None = None) -> tuple[QuartClient, NodeManager]:
    node_manager = NodeManager(here)
    client = node_manager_app(node_manager, token).test_client()
    return client, node_manager


async def post(client: QuartClient, body: dict[str, Any] | str, route: str = ROUTE) -> tuple[int, dict[str, Any]]:
    sent = body if isinstance(body, str) else json.dumps(body)
    answer = await client.post(route, data=sent)
    assert answer.content_type == "application/json"
    return answer.status_code, json.loads(await answer.get_data())


def prepare(epoch: int = 1, run_id: str = "run-1", **more: Any) -> dict[str, Any]:
    start = json.loads(wire.encode(placement(epoch)))
    return {"action": "prepare", "epoch": epoch, "term": 1, "run_id": run_id, "boot_id": "boot", "start": start} | more


async def test_both_phases_are_answered_with_the_step_reached() -> None:
    async with world() as here:
        client, _ = client_of(here)
        assert await post(client, prepare()) == (
            200,
            {"step": "prepared", "epoch": 1, "term": 1, "boot_id": "boot", "run_id": "run-1"},
        )
        status, answer = await post(client, prepare() | {"action": "start"})
        assert (status, answer["step"]) == (200, "loading")


async def test_an_abort_says_whether_the_supervisor_will_end() -> None:
    async with world() as here:
        client, _ = client_of(here)
        await post(client, prepare())
        status, answer = await post(client, {"action": "abort", "run_id": "run-1", "term": 1})
        assert (status, answer["step"], answer["will_exit"]) == (200, "aborted", True)


async def test_the_reference_system_s_restart_before_any_start_is_400() -> None:
    async with world() as here:
        client, _ = client_of(here)
        status, answer = await post(client, {"action": "restart"})
        assert (status, answer["error"]) == (400, ErrorCode.NOT_STARTED)
        assert here.operator.state.step is Step.IDLE


async def test_a_second_restart_without_an_epoch_is_409_while_the_first_is_under_way() -> None:
    async with world() as here:
        client, _ = client_of(here)
        await post(client, prepare())
        await post(client, prepare() | {"action": "start"})
        status, answer = await post(client, {"action": "restart", "term": 1})
        assert (status, answer["error"], answer["step"]) == (409, ErrorCode.BUSY, "loading")


async def test_a_relaunch_is_409_restoring_only_while_a_snapshot_really_is_restored() -> None:
    async with world() as here:
        client, _ = client_of(here)
        await post(client, prepare())
        await post(client, prepare() | {"action": "start"})
        here.operator.feed(Restoring(0, under_way=True))
        status, answer = await post(client, prepare(2, "run-2"))
        assert (status, answer["error"], answer["step"]) == (409, ErrorCode.RESTORING, "loading")
        here.operator.feed(Restoring(0, under_way=False))
        assert (await post(client, prepare(2, "run-2")))[0] == 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"term": 0}, ErrorCode.STALE_TERM),
        ({"boot_id": "another"}, ErrorCode.WRONG_BOOT),
        ({"run_id": "run-0"}, ErrorCode.STALE_EPOCH),
    ],
)
async def test_what_comes_too_late_is_409_and_has_no_effect(change: dict[str, Any], code: ErrorCode) -> None:
    async with world() as here:
        client, _ = client_of(here)
        await post(client, prepare())
        before = here.operator.state
        status, answer = await post(client, prepare() | change)
        assert (status, answer["error"]) == (409, code)
        assert (answer["epoch"], answer["term"], answer["boot_id"]) == (1, 1, "boot")
        assert here.operator.state == before


async def test_a_relaunch_that_fails_is_500_with_the_reason_and_unfrozen() -> None:
    async with world() as here:
        here.effects.stop_fails = "pid 12 (vllm: in the kernel)"
        client, _ = client_of(here)
        status, answer = await post(client, prepare())
        assert (status, answer["error"], answer["message"]) == (500, ErrorCode.FAILED, "pid 12 (vllm: in the kernel)")
        assert here.operator.state.freeze is None


async def test_a_placement_for_another_pod_is_422() -> None:
    async with world() as here:
        client, _ = client_of(here)
        body = prepare()
        body["start"]["job_name"] = "somebody else"
        status, answer = await post(client, body)
        assert (status, answer["error"]) == (422, ErrorCode.DOES_NOT_FIT)
        assert here.operator.state.step is Step.IDLE


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`"),
        ("", "missing fields: action"),
        ({"action": "dance"}, "$.action"),
        ({"action": "prepare", "epoch": "one"}, "$.epoch"),
        ({"action": "prepare", "start": {"job_name": "job"}}, "$.start"),
    ],
)
async def test_a_malformed_body_is_400_naming_the_field(body: dict[str, Any] | str, complaint: str) -> None:
    async with world() as here:
        client, _ = client_of(here)
        status, answer = await post(client, body)
        assert (status, answer["error"]) == (400, ErrorCode.MALFORMED)
        assert complaint in answer["message"]
        assert here.operator.state.step is Step.IDLE


async def test_a_body_that_is_too_large_is_refused_and_an_unknown_route_says_so() -> None:
    async with world() as here:
        client, _ = client_of(here)
        status, _ = await post(client, " " * (2 << 20))
        assert status == 413
        status, answer = await post(client, {}, route="/node-manager/dance")
        assert (status, answer["error"]) == (404, ErrorCode.UNKNOWN)


async def test_asking_for_the_status_is_a_sign_of_life_of_the_run_it_names() -> None:
    async with world() as here:
        client, node_manager = client_of(here)
        answer = await client.get("/node-manager/status?run_id=run-1")
        assert answer.status_code == 200
        assert json.loads(await answer.get_data())["status"] is False
        await client.get("/node-manager/status")
        assert node_manager.runs_heard == ["run-1", None]


async def test_without_the_token_nothing_is_told_and_nothing_happens(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    async with world() as here:
        client, _ = client_of(here, TokenFile(path, trio.current_time()))
        assert (await post(client, prepare()))[0] == 401
        wrong = await client.post(ROUTE, data=json.dumps(prepare()), headers={"Authorization": "Bearer guess"})
        assert wrong.status_code == 403
        assert here.operator.state.step is Step.IDLE
        right = await client.post(ROUTE, data=json.dumps(prepare()), headers={"Authorization": "Bearer secret"})
        assert right.status_code == 200


async def test_pause_and_resume_need_no_field() -> None:
    async with world() as here:
        client, _ = client_of(here)
        assert (await post(client, {}, route="/node-manager/pause"))[0] == 200
        assert here.operator.state.paused == "asked for"
        assert (await post(client, {}, route="/node-manager/resume"))[0] == 200
        assert here.operator.state.paused is None


@pytest.mark.seed("S23")
async def test_stop_is_answered_before_the_supervisor_ends() -> None:
    async with world() as here:
        client, _ = client_of(here)
        status, answer = await post(client, {"boot_id": "boot", "reason": "phase 2"}, route="/node-manager/stop")
        assert (status, answer["will_exit"]) == (200, True)
        status, answer = await post(client, prepare())
        assert (status, answer["error"]) == (409, ErrorCode.LEAVING)
