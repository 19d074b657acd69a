"""Bytes to a server and what comes back, for requests that no HTTP client would send."""

from __future__ import annotations

import httpx
import trio

from supervisor.shared.serving import KEEP_ALIVE_SEC
from tests.support.real_processes import TIMEOUT_SEC


async def exchange(url: str, request: bytes) -> bytes:
    """All that is answered until the connection is closed; nothing if it is broken off."""
    address = httpx.URL(url)
    with trio.fail_after(KEEP_ALIVE_SEC + TIMEOUT_SEC):
        async with await trio.open_tcp_stream(address.host, address.port or 0) as stream:
            received = b""
            try:
                await stream.send_all(request)
                async for data in stream:
                    received += data
            except trio.BrokenResourceError:
                pass
            return received
