"""What people and tools call: instances, relaunches, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio
from quart import Response, request

from controller.api.route import NUMBER, Parameter
from controller.api.routes import Routes
from controller.api.tenancy import may_see, visible
from controller.api.views import instance_view
from controller.clock import wall_clock
from controller.events import ControllerEvent, EventLog
from controller.journal import Journal
from controller.model.relaunch.promise import is_given_up
from controller.operators import NoSuchRun, Operators
from controller.registry import Registry
from supervisor import wire
from supervisor.shared.event_stream import NDJSON, POSITION, SSE, event_stream
from supervisor.shared.http_app import caller
from supervisor.shared.tokens import Role

NO_INSTANCE = {404: "no living instance has this id"}
NO_RUN = {404: "no run that is open or remembered has this id"}
LAST_SEEN = "the id of the last event that was seen: a number, in server-sent events with the life before it"
EVENTS_QUERY = (
    Parameter("since", POSITION, LAST_SEEN),
    Parameter("follow", "[01]", "0 or 1: whether the answer goes on (1, the default)"),
    Parameter("namespace", r"[!-~]{1,253}", "the namespace of which events are wanted"),
    Parameter("instance", NUMBER, "the id of the instance of which events are wanted"),
    Parameter("kind", r"[a-z]{1,20}", "the kind of events that are wanted, such as run"),
)
EVENTS_HEADERS = (Parameter("Last-Event-ID", POSITION, LAST_SEEN),)


def add_tool_routes(
    routes: Routes, registry: Registry, operators: Operators, events: EventLog, journal: Journal
) -> None:
    @routes.get("/v1/instances", answer=wire.InstancesView)
    async def instances() -> wire.InstancesView:
        """All living instances."""
        now, to_wall = _clocks()
        seen = visible(registry.entries(), lambda entry: entry.instance.key.namespace)
        views = tuple(instance_view(entry, now, to_wall) for entry in seen)
        return wire.InstancesView(instances=views, last_event=events.ring.position(events.last_id))

    @routes.get("/v1/instances/<int:instance_id>", answer=wire.InstanceView, errors=NO_INSTANCE)
    async def instance(instance_id: int) -> wire.InstanceView:
        """One instance."""
        return instance_view(registry.entry(instance_id), *_clocks())

    @routes.post(
        "/v1/instances/<int:instance_id>/relaunch",
        message=wire.Reason,
        status=202,
        answer=wire.RunView,
        errors=NO_INSTANCE | {409: "a run is open, members are missing, or the instance is held"},
        location=_where,
    )
    async def relaunch(message: wire.Reason, instance_id: int) -> wire.RunView:
        """Relaunch the engines of an instance in place."""
        recovery = operators.relaunch(instance_id, message.reason, trio.current_time())
        await journal.has(recovery, lambda row: True)
        return await one_relaunch(recovery.run_id)

    @routes.post("/v1/instances/<int:instance_id>/reset-failed", answer=wire.InstanceView, errors=NO_INSTANCE)
    async def reset_failed(instance_id: int) -> wire.InstanceView:
        """Give an instance a whole budget again, and let it be started."""
        await journal.keep_budget(operators.reset_failed(instance_id, trio.current_time()))
        return instance_view(registry.entry(instance_id), *_clocks())

    @routes.get("/v1/relaunches", answer=wire.RelaunchesView)
    async def relaunches() -> wire.RelaunchesView:
        """The runs that are open, and the last that are closed; newest first."""
        return wire.RelaunchesView(relaunches=tuple(visible(_runs(registry), lambda run: run.namespace)))

    @routes.get("/v1/relaunches/<run_id>", answer=wire.RunView, errors=NO_RUN)
    async def one_relaunch(run_id: str) -> wire.RunView:
        """One run."""
        for view in _runs(registry):
            if view.id == run_id:
                return view
        raise NoSuchRun(f"no run has the id {run_id}")

    @routes.post(
        "/v1/relaunches/<run_id>/abort",
        message=wire.Reason,
        status=202,
        answer=wire.RunView,
        errors=NO_RUN | {409: "the run is over"},
        location=_where,
    )
    async def abort(message: wire.Reason, run_id: str) -> wire.RunView:
        """End a run by its own clean-up."""
        await journal.has(operators.abort(run_id, message.reason), is_given_up)
        return await one_relaunch(run_id)

    @routes.text(
        "/v1/events",
        media=(NDJSON, SSE),
        lines=ControllerEvent,
        role=Role.READ,
        query=EVENTS_QUERY,
        headers=EVENTS_HEADERS,
    )
    async def follow() -> Response:
        """What happened and happens: one JSON object a line, or server-sent events for who accepts those."""
        rights, asked = caller(), request.args

        def wanted(event: ControllerEvent) -> bool:
            return event.kind == "gap" or (may_see(rights, event.namespace) and _asked_for(event, asked))

        return event_stream(events.ring, wanted, routes.clients)


def _asked_for(event: ControllerEvent, asked: Mapping[str, str]) -> bool:
    """What is not asked about may be anything."""
    told = {"namespace": event.namespace, "instance": str(event.instance_id), "kind": event.kind}
    return all(asked.get(name, value) == value for name, value in told.items())


def _where(run: wire.RunView) -> str:
    return f"/v1/relaunches/{run.id}"


def _clocks() -> tuple[float, Callable[[float], str]]:
    now = trio.current_time()
    return now, wall_clock(now)


def _runs(registry: Registry) -> list[wire.RunView]:
    """Open ones first, each part newest first."""
    now, to_wall = _clocks()
    opened = [
        entry.recovery.view(entry.instance, now, to_wall)
        for entry in sorted(
            registry.entries(),
            key=lambda entry: entry.recovery.since if entry.recovery else 0.0,
            reverse=True,
        )
        if entry.recovery
    ]
    return [*opened, *registry.closed_runs]
