"""`GET /metrics`, on the probe port and on the operations API: one route and nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from quart import Response, request
from quart_trio import QuartTrio

from supervisor.pod_metrics import Gauges, PodMetrics
from supervisor.process.threads import in_thread_or_here


def add_metrics_route(app: QuartTrio, metrics: PodMetrics, gauges: Callable[[], Gauges]) -> None:
    @app.get("/metrics")
    async def scraped() -> Response:
        module = await in_thread_or_here(partial(importlib.import_module, "supervisor.api.exposition"))
        text, content_type = module.exposition(metrics, gauges(), request.headers.get("accept"))
        return Response(text, content_type=content_type)
