"""Carries a drain out: waits and stops the pod's engine as `model/draining.py` says.

Begun by an orderly end of this supervisor, by `podvisor drain`, or by the controller because another member leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import trio

from supervisor.engine.model import progress
from supervisor.engine.model.draining import Draining, DrainSettings, Over, StopEngine, Wait, next_move
from supervisor.engine.operator import Operator
from supervisor.engine.pod_engine import PodEngine
from supervisor.service.changes import Changes
from supervisor.service.service import Service
from supervisor.unit.states import RunState

log = logging.getLogger(__name__)


class Drain:
    """One per engine's unit file. A drain that is under way is joined, never begun twice."""

    def __init__(self, settings: DrainSettings, operator: Operator, engine: PodEngine) -> None:
        self._settings = settings
        self._operator = operator
        self._engine = engine
        self._drained: Mapping[Service, int] = {}
        """The invocation of each endpoint that is being drained; none: no drain is under way."""
        self._released = False
        self._wanted = Changes()
        self._over = Changes()

    def begin(self, reason: str) -> None:
        """From here on the engine takes no new requests; `finished` says when it is done. Nothing if none serves."""
        serving = [service for service in self._engine.services if service.state.state is RunState.ACTIVE]
        if self._drained or not serving:
            return
        self._drained, self._released = {service: service.state.invocation for service in serving}, False
        log.info("draining: %s", reason)
        self._operator.feed(progress.Paused(f"draining: {reason}"))
        self._wanted.announce()

    def release(self) -> None:
        """The controller's word that nobody needs this engine any more."""
        if not self._released:
            self._released = True
            self._wanted.announce()

    async def finished(self) -> None:
        """Until no drain is under way."""
        await self._over.wait_until(lambda: self._drained, lambda drained: not drained)

    async def run(self) -> None:
        """Until cancelled. A stop that was begun then goes on in the engine's services."""
        while True:
            await self._wanted.wait_until(lambda: self._drained, bool)
            await self._drain(trio.current_time())
            self._drained = {}
            self._over.announce()

    async def _drain(self, began: float) -> None:
        waited_for = ""
        while True:
            changes = [service.changed.next() for service in self._drained]
            released = self._wanted.next()
            move = next_move(self._look(began), self._settings, trio.current_time())
            match move:
                case Wait(until, reason):
                    if reason != waited_for:
                        log.info("the engine goes on %s", reason)
                        waited_for = reason
                    await _first_of([*changes, released], until)
                case StopEngine(grace_sec, reason):
                    await self._stop(grace_sec, reason)
                case Over(reason):
                    log.info("drained: %s", reason)
                    return

    async def _stop(self, grace_sec: float, reason: str) -> None:
        async with trio.open_nursery() as nursery:
            for service in self._drained:
                grace = max(grace_sec, service.unit.service.stop.timeout_sec)
                stop = partial(service.stop, asked_by="podvisor", reason=reason, grace_sec=grace)
                nursery.start_soon(stop)
        if all(service.state.invocation == invocation for service, invocation in self._drained.items()):
            self._operator.feed(progress.Drained())

    def _look(self, began: float) -> Draining:
        placement = self._operator.state.placement
        return Draining(
            began=began,
            running=any(_still_runs(service, invocation) for service, invocation in self._drained.items()),
            takes_requests=placement is None or placement.node_rank == 0,
            released=self._released,
        )


def _still_runs(service: Service, invocation: int) -> bool:
    return service.state.invocation == invocation and not service.state.at_rest


async def _first_of(events: list[trio.Event], until: float) -> None:
    """Until one of the events or that moment."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel(reason="one has come")

        nursery.cancel_scope.deadline = until
        for event in events:
            nursery.start_soon(wait, event)
