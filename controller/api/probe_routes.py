"""What the kubelet asks of the controller; without a token, because the kubelet has none."""

from __future__ import annotations

from collections.abc import Callable

from quart import Response
from quart_trio import QuartTrio

from controller.api.exposition import Sources
from controller.api.metrics_routes import add_metrics_route, of_everything
from controller.api.routes import Routes

PLAIN = ("text/plain",)
UPSTREAM_LIVE = "/liveness"
UPSTREAM_READY = ("/startup", "/readiness")


def add_probe_routes(routes: Routes, is_ready: Callable[[], bool], *, live: str, ready: tuple[str, ...]) -> None:
    """`live` answers as long as this loop runs; `ready` while commands can be given."""

    @routes.text(live, media=PLAIN, role=None)
    async def alive() -> Response:
        """Whether this process runs."""
        return Response("ok\n", content_type="text/plain")

    for path in ready:

        @routes.text(path, media=PLAIN, role=None, errors={503: "not now"})
        async def readiness() -> Response:
            """Whether commands can be given."""
            if is_ready():
                return Response("ok\n", content_type="text/plain")
            return Response("not ready\n", 503, content_type="text/plain")


def probe_app(is_ready: Callable[[], bool], sources: Callable[[], Sources | None] = lambda: None) -> QuartTrio:
    """The plain application of the probe port; `sources` are those of the controller that leads here, if one does."""
    routes = Routes("controller-probes", None)
    add_probe_routes(routes, is_ready, live="/livez", ready=("/readyz",))
    add_metrics_route(routes, of_everything(sources), None)
    return routes.app
