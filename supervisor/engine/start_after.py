"""[Engine] StartAfter: peers that have to listen before this engine is executed.

An engine whose worker is missing can come up healthy without it (research/real-engines, finding 8): starting too
early is worse than waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import trio

TRY_SEC = 0.1
"""Between tries: another pod's listening socket is no event here."""
CONNECT_SEC = 2.0


async def wait_for_peers(addresses: Sequence[str]) -> None:
    """Until each `tcp://HOST:PORT` or `http://…` accepts a connection; the caller sets the limit."""
    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(_wait_for, address)


async def _wait_for(address: str) -> None:
    while not await _listens(address):  # noqa: ASYNC110  # it happens in another pod
        await trio.sleep(TRY_SEC)


async def _listens(address: str) -> bool:
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 80
    with trio.move_on_after(CONNECT_SEC):
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError:
            return False
        await stream.aclose()
        return True
    return False
