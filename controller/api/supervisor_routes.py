"""What supervisors call (design 7): each route parses, asks the reception, and maps the answer to HTTP."""

from __future__ import annotations

import trio
from quart import Response
from quart_trio import QuartTrio

from controller.api.http import Said, answer, received, refusal
from controller.model.assembly import Joined, Rejected
from controller.operators import Operators
from controller.reception import Reception
from controller.registry import Registry
from controller.store.base import Store
from supervisor import wire
from supervisor.wire import ErrorCode


def add_supervisor_routes(
    app: QuartTrio, reception: Reception, operators: Operators, registry: Registry, store: Store
) -> None:
    async def registered(outcome: Joined | Rejected) -> Response:
        """Written down before it is answered: a registration that was acknowledged is not forgotten (F7)."""
        if outcome.instance is not None:
            await store.save_instance(outcome.instance)
        if isinstance(outcome, Rejected):
            status = 400 if outcome.code is ErrorCode.MALFORMED else 409
            return refusal(status, outcome.code, outcome.message, term=registry.terms.current)
        return answer(wire.RegisterAnswer(instance_id=outcome.instance.id, term=registry.terms.current))

    @app.post("/controller/register")
    async def register() -> Response:
        message = await received(wire.RegisterMsg)
        return await registered(reception.register(message, trio.current_time()))

    @app.post("/controller/reregister")
    async def reregister() -> Response:
        message = await received(wire.ReregisterMsg)
        return await registered(reception.reregister(message, trio.current_time()))

    @app.post("/controller/heartbeat")
    async def heartbeat() -> Response:
        message = await received(wire.HeartbeatMsg)
        if wrong := [id_ for id_ in message.status if not id_.isdecimal()]:
            raise wire.WireError(f"status: the endpoint id {wrong[0]!r} is not a whole number")
        return answer(reception.heartbeat(message, trio.current_time()))

    @app.post("/controller/report_software_fault")
    async def report_software_fault() -> Response:
        message = await received(wire.SoftwareFaultMsg)
        return answer(reception.report_software_fault(message, trio.current_time()))

    @app.post("/controller/report_hardware_fault")
    async def report_hardware_fault() -> Response:
        message = await received(wire.HardwareFaultMsg)
        return answer(reception.report_hardware_fault(message))

    @app.post("/controller/terminate_instance")
    async def terminate_instance() -> Response:
        message = await received(wire.TerminateInstanceMsg)
        operators.terminate(message.instance_id, message.reason, trio.current_time())
        return answer(Said(message=f"instance {message.instance_id} ends"))
