"""What every strategy but the relaunch is put into: whoever withdraws the recovery simply cancels it."""

from __future__ import annotations

import logging

from controller.model.outcome import Failed, Outcome
from controller.recovery import Recovery
from controller.store.base import Deposed
from controller.strategy.base import Strategy

log = logging.getLogger(__name__)


class WithoutRun:
    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    async def execute(self, recovery: Recovery) -> Outcome:
        """A strategy that breaks has failed: the relaunch follows, and all other instances go on."""
        outcome: Outcome = Failed("withdrawn")
        with recovery.scope:
            try:
                outcome = await self._strategy.execute(recovery)
            except Deposed:
                raise
            except Exception as error:
                log.error("the strategy %s broke", recovery.strategy, exc_info=True, extra={"run_id": recovery.run_id})
                outcome = Failed(f"the strategy itself broke: {error!r}")
        return outcome
