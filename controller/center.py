"""The strategy centre: one task for each instance under recovery, and what else the registry wants done.

Woken by the registry's events; once in a while it lets the registry look at what only time has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from controller.clock import wall_clock
from controller.election import Leadership
from controller.journal import Journal
from controller.model.instance import Instance
from controller.model.member import Member
from controller.model.outcome import Ended, Failed, Interrupted, Recovered, Withdrawn
from controller.model.relaunch.exchange import Accepted, Probe
from controller.recovery import Recovery
from controller.registry import Departure, Registry
from controller.store.base import StoreError
from controller.strategy.base import Strategy
from controller.supervisors import Supervisors
from supervisor import wire
from supervisor.shared.causes import causes, log_causes

log = logging.getLogger(__name__)

STOP_TRIES = 3
STOP_TIMEOUT_SEC = 3.0
FLUSH_SEC = 1.0
"""For what is not in the journal at the end of a leadership."""


class Center:
    def __init__(
        self,
        registry: Registry,
        supervisors: Supervisors,
        leadership: Leadership,
        journal: Journal,
        strategies: Mapping[str, Strategy],
        beside: Callable[[], Awaitable[None]] = trio.sleep_forever,
    ) -> None:
        """`beside` runs as long as this does, and nothing waits for it."""
        self._registry = registry
        self._supervisors = supervisors
        self._leadership = leadership
        self._store = leadership.store
        self._journal = journal
        self._strategies = strategies
        self._beside = beside

    async def run(self) -> None:
        """Until cancelled; each recovery then cleans up after itself, all at the same time."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick)
                nursery.start_soon(self._journal.run)
                nursery.start_soon(self._beside)
                while True:
                    # Taken before the look, so that nothing is missed.
                    attention = self._registry.attention
                    self._begin_what_is_wanted(nursery)
                    await attention.wait()
        finally:
            with trio.move_on_after(FLUSH_SEC, shield=True):
                await self._journal.flush()

    def _begin_what_is_wanted(self, nursery: trio.Nursery) -> None:
        registry = self._registry
        while registry.opened:
            nursery.start_soon(self.recover, registry.opened.popleft())
        while registry.questions:
            nursery.start_soon(self._ask, registry.questions.popleft())
        while registry.departures:
            nursery.start_soon(self._dismiss, registry.departures.popleft())

    async def recover(self, recovery: Recovery) -> None:
        """One recovery, from its opening until the instance is handed back: in every case but that of a leadership that
        is lost, and only when its strategy has cleaned up."""
        outcome: Ended = Interrupted("the controller stops")
        try:
            outcome = await self._strategies[recovery.strategy].execute(recovery)
            if recovery.scope.cancelled_caught and recovery.withdrawn is not None:
                outcome = Withdrawn(recovery.withdrawn.reason)
        except* StoreError:
            raise
        except* Exception as errors:  # noqa: BLE001 - whatever a recovery meets
            outcome = self._broke(recovery, errors)
        finally:
            if not self._leadership.is_lost:
                self._hand_back(recovery, outcome)

    def _broke(self, recovery: Recovery, errors: ExceptionGroup[Exception]) -> Failed:
        """A bug of ours costs its own instance the service, and nobody else's."""
        log_causes(log, f"run {recovery.run_id} of {recovery.instance} broke: %r", errors)
        first = next(causes(errors))
        why = f"run {recovery.run_id} broke, by a bug of the controller ({first!r}; the trace is in its log)"
        self._registry.broke(recovery, why)
        return Failed(why)

    def _hand_back(self, recovery: Recovery, outcome: Ended) -> None:
        now = trio.current_time()
        instance = self._registry.under_recovery(recovery.instance).instance
        self._tell_outcome(recovery, outcome)
        self._registry.close(recovery, outcome, recovery.view(instance, now, wall_clock(now), outcome), now)
        recovery.end()

    def _tell_outcome(self, recovery: Recovery, outcome: Ended) -> None:
        """A run has told it already."""
        if recovery.run is not None:
            return
        entry = self._registry.under_recovery(recovery.instance)
        if isinstance(outcome, Recovered):
            self._registry.notices.tell(
                entry, "run", f"{recovery.strategy}: {outcome.message}", reason=recovery.cause.text
            )
        else:
            words = f"{recovery.strategy} did not recover the instance: {outcome.reason}"
            self._registry.notices.tell(entry, "run", words, level="warning", reason=recovery.cause.text)

    async def _tick(self) -> None:
        while True:
            await trio.sleep(self._registry.policy.check_interval_sec)
            self._registry.tick(trio.current_time())
            await self._supervisors.close_idle(trio.current_time())

    async def _ask(self, member: Member) -> None:
        """A member is silent: is it the path to us, or is it gone?"""
        answer = await self._supervisors.ask(
            member, Probe(run_id=""), self._registry.policy.relaunch.status_timeout_sec
        )
        self._registry.answered_directly(member, answer, trio.current_time())

    async def _dismiss(self, departure: Departure) -> None:
        """Its supervisors stop, all at the same time; one that cannot be told is named."""
        await self._journal.insist(partial(self._store.save_instance, departure.instance))
        term = await self._journal.insist(self._registry.terms.claim)
        async with trio.open_nursery() as nursery:
            for member in departure.to_stop:
                nursery.start_soon(self._stop, departure.instance, member, term)

    async def _stop(self, instance: Instance, member: Member, term: int) -> None:
        request = wire.StopMsg(
            term=term,
            instance_id=instance.id,
            epoch=instance.highest_epoch,
            boot_id=member.boot_id,
            reason=instance.reason,
        )
        for attempt in range(STOP_TRIES):
            if attempt:
                await trio.sleep(self._registry.policy.relaunch.retry_gap_sec)
            answer = await self._supervisors.ask(member, request, STOP_TIMEOUT_SEC)
            if isinstance(answer, Accepted):
                return
        self._registry.events.append(
            "member",
            f"cannot stop {member.address} of the deleted instance {instance.id}: {answer}",
            level="error",
            namespace=instance.key.namespace,
            job_name=instance.key.job_name,
            instance_id=instance.id,
            member=str(member.key),
        )
