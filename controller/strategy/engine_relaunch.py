"""The two-phase relaunch of a gang (design 4) as a strategy: when a run may begin, and how it ends if nobody wants it.

How a run is carried out stands in `run_execution`.
"""

from __future__ import annotations

import trio

from controller.election import Leadership
from controller.journal import Journal
from controller.model.outcome import Outcome
from controller.model.relaunch.exchange import Cancel, CancelKind
from controller.recovery import Recovery
from controller.registry import Registry
from controller.strategy.run_execution import CLEANUP_SEC, RunExecution
from controller.strategy.turn import Turn
from controller.supervisors import Supervisors

GRACE_SEC = 0.5
"""For the journal rows that close a cancelled run."""


class EngineRelaunch:
    def __init__(
        self,
        registry: Registry,
        supervisors: Supervisors,
        leadership: Leadership,
        journal: Journal,
        max_concurrent_runs: int,
    ) -> None:
        self._registry = registry
        self._supervisors = supervisors
        self._leadership = leadership
        self._journal = journal
        self._turns = trio.Semaphore(max_concurrent_runs, max_value=max_concurrent_runs)

    async def execute(self, recovery: Recovery) -> Outcome:
        """One run, from its journal row to its end, in its turn. Its failure is phase 2, and nothing beyond it.

        Who starts nothing needs no turn: a hold, and a run that waits for containers.

        Cancelled, it stops at once and then, shielded and for CLEANUP_SEC at most, sends abort to every
        supervisor that may be frozen by it and has not started (S07). With a durable store nothing is sent:
        another life of the controller resumes the run. With its leadership lost nothing is done at all.
        """
        turn = Turn(self._turns)
        execution = RunExecution(
            recovery, turn, self._registry, self._supervisors, self._leadership.store, self._journal
        )
        kind = CancelKind.SUSPEND if self._leadership.store.durable else CancelKind.ABORT
        cancel = Cancel(kind, "the controller stops")
        try:
            if await self._begins(recovery, execution):
                await execution.finish()
            elif recovery.withdrawn is not None:
                cancel = recovery.withdrawn
        except Exception:
            cancel = Cancel(CancelKind.ABORT, "the run itself broke, by a bug of the controller")
            raise
        finally:
            turn.give_back()
            if not self._leadership.is_lost:
                with trio.move_on_after(CLEANUP_SEC + GRACE_SEC, shield=True):
                    await execution.end(cancel)
                execution.close()
        return execution.outcome

    async def _begins(self, recovery: Recovery, execution: RunExecution) -> bool:
        """False if the recovery was withdrawn before."""
        with recovery.scope:
            await execution.promise()
            await execution.begin()
            return True
        return False
