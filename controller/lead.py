"""From one leadership to the next: campaign, lead until it is lost, drop everything, campaign again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from controller.door import Controller, Door
from controller.election import Election, Leadership
from controller.store.base import StoreError

log = logging.getLogger(__name__)

PAUSE_SEC = 1.0
"""After a store that took or gave nothing: others may be better off, and each try takes a term."""

Compose = Callable[[Leadership], Awaitable[Controller]]
"""A fresh controller from what the leadership's store holds."""


async def lead(election: Election, compose: Compose, door: Door) -> None:
    """Until cancelled: whatever is under recovery then cleans up after itself, and the leadership is given up."""
    while True:
        pause_sec = 0.0
        async with election.campaign() as leadership:
            try:
                with leadership.scope:
                    controller = await compose(leadership)
                    log.info("this controller leads", extra={"term": controller.registry.terms.current})
                    with door.opened(controller):
                        await controller.center.run()
            except* StoreError as failed:
                leadership.lose(str(_first(failed)))
                pause_sec = PAUSE_SEC
        log.warning(
            "leadership lost: %s; this controller commands nobody and stands for election again", leadership.reason
        )
        await trio.sleep(pause_sec)


def _first(failed: BaseExceptionGroup[StoreError]) -> BaseException:
    first: BaseException = failed
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
