"""Tells the operator while a snapshot is being restored: a relaunch that came into it would find half an engine."""

from __future__ import annotations

from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.engine.model.condition import Restoring
from supervisor.engine.operator import Operator


async def watch_restore(endpoint: EndpointEngine, operator: Operator) -> None:
    """Until cancelled. What is refused meanwhile, the model decides; an engine without RestoreExec never is in it."""
    while True:
        changed = endpoint.service.changed.next()
        number = endpoint.engine.endpoint_number
        if endpoint.restoring is not (number in operator.state.restoring):
            operator.feed(Restoring(number, endpoint.restoring))
        await changed.wait()
