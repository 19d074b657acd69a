"""What the kubelet asks of the controller; without a token, because the kubelet has none."""

from __future__ import annotations

from collections.abc import Callable

from quart import Response
from quart_trio import QuartTrio

UPSTREAM_PROBES = ("/startup", "/liveness", "/readiness")


def add_probe_routes(app: QuartTrio, is_ready: Callable[[], bool], *, live: str, ready: tuple[str, ...]) -> None:
    """`live` answers as long as this loop runs; `ready` while commands can be given."""

    async def alive() -> Response:
        return Response("ok\n", content_type="text/plain")

    async def readiness() -> Response:
        if is_ready():
            return Response("ok\n", content_type="text/plain")
        return Response("not ready\n", 503, content_type="text/plain")

    app.add_url_rule(live, live, alive)
    for path in ready:
        app.add_url_rule(path, path, readiness)


def probe_app(is_ready: Callable[[], bool]) -> QuartTrio:
    """The plain application of the probe port."""
    app = QuartTrio("controller-probes")
    add_probe_routes(app, is_ready, live="/livez", ready=("/readyz",))
    return app
