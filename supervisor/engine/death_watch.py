"""Signal (a) of an engine's death: its process is gone (seed S25). Signal (b), a sick endpoint, is a probe's.

Level-triggered: it looks at the service whenever that changed, and tells the operator once for each invocation.
"""

from __future__ import annotations

from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.engine.model import progress
from supervisor.engine.operator import Operator
from supervisor.engine.pod_engine import PodEngine
from supervisor.unit.states import RunState
from supervisor.wire import Step


async def watch_for_death(endpoint: EndpointEngine, operator: Operator) -> None:
    """Until cancelled. What a death means in the step that the operation is in, the model decides."""
    told = 0
    while True:
        changed = endpoint.service.changed.next()
        invocation, why = endpoint.service.state.invocation, endpoint.death()
        if why is not None and invocation != told:
            told = invocation
            operator.feed(progress.EngineDied(why, endpoint.id))
        await changed.wait()


async def watch_standalone(endpoint: EndpointEngine, engine: PodEngine, operator: Operator) -> None:
    """The handshake of an engine that its unit's policy started; a gang's is awaited by the operator."""
    while True:
        changed = endpoint.service.changed.next()
        all_active = all(service.state.state is RunState.ACTIVE for service in engine.services)
        if operator.state.step is Step.LOADING and all_active:
            operator.feed(progress.Loaded(operator.state.serial))
        await changed.wait()
