"""The client side of an engine's own HTTP API, where a strategy needs it: vLLM's elastic expert parallelism."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec

Transport = Callable[[], httpx.AsyncBaseTransport]


class ScaleRequest(msgspec.Struct, frozen=True):
    """`POST /scale_elastic_ep`."""

    new_data_parallel_size: int
    drain_timeout: int
    """Seconds, a whole number."""


class Engines:
    def __init__(self, transport: Transport = httpx.AsyncHTTPTransport) -> None:
        self._transport = transport

    async def scale(self, address: str, request: ScaleRequest, timeout_sec: float) -> str | None:
        """Ask the engine at `address` (`10.0.0.2:8000`) for another number of ranks.

        None once it has them, else why not. Cancelled or timed out, the engine may still scale.
        """
        body = msgspec.json.encode(request)
        headers = {"Content-Type": "application/json"}
        try:
            async with httpx.AsyncClient(transport=self._transport(), timeout=timeout_sec) as client:
                answer = await client.post(f"http://{address}/scale_elastic_ep", content=body, headers=headers)
        except httpx.RequestError as error:
            return f"the engine at {address} does not answer: {error!r}"
        if answer.status_code == 404:
            return f"the engine at {address} has no /scale_elastic_ep: is it a vLLM with elastic expert parallelism?"
        if answer.status_code != 200:
            return f"the engine at {address} answers {answer.status_code}: {answer.text[:200]}"
        return None
