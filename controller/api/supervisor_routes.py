"""What supervisors call (design 7): each route parses, asks the reception, and maps the answer to HTTP."""

from __future__ import annotations

import trio

from controller.api.routes import Routes
from controller.journal import Journal
from controller.model.assembly import Joined, Rejected
from controller.operators import Operators
from controller.reception import Reception
from controller.registry import Registry
from supervisor import wire
from supervisor.shared.http_app import Refusal, caller
from supervisor.shared.tokens import Role
from supervisor.wire import ErrorCode

UNKNOWN = "the sender is not known, or not in this boot: register again (reregister if engines of an epoch run)"
NOT_JOINED = "it disagrees with the other members, its place is taken, or its epoch is over; both values are named"


def add_supervisor_routes(
    routes: Routes, reception: Reception, operators: Operators, registry: Registry, journal: Journal
) -> None:
    async def registered(outcome: Joined | Rejected) -> wire.RegisterAnswer:
        """Written down before it is answered: a registration that was acknowledged is not forgotten (F7)."""
        if outcome.instance is not None:
            await journal.keep(outcome.instance.key)
        term = registry.terms.current
        if isinstance(outcome, Rejected):
            status = 400 if outcome.code is ErrorCode.MALFORMED else 409
            raise Refusal(status, wire.ErrorBody(error=outcome.code, message=outcome.message, term=term))
        return wire.RegisterAnswer(instance_id=outcome.instance.id, term=term)

    @routes.post(
        "/controller/register",
        role=Role.NODE,
        message=wire.RegisterMsg,
        answer=wire.RegisterAnswer,
        errors={409: NOT_JOINED},
    )
    async def register(message: wire.RegisterMsg) -> wire.RegisterAnswer:
        """Say that a supervisor has booted."""
        return await registered(reception.register(message, trio.current_time()))

    @routes.post(
        "/controller/reregister",
        role=Role.NODE,
        message=wire.ReregisterMsg,
        answer=wire.RegisterAnswer,
        errors={409: NOT_JOINED},
    )
    async def reregister(message: wire.ReregisterMsg) -> wire.RegisterAnswer:
        """Say that a supervisor runs engines and is not known."""
        return await registered(reception.reregister(message, trio.current_time()))

    @routes.post(
        "/controller/heartbeat",
        role=Role.NODE,
        message=wire.HeartbeatMsg,
        answer=wire.HeartbeatAnswer,
        vital=True,
        errors={503: UNKNOWN},
    )
    async def heartbeat(message: wire.HeartbeatMsg) -> wire.HeartbeatAnswer:
        """Say how the endpoints of a supervisor are, every few seconds."""
        return reception.heartbeat(message, trio.current_time())

    @routes.post(
        "/controller/report_software_fault",
        role=Role.NODE,
        message=wire.SoftwareFaultMsg,
        answer=wire.FaultAnswer,
        vital=True,
        errors={503: UNKNOWN},
    )
    async def report_software_fault(message: wire.SoftwareFaultMsg) -> wire.FaultAnswer:
        """Say that an engine is dead or sick; the answer names what will be tried."""
        return reception.report_software_fault(message, trio.current_time())

    @routes.post(
        "/controller/report_hardware_fault",
        role=Role.NODE,
        message=wire.HardwareFaultMsg,
        answer=wire.FaultAnswer,
        vital=True,
        errors={503: "no member is there"},
    )
    async def report_hardware_fault(message: wire.HardwareFaultMsg) -> wire.FaultAnswer:
        """Say that a device is faulty; the answer names what will be tried."""
        asking = caller()
        said, changed = reception.report_hardware_fault(
            message, lambda namespace: asking.may(Role.NODE, namespace), trio.current_time()
        )
        for instance in changed:
            await journal.keep(instance.key)
        return said

    @routes.post(
        "/controller/terminate_instance",
        role=Role.NODE,
        message=wire.TerminateInstanceMsg,
        answer=wire.Said,
        errors={404: "no living instance has this id"},
    )
    async def terminate_instance(message: wire.TerminateInstanceMsg) -> wire.Said:
        """End an instance: its run is aborted, its supervisors stop."""
        await journal.keep(operators.terminate(message.instance_id, message.reason, trio.current_time()))
        return wire.Said(message=f"instance {message.instance_id} ends")
