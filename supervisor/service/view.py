"""A unit as the API and the CLI show it."""

from __future__ import annotations

import math
from datetime import datetime

from supervisor.service.exits import ExitRecord
from supervisor.unit.model import Unit
from supervisor.unit.state import UnitState
from supervisor.unit.states import SubState
from supervisor.wire import UnitView, timestamp


def unit_view(
    unit: Unit, state: UnitState, since: datetime, last_exit: ExitRecord | None, epoch: int | None, now: float
) -> UnitView:
    next_restart = None
    if state.sub_state is SubState.AUTO_RESTART and state.deadline < math.inf:
        next_restart = round(max(0.0, state.deadline - now), 3)
    lives = state.pid is not None and state.spawned_at is not None
    return UnitView(
        name=unit.name,
        type="engine" if unit.engine is not None else unit.service.type.value,
        state=state.state,
        sub_state=state.sub_state,
        pid=state.pid,
        since=timestamp(since),
        restarts=state.restarts,
        description=unit.description,
        reason=state.words,
        epoch=epoch,
        next_restart_in_sec=next_restart,
        last_exit=None if last_exit is None else last_exit.view,
        uptime_sec=round(now - (state.spawned_at or now), 3) if lives else None,
    )
