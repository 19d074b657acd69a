"""The node-manager API: the controller's side of the supervisor (design 3). HTTP to one call and back (seed S10)."""

from __future__ import annotations

from typing import Protocol

from quart import Response, request
from quart_trio import QuartTrio

from supervisor import wire
from supervisor.engine.model.commands import Command
from supervisor.engine.operator import CommandRefused
from supervisor.shared.http_app import Refusal, answer, application, received
from supervisor.shared.tokens import Role, TokenFile

_STATUS = {
    wire.ErrorCode.NOT_STARTED: 400,
    wire.ErrorCode.WRONG_INSTANCE: 400,
    wire.ErrorCode.MALFORMED: 400,
    wire.ErrorCode.DOES_NOT_FIT: 422,
    wire.ErrorCode.UNSUPPORTED: 422,
    wire.ErrorCode.FAILED: 500,
}
"""Everything else is a conflict with what is going on here: 409."""


class NodeManager(Protocol):
    async def command(self, command: Command) -> wire.CommandAnswer: ...

    def pause(self, reason: str) -> wire.CommandAnswer: ...

    def resume(self) -> wire.CommandAnswer: ...

    def status(self) -> wire.NodeManagerStatus: ...

    def heard(self, run_id: str | None) -> None: ...


def node_manager_app(node_manager: NodeManager, token: TokenFile | None, namespace: str = "default") -> QuartTrio:
    """`namespace` is this pod's: tokens that are bound to another are refused."""
    app = application("node-manager", token, errors={}, needs=lambda method, rule: Role.NODE, namespace=namespace)

    async def commanded(command: Command) -> Response:
        try:
            return answer(await node_manager.command(command))
        except CommandRefused as refused:
            raise Refusal(_STATUS.get(refused.code, 409), _error(refused, node_manager.status())) from refused

    @app.post("/node-manager/start")
    async def start() -> Response:
        return await commanded(await received(wire.StartCmdMsg))

    @app.post("/node-manager/engine-restart")
    async def engine_restart() -> Response:
        return await commanded(await received(wire.EngineRestartMsg))

    @app.post("/node-manager/stop")
    async def stop() -> Response:
        return await commanded(await received(wire.StopMsg))

    @app.post("/node-manager/pause")
    async def pause() -> Response:
        message = await received(wire.Reason)
        return answer(node_manager.pause(message.reason or "asked for"))

    @app.post("/node-manager/resume")
    async def resume() -> Response:
        return answer(node_manager.resume())

    @app.get("/node-manager/status")
    async def status() -> Response:
        node_manager.heard(request.args.get("run_id"))
        return answer(node_manager.status())

    return app


def _error(refused: CommandRefused, status: wire.NodeManagerStatus) -> wire.ErrorBody:
    return wire.ErrorBody(
        error=refused.code,
        message=refused.message,
        step=status.operation.step if status.operation is not None else None,
        term=status.term,
        epoch=status.epoch,
        boot_id=status.boot_id,
        category=refused.category,
    )
