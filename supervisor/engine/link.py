"""The link to the controller: registration, heartbeat and death reports as two tasks over one client."""

from __future__ import annotations

import trio

from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.fault_reporter import FaultReporter
from supervisor.engine.heartbeat import Heartbeat
from supervisor.engine.model.instance_seen import why_not_serving
from supervisor.engine.supervision import EngineSupervision

CLOSE_SEC = 1.0


class ControllerLink:
    def __init__(self, client: ControllerClient, supervision: EngineSupervision, interval_sec: float) -> None:
        self.client = client
        self._nnodes = supervision.registration.identity.nnodes
        self._reporter = FaultReporter(client, supervision.operator, supervision.engine, supervision.changed)
        self.heartbeat = Heartbeat(
            client,
            supervision.registration,
            supervision.operator,
            supervision.node_manager,
            supervision.changed,
            interval_sec,
            self._reporter.first_attempt,
            supervision.drain,
        )

    def why_not_serving(self) -> str:
        """What the controller says against the instance as a whole, for readyz; empty: nothing."""
        connection = self.heartbeat.connection
        return why_not_serving(connection.instance, nnodes=self._nnodes, answers=connection.last_error is None)

    async def run(self) -> None:
        """Until cancelled; then the client is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.heartbeat.run)
                nursery.start_soon(self._reporter.run)
        finally:
            with trio.move_on_after(CLOSE_SEC, shield=True):
                await self.client.aclose()
