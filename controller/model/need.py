"""Which run an instance needs now, judged by its state alone (level-triggered), whatever event came last.

So a lost event, a restarted controller or a run that ended badly never leaves a gang stuck (F3).
"""

from __future__ import annotations

from controller.model.budget import Budget
from controller.model.instance import Instance
from controller.model.relaunch.run import Cause
from controller.model.settings import RelaunchSettings


def run_needed(instance: Instance, budget: Budget, settings: RelaunchSettings) -> Cause | None:
    """Ask when no run is open: after each registration, each heartbeat, each end of a run.

    * complete, nobody takes part in the epoch -> `assemble` (cold start, and after phase 2);
    * some take part and some are new boots, or a member is silent -> `fault` (member lost);
    * an endpoint is ABNORMAL in this epoch and fresh -> `fault` (judged again at the end of a run);
    * leaving, DELETED, incomplete, held and waiting -> None.
    """
    raise NotImplementedError
