"""`GET /metrics`: on the API for who may look, on the probe port for everybody."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio
from quart import Response, request

from controller.api.exposition import FleetCollector, Snapshot, Sources, snapshot
from controller.api.routes import Routes
from controller.api.tenancy import may_see
from supervisor.shared.exposition import exposition
from supervisor.shared.http_app import caller
from supervisor.shared.tokens import Role

MEDIA = ("text/plain", "application/openmetrics-text")


def add_metrics_route(routes: Routes, measure: Callable[[], Snapshot | None], role: Role | None) -> None:
    """`measure` copies what is told, None on a standby."""

    @routes.text("/metrics", media=MEDIA, role=role)
    async def metrics() -> Response:
        """What is measured and counted, for Prometheus."""
        work = partial(exposition, FleetCollector(measure()), request.headers.get("Accept"))
        text, content_type = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        return Response(text, content_type=content_type)


def of_caller(sources: Sources) -> Callable[[], Snapshot]:
    """What the caller may see."""

    def measure() -> Snapshot:
        rights = caller()
        return snapshot(sources, lambda namespace: may_see(rights, namespace), trio.current_time())

    return measure


def of_everything(sources: Callable[[], Sources | None]) -> Callable[[], Snapshot | None]:
    """`sources` are those of the controller that leads now, if one does."""

    def measure() -> Snapshot | None:
        found = sources()
        return None if found is None else snapshot(found, lambda _: True, trio.current_time())

    return measure
