"""What operators ask of a whole instance, beside its relaunch: that it is held, released, rolled out, ended."""

from __future__ import annotations

import trio

from controller.api.routes import Routes
from controller.api.views import instance_view
from controller.clock import wall_clock
from controller.journal import Journal
from controller.model.instance import Instance
from controller.operators import Operators
from controller.registry import Registry
from controller.rollouts import Rollouts
from supervisor import wire
from supervisor.shared.http_app import caller
from supervisor.shared.tokens import Role

NO_INSTANCE = {404: "no living instance has this id"}


def add_operator_routes(
    routes: Routes, registry: Registry, operators: Operators, rollouts: Rollouts, journal: Journal
) -> None:
    async def changed(instance: Instance) -> wire.InstanceView:
        """Written down before it is answered."""
        await journal.keep(instance.key)
        now = trio.current_time()
        return instance_view(registry.entry(instance.id), now, wall_clock(now))

    @routes.post(
        "/v1/instances/<int:instance_id>/hold",
        message=wire.Reason,
        status=202,
        answer=wire.InstanceView,
        errors=NO_INSTANCE | {409: "a supervisor of an older version cannot be held"},
    )
    async def hold(message: wire.Reason, instance_id: int) -> wire.InstanceView:
        """Stop the engines of an instance, and keep them stopped until it is released."""
        return await changed(operators.hold(instance_id, message.reason, trio.current_time()))

    @routes.post(
        "/v1/instances/<int:instance_id>/release",
        message=wire.Reason,
        status=202,
        answer=wire.InstanceView,
        errors=NO_INSTANCE | {409: "its spent budget holds it: reset-failed"},
    )
    async def release(message: wire.Reason, instance_id: int) -> wire.InstanceView:
        """Let an instance that is held be started again."""
        return await changed(operators.release(instance_id, message.reason, trio.current_time()))

    @routes.post(
        "/v1/instances/<int:instance_id>/rollout",
        message=wire.Reason,
        status=202,
        answer=wire.RunView,
        errors=NO_INSTANCE
        | {
            409: "a run is open, members are missing, an operator holds it, files are wrong, differ, or say nothing new"
        },
        location=lambda run: f"/v1/relaunches/{run.id}",
    )
    async def rollout(message: wire.Reason, instance_id: int) -> wire.RunView:
        """Start the engines of an instance with what the unit files in all its pods say now."""
        recovery = await rollouts.begin(instance_id, message.reason)
        await journal.keep(recovery.instance)
        await journal.has(recovery, lambda row: True)
        now = trio.current_time()
        return recovery.view(registry.entry(instance_id).instance, now, wall_clock(now))

    @routes.post("/v1/reset-failed", answer=wire.Said)
    async def reset_all_failed() -> wire.Said:
        """Give every instance that is held for failures a whole budget again, and let it be started.

        Every one of the caller's namespaces.
        """
        rights = caller()
        whole = operators.reset_all_failed(lambda namespace: rights.may(Role.OPERATE, namespace), trio.current_time())
        for each in whole:
            await journal.keep_budget(each)
        return wire.Said(message=f"{len(whole)} instances were reset")

    @routes.post(
        "/v1/instances/<int:instance_id>/terminate",
        message=wire.Reason,
        status=202,
        answer=wire.Said,
        errors=NO_INSTANCE,
    )
    async def terminate(message: wire.Reason, instance_id: int) -> wire.Said:
        """End an instance: its run is aborted, its supervisors stop."""
        await journal.keep(operators.terminate(instance_id, message.reason, trio.current_time()))
        return wire.Said(message=f"instance {instance_id} ends")
