"""The probe port: plain HTTP for the kubelet, which has no token and no certificate (design 8).

livez is the supervisor's own loop, never the engine's: a loading engine must not cost the container.
"""

from __future__ import annotations

from collections.abc import Callable

from quart import Response
from quart_trio import QuartTrio

from supervisor.api.readiness import Readiness
from supervisor.shared.http_app import application


def probes_app(readiness: Callable[[], Readiness]) -> QuartTrio:
    app = application("probes", None, errors={})

    @app.get("/livez")
    async def livez() -> Response:
        return _plain(True, "ok")

    @app.get("/startupz")
    async def startupz() -> Response:
        state = readiness()
        return _plain(state.started, state.why_not)

    @app.get("/readyz")
    async def readyz() -> Response:
        state = readiness()
        return _plain(state.ready, state.why_not)

    return app


def _plain(good: bool, why_not: str) -> Response:
    return Response("ok\n" if good else f"{why_not}\n", status=200 if good else 503, content_type="text/plain")
