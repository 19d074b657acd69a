"""Carries a drain out: waits and stops the engine as `model/draining.py` says.

Begun by an orderly end of this supervisor, by `podvisor drain`, or by the controller because another member leaves.
"""

from __future__ import annotations

import logging

import trio

from supervisor.engine.model import progress
from supervisor.engine.model.draining import Draining, DrainSettings, Over, StopEngine, Wait, next_move
from supervisor.engine.operator import Operator
from supervisor.engine.pod_engine import PodEngine
from supervisor.service.changes import Changes
from supervisor.unit.states import RunState

log = logging.getLogger(__name__)


class Drain:
    """One per supervisor that has an engine. A drain that is under way is joined, never begun twice."""

    def __init__(self, settings: DrainSettings, operator: Operator, engine: PodEngine) -> None:
        self._settings = settings
        self._operator = operator
        self._engine = engine
        self._invocation: int | None = None
        """Of the engine that is being drained."""
        self._released = False
        self._wanted = Changes()
        self._over = Changes()

    def begin(self, reason: str) -> None:
        """From here on the engine takes no new requests; `finished` says when it is done. Nothing if none serves."""
        service = self._engine.service
        if self._invocation is not None or service.state.state is not RunState.ACTIVE:
            return
        self._invocation, self._released = service.state.invocation, False
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
        await self._over.wait_until(lambda: self._invocation, lambda invocation: invocation is None)

    async def run(self) -> None:
        """Until cancelled. A stop that was begun then goes on in the engine's service."""
        while True:
            await self._wanted.wait_until(lambda: self._invocation, lambda invocation: invocation is not None)
            await self._drain(trio.current_time())
            self._invocation = None
            self._over.announce()

    async def _drain(self, began: float) -> None:
        waited_for = ""
        while True:
            seen, released = self._engine.service.changed.next(), self._wanted.next()
            move = next_move(self._look(began), self._settings, trio.current_time())
            match move:
                case Wait(until, reason):
                    if reason != waited_for:
                        log.info("the engine goes on %s", reason)
                        waited_for = reason
                    await _first_of(seen, released, until)
                case StopEngine(grace_sec, reason):
                    await self._stop(grace_sec, reason)
                case Over(reason):
                    log.info("drained: %s", reason)
                    return

    async def _stop(self, grace_sec: float, reason: str) -> None:
        service = self._engine.service
        grace = max(grace_sec, service.unit.service.stop.timeout_sec)
        await service.stop(asked_by="podvisor", reason=reason, grace_sec=grace)
        if service.state.invocation == self._invocation:
            self._operator.feed(progress.Drained())

    def _look(self, began: float) -> Draining:
        state, placement = self._engine.service.state, self._operator.state.placement
        return Draining(
            began=began,
            running=state.invocation == self._invocation and not state.at_rest,
            takes_requests=placement is None or placement.node_rank == 0,
            released=self._released,
        )


async def _first_of(one: trio.Event, other: trio.Event, until: float) -> None:
    """Until either event or that moment."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel(reason="one has come")

        nursery.cancel_scope.deadline = until
        nursery.start_soon(wait, one)
        nursery.start_soon(wait, other)
