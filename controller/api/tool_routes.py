"""What people and tools call: instances, relaunches, events."""

from __future__ import annotations

from collections.abc import Callable

import trio
from quart import Response
from quart_trio import QuartTrio

from controller.api.http import answer, received
from controller.api.views import instance_view, open_run_view
from controller.clock import wall_clock
from controller.events import EventLog
from controller.operators import NoSuchRun, Operators
from controller.registry import Registry
from controller.store.base import Store
from supervisor import wire
from supervisor.shared.event_stream import event_stream


def add_tool_routes(app: QuartTrio, registry: Registry, operators: Operators, events: EventLog, store: Store) -> None:
    @app.get("/v1/instances")
    async def instances() -> Response:
        now, to_wall = _clocks()
        views = tuple(instance_view(entry, now, to_wall) for entry in registry.entries())
        return answer(wire.InstancesView(instances=views))

    @app.get("/v1/instances/<int:instance_id>")
    async def instance(instance_id: int) -> Response:
        return answer(instance_view(registry.entry(instance_id), *_clocks()))

    @app.post("/v1/instances/<int:instance_id>/relaunch")
    async def relaunch(instance_id: int) -> Response:
        message = await received(wire.Reason)
        now, to_wall = _clocks()
        recovery = operators.relaunch(instance_id, message.reason, now)
        response = answer(open_run_view(recovery, instance_id, now, to_wall), 202)
        response.headers["Location"] = f"/v1/relaunches/{recovery.run_id}"
        return response

    @app.post("/v1/instances/<int:instance_id>/reset-failed")
    async def reset_failed(instance_id: int) -> Response:
        await store.save_budget(operators.reset_failed(instance_id, trio.current_time()))
        return answer(instance_view(registry.entry(instance_id), *_clocks()))

    @app.get("/v1/relaunches")
    async def relaunches() -> Response:
        return answer(wire.RelaunchesView(relaunches=tuple(_runs(registry))))

    @app.get("/v1/relaunches/<run_id>")
    async def one_relaunch(run_id: str) -> Response:
        for view in _runs(registry):
            if view.id == run_id:
                return answer(view)
        raise NoSuchRun(f"no run has the id {run_id}")

    @app.post("/v1/relaunches/<run_id>/abort")
    async def abort(run_id: str) -> Response:
        message = await received(wire.Reason)
        operators.abort(run_id, message.reason)
        response = await one_relaunch(run_id)
        response.status_code = 202
        return response

    @app.get("/v1/events")
    async def follow() -> Response:
        return event_stream(events.ring)


def _clocks() -> tuple[float, Callable[[float], str]]:
    now = trio.current_time()
    return now, wall_clock(now)


def _runs(registry: Registry) -> list[wire.RunView]:
    """Open ones first, each part newest first."""
    now, to_wall = _clocks()
    opened = [
        open_run_view(entry.recovery, entry.instance.id, now, to_wall)
        for entry in sorted(
            registry.entries(),
            key=lambda entry: entry.recovery.since if entry.recovery else 0.0,
            reverse=True,
        )
        if entry.recovery
    ]
    return [*opened, *registry.closed_runs]
