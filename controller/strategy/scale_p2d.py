"""Prefill instances are given up, so that a decode instance with a lost device finds other pods (scale P2D)."""

from __future__ import annotations

import trio

from controller.model.instance import Instance, InstanceStatus
from controller.model.outcome import Failed, Outcome, Recovered
from controller.model.scaling import given_up_for
from controller.model.settings import StrategySettings
from controller.recovery import Recovery
from controller.strategy.tools import Tools


class ScaleP2D:
    """Which pod then gets the devices is the scheduler's: the stopped supervisors end, and their pods with them."""

    def __init__(self, tools: Tools, settings: StrategySettings) -> None:
        self._tools = tools
        self._settings = settings

    async def execute(self, recovery: Recovery) -> Outcome:
        """Cancelled before the first is given up, nothing was done; after it, all that were chosen go."""
        limit = self._settings.isolation_timeout_sec
        with trio.move_on_after(limit):
            while self._tools.instance(recovery).status is InstanceStatus.ACTIVE:
                await recovery.inbox.next(None)
        decode = self._tools.instance(recovery)
        if decode.status is InstanceStatus.ACTIVE:
            return Failed(f"it is still in routing after {limit:g} s")
        chosen = given_up_for(decode, self._tools.instances())
        if isinstance(chosen, str):
            return Failed(chosen)
        self._give_up(chosen, recovery)
        while any(self._tools.is_living(instance.id) for instance in chosen):
            await self._tools.something_departed()
        return Recovered(f"given up: {', '.join(str(instance.key) for instance in chosen)}")

    def _give_up(self, chosen: tuple[Instance, ...], recovery: Recovery) -> None:
        for instance in chosen:
            reason = f"given up for {recovery.instance}: {recovery.cause.text}"
            self._tools.terminate(instance.id, reason, trio.current_time())
