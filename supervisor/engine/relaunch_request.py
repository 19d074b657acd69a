"""One rank of a gang is never restarted alone: what would restart it here asks the controller for the whole gang.

Asked for by the relations of units (BindsTo, PartOf, OnDependencyRestart), in the way of `podvisor relaunch`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from supervisor.service.service import Service
from supervisor.shared.error_window import ErrorWindow

log = logging.getLogger(__name__)

ASK_AGAIN_SEC = 5.0
GIVE_UP_SEC = 600.0
"""A controller that cannot be reached for so long has been replaced by something else: the operator, or phase 2."""

Ask = Callable[[str], Awaitable[object]]
"""The argument is the reason. Raises NotTaken."""


class NotTaken(Exception):
    """Nothing was done; the message says why. It may be asked again."""


async def nobody_to_ask(reason: str) -> object:
    """Before the link to the controller is there."""
    raise NotTaken("the controller cannot be spoken to yet")


class RelaunchRequest:
    def __init__(self, service: Callable[[], Service]) -> None:
        self.ask: Ask = nobody_to_ask
        """Set once the controller can be spoken to."""
        self._service = service
        self._under_way = False

    async def make(self, reason: str) -> None:
        """Until the controller has taken it, or the engine was stopped or relaunched meanwhile, or it is given up.

        One at a time: whoever asks again meanwhile wants the same. Cancelled: the controller may have heard it.
        """
        if self._under_way:
            return
        self._under_way = True
        try:
            with trio.move_on_after(GIVE_UP_SEC) as patience:
                await self._ask_until_taken(reason)
            if patience.cancelled_caught:
                log.error("gave up asking for a relaunch of the gang (%s): podvisor relaunch asks again", reason)
        finally:
            self._under_way = False

    async def _ask_until_taken(self, reason: str) -> None:
        service, errors = self._service(), ErrorWindow()
        invocation = service.state.invocation
        while service.state.invocation == invocation and service.state.pid is not None:
            try:
                await self.ask(reason)
            except NotTaken as refusal:
                held_back = errors.admit("relaunch", trio.current_time())
                if held_back is not None:
                    message = "cannot relaunch the gang yet (%s): %s; asked again every %g s"
                    log.warning(message, reason, refusal, ASK_AGAIN_SEC, extra={"held_back": held_back})
            else:
                log.warning("the gang is relaunched: %s", reason, extra={"unit": service.unit.name})
                return
            with trio.move_on_after(ASK_AGAIN_SEC):
                await service.wait_until(lambda state: state.invocation != invocation or state.pid is None)
