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
        return _plain("")

    @app.get("/startupz")
    async def startupz() -> Response:
        return _plain(readiness().not_started)

    @app.get("/readyz")
    async def readyz() -> Response:
        return _plain(readiness().not_ready)

    return app


def _plain(why_not: str) -> Response:
    return Response(f"{why_not or 'ok'}\n", status=503 if why_not else 200, content_type="text/plain")
