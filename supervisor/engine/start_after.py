"""[Engine] StartAfter: peers that have to answer before this engine is executed.

An engine whose worker is missing can come up healthy without it (research/real-engines, finding 8): starting too
early is worse than waiting. What an answer is, the probes know: a connection for `tcp://`, a status from 200 to 399
for `http://` and `https://`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from supervisor.service.checks import check_http, check_tcp
from supervisor.unit.model import HttpCheck, TcpCheck

log = logging.getLogger(__name__)

TRY_SEC = 0.1
"""Between tries: another pod's listening socket is no event here."""
ANSWER_SEC = 2.0
SAY_AGAIN_SEC = 60.0


async def wait_for_peers(addresses: Sequence[str]) -> None:
    """Until each `tcp://HOST:PORT` accepts a connection and each `http://…` answers 2xx or 3xx.

    The caller sets the limit; who is waited for is logged meanwhile.
    """
    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(_wait_for, address)


async def _wait_for(address: str) -> None:
    said_at = -SAY_AGAIN_SEC
    while (complaint := await _ask(address)) is not None:
        if trio.current_time() - said_at >= SAY_AGAIN_SEC:
            said_at = trio.current_time()
            log.info("the engine waits for %s (StartAfter): %s", address, complaint)
        await trio.sleep(TRY_SEC)


async def _ask(address: str) -> str | None:
    """What is wrong; None if it answers."""
    with trio.move_on_after(ANSWER_SEC):
        if address.startswith("tcp://"):
            return await check_tcp(TcpCheck(address.removeprefix("tcp://")))
        return await check_http(HttpCheck(address))
    return f"no answer within {ANSWER_SEC:g} s"
