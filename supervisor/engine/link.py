"""The link to the controller: registration, heartbeat and death reports as two tasks over one client."""

from __future__ import annotations

from contextlib import suppress

import trio

from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.fault_reporter import FaultReporter
from supervisor.engine.heartbeat import Heartbeat
from supervisor.engine.model.instance_seen import why_not_serving
from supervisor.engine.supervision import CannotPlace, EngineSupervision

CLOSE_SEC = 1.0


class ControllerLink:
    def __init__(self, client: ControllerClient, supervision: EngineSupervision, interval_sec: float) -> None:
        self.client = client
        self._supervision = supervision
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
        if not self._supervision.coordinated:
            return ""  # it stays its unit's business, whatever becomes of the others
        connection = self.heartbeat.connection
        return why_not_serving(connection.instance, nnodes=self._nnodes, answers=connection.last_error is None)

    async def run(self) -> None:
        """Until cancelled; then the client is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.heartbeat.run)
                nursery.start_soon(self._start_alone_in_the_end)
                nursery.start_soon(self._reporter.run)
        finally:
            with trio.move_on_after(CLOSE_SEC, shield=True):
                await self.client.aclose()

    async def _start_alone_in_the_end(self) -> None:
        """A gang needs its controller; an instance of one pod waits for one only so long (design 8)."""
        patience_sec = self._supervision.alone_after_sec
        if self._nnodes > 1 or patience_sec == 0 or not self._supervision.coordinated:
            return
        with trio.move_on_after(patience_sec):
            await self.heartbeat.introduced.wait()
            return
        node_manager = self._supervision.node_manager
        # A start whose dependencies are down fails; one that is merely late does not.
        await self._supervision.changed.wait_until(lambda: node_manager.dependencies_active, bool)
        if self.heartbeat.introduced.is_set():
            return
        with suppress(CannotPlace):
            self._supervision.start_alone(f"there was none for {patience_sec:g} s, and this instance is one pod")
