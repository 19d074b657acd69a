"""Every engine of the instance is asked to recover itself: the mechanism of TokenReinference and UceRecovery.

`model.engine_recovery` decides; here the questions are asked and the answers fed back.
"""

from __future__ import annotations

import trio

from controller.model import engine_recovery
from controller.model.engine_recovery import Ask
from controller.model.outcome import Failed, Outcome
from controller.model.relaunch.exchange import Answered, Probe
from controller.model.settings import StrategySettings
from controller.recovery import Recovery
from controller.strategy.tools import Tools


class EnginesRecover:
    def __init__(self, name: str, tools: Tools, settings: StrategySettings, status_timeout_sec: float) -> None:
        """`name`: which recovery is meant; the engine's own code is told."""
        self._name = name
        self._tools = tools
        self._settings = settings
        self._status_timeout_sec = status_timeout_sec

    async def execute(self, recovery: Recovery) -> Outcome:
        """Cancelled, an engine that was asked may still recover: it stops nothing, so nothing is owed to anybody."""
        limit = self._settings.recover_timeout_sec
        with trio.move_on_after(limit):
            return await self._attempt(recovery)
        return Failed(f"not all engines have recovered within {limit:g} s")

    async def _attempt(self, recovery: Recovery) -> Outcome:
        attempt, asks = engine_recovery.begin(
            self._tools.instance(recovery),
            recovery=self._name,
            fault_code=recovery.fault.code if recovery.fault else None,
            term=await self._tools.term(),
            run_id=recovery.run_id,
            reason=recovery.cause.text,
        )
        async with trio.open_nursery() as nursery:
            while attempt.outcome is None:
                for ask in asks:
                    nursery.start_soon(self._ask, recovery, ask)
                attempt, asks = engine_recovery.step(attempt, await recovery.inbox.next(None))
            nursery.cancel_scope.cancel(reason="nobody waits for these answers any more")
        return attempt.outcome

    async def _ask(self, recovery: Recovery, ask: Ask) -> None:
        is_probe = isinstance(ask.request, Probe)
        timeout_sec = self._status_timeout_sec if is_probe else self._settings.recover_answer_timeout_sec
        answer = await self._tools.ask(ask.member, ask.request, timeout_sec)
        recovery.inbox.post(Answered(ask.member.key, 0, answer))
