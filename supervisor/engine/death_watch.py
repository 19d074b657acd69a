"""Signal (a) of an engine's death: its process is gone (seed S25). Signal (b), a sick endpoint, is a probe's.

Level-triggered: it looks at the service whenever that changed, and tells the operator once for each invocation.
"""

from __future__ import annotations

from supervisor.engine.model import progress
from supervisor.engine.operator import Operator
from supervisor.engine.pod_engine import PodEngine
from supervisor.unit.states import RunState
from supervisor.wire import Step


async def watch_for_death(engine: PodEngine, operator: Operator) -> None:
    """Until cancelled. What a death means in the step that the operation is in, the model decides."""
    told = 0
    while True:
        changed = engine.service.changed.next()
        invocation, why = engine.service.state.invocation, engine.death()
        if why is not None and invocation != told:
            told = invocation
            operator.feed(progress.EngineDied(why))
        await changed.wait()


async def watch_standalone(engine: PodEngine, operator: Operator) -> None:
    """The handshake of an engine that its unit's policy started; a gang's is awaited by the operator."""
    while True:
        changed = engine.service.changed.next()
        if operator.state.step is Step.LOADING and engine.service.state.state is RunState.ACTIVE:
            operator.feed(progress.Loaded(operator.state.serial))
        await changed.wait()
