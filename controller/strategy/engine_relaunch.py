"""The two-phase relaunch of a gang (design 4): a thin shell around the pure run.

The run decides; here its actions are carried out in their order, the requests of a batch at the same time,
and what comes back is fed to it as events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import trio

from controller.election import Leadership
from controller.entry import Entry
from controller.journal import Journal
from controller.model import instance as instances
from controller.model.member import MemberKey, Observation
from controller.model.outcome import Failed, Outcome
from controller.model.relaunch import exchange, plan
from controller.model.relaunch.dispatch import postpone
from controller.model.relaunch.exchange import (
    Action,
    Answered,
    Cancel,
    CancelKind,
    Close,
    Event,
    Send,
    Unreachable,
)
from controller.model.relaunch.run import GOOD_ENDS, Cause, Run, RunStep
from controller.model.wanted import came_of
from controller.recovery import Recovery
from controller.registry import Registry
from controller.store.base import Store
from controller.supervisors import Supervisors
from supervisor import wire

CLEANUP_SEC = 3.0
"""Of a cancelled run: abort goes to all who may be frozen, at once, and nobody is waited for longer."""
GRACE_SEC = 0.5
"""For the journal rows that close such a run."""
LOST_STEPS = frozenset({RunStep.REJOIN, RunStep.PHASE2})


class EngineRelaunch:
    def __init__(
        self,
        registry: Registry,
        supervisors: Supervisors,
        leadership: Leadership,
        journal: Journal,
        max_concurrent_runs: int,
    ) -> None:
        self._registry = registry
        self._supervisors = supervisors
        self._leadership = leadership
        self._journal = journal
        self._turns = trio.Semaphore(max_concurrent_runs, max_value=max_concurrent_runs)

    async def execute(self, recovery: Recovery) -> Outcome:
        """One run, from its journal row to its end, in its turn. Its failure is phase 2, and nothing beyond it.

        Who waits for containers starts nothing: its turn is another's meanwhile.

        Cancelled, it stops at once and then, shielded and for CLEANUP_SEC at most, sends abort to every
        supervisor that may be frozen by it and has not started (S07). With a durable store nothing is sent:
        another life of the controller resumes the run. With its leadership lost nothing is done at all.
        """
        turn = _Turn(self._turns)
        execution = _Execution(recovery, turn, self._registry, self._supervisors, self._leadership.store, self._journal)
        kind = CancelKind.SUSPEND if self._leadership.store.durable else CancelKind.ABORT
        cancel = Cancel(kind, "the controller stops")
        try:
            if await self._its_turn_comes(recovery, turn):
                try:
                    await execution.begin()
                    await execution.finish()
                finally:
                    turn.give_back()
            elif recovery.withdrawn is not None:
                cancel = recovery.withdrawn
        finally:
            if not self._leadership.is_lost:
                with trio.move_on_after(CLEANUP_SEC + GRACE_SEC, shield=True):
                    await execution.end(cancel)
                execution.close()
        return execution.outcome

    async def _its_turn_comes(self, recovery: Recovery, turn: _Turn) -> bool:
        """False if the recovery was withdrawn before. Cancelled, it has no turn."""
        with recovery.scope:
            await turn.take()
            return True
        return False


class _Turn:
    """One of the fleet's, while this run has it."""

    def __init__(self, turns: trio.Semaphore) -> None:
        self._turns = turns
        self._is_taken = False

    async def take(self) -> None:
        """Cancelled, it is not taken."""
        await self._turns.acquire()
        self._is_taken = True

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._turns.release()


class _Execution:
    """One run being carried out."""

    def __init__(
        self,
        recovery: Recovery,
        turn: _Turn,
        registry: Registry,
        supervisors: Supervisors,
        store: Store,
        journal: Journal,
    ) -> None:
        self._recovery = recovery
        self._journal = journal
        self._turn = turn
        self._is_queuing = False
        """It waits for another turn, and goes on waiting in place."""
        self._registry = registry
        self._supervisors = supervisors
        self._store = store
        self._run: Run | None = None
        self._waiting: list[Action] = []
        """Decided and not yet carried out."""
        self._closed: Close | None = None
        self._is_outbid = False

    async def begin(self) -> None:
        """Open the run on the instance as it is now, after whatever came while it waited for its turn."""
        self._open(await self._journal.insist(self._registry.terms.claim))

    def _open(self, term: int) -> None:
        registry, recovery = self._registry, self._recovery
        recovery.inbox.forget_observations()
        instance = registry.under_recovery(recovery.instance).instance
        now, budget, policy = trio.current_time(), registry.budgets.of(instance), registry.policy
        if recovery.record is not None:
            run, actions = plan.resume_run(
                instance,
                recovery.record,
                term=term,
                budget=budget,
                settings=policy.relaunch,
                instance_settings=policy.instance,
                no_phase_two=self._why_no_phase_two(),
                now=now,
            )
        else:
            run, actions = plan.open_run(
                instance,
                recovery.cause,
                run_id=recovery.run_id,
                term=term,
                budget=budget,
                settings=policy.relaunch,
                instance_settings=policy.instance,
                no_phase_two=self._why_no_phase_two(),
                now=now,
            )
        self._adopt(run, actions)

    async def finish(self) -> None:
        """Until the run is closed.

        Cancelled or at its end, requests under way are cut off, perhaps after their effect.
        """
        async with trio.open_nursery() as nursery:
            while not self._is_over:
                self._mind_the_turn(nursery)
                if self._waiting:
                    await self._carry_out(nursery)
                else:
                    self._step(await self._recovery.inbox.next(plan.deadline(self._opened)))
            nursery.cancel_scope.cancel(reason="nobody waits for these answers any more")

    async def end(self, cancel: Cancel) -> None:
        """Close the run by `cancel` if it is still open, CLEANUP_SEC later whatever was answered."""
        if self._run is None:
            self._open(self._registry.terms.current)
            # Whoever reported while it waited may have frozen itself.
            for fault in self._recovery.inbox.faults():
                self._step(fault)
        if self._is_over:
            return
        if self._opened.outcome is None:
            # What was decided and not begun must not begin any more.
            self._waiting.clear()
            self._recovery.inbox.clear()
            self._step(cancel)
        with trio.move_on_after(CLEANUP_SEC):
            await self.finish()
        if not self._is_over:
            self._step(exchange.Tick())
            await self.finish()

    def close(self) -> None:
        """Leave what is to follow; synchronous, so that it happens in every case."""
        self._recovery.follow = self._follow()

    @property
    def outcome(self) -> Outcome:
        if self._run is None:
            return Failed("the leadership was lost before it began")
        return came_of(self._run)

    def _follow(self) -> Cause | None:
        """The run to open at once; else the instance itself says when it needs one."""
        if self._is_outbid:
            # Who leads is the store's to say: it gives the next run a higher term, or refuses, and we are deposed.
            return self._opened.cause
        return self._closed.follow if self._closed else None

    # --- inside --------------------------------------------------------------------------------------------

    @property
    def _entry(self) -> Entry:
        return self._registry.under_recovery(self._recovery.instance)

    @property
    def _opened(self) -> Run:
        if self._run is None:
            raise RuntimeError("a run must be opened before anything else is done with it")
        return self._run

    @property
    def _is_over(self) -> bool:
        """Decided, recorded and told."""
        return self._opened.outcome is not None and not self._waiting

    def _mind_the_turn(self, nursery: trio.Nursery) -> None:
        if plan.has_turn(self._opened) or self._is_queuing:
            return
        self._turn.give_back()
        if plan.wants_turn(self._opened):
            self._is_queuing = True
            nursery.start_soon(self._queue)

    async def _queue(self) -> None:
        await self._turn.take()
        self._recovery.inbox.post(exchange.TurnCame())

    def _step(self, event: Event) -> None:
        if isinstance(event, exchange.TurnCame):
            self._is_queuing = False
        # The fleet as it is at this moment: between the question and the note nobody else decides.
        run = replace(self._opened, no_phase_two=self._why_no_phase_two())
        self._adopt(*plan.step(run, event, trio.current_time()))

    def _why_no_phase_two(self) -> str:
        registry = self._registry
        return registry.fleet.why_not(self._recovery.instance, registry.living, trio.current_time())

    def _adopt(self, run: Run, actions: Iterable[Action]) -> None:
        if run.phase == 2 and (self._run is None or self._run.phase == 1):
            self._registry.fleet.note(self._recovery.instance, run.message, trio.current_time())
        self._run = self._recovery.run = run
        self._waiting.extend(actions)

    async def _carry_out(self, nursery: trio.Nursery) -> None:
        while self._waiting:
            action = self._waiting[0]
            if isinstance(action, Send):
                if not self._is_outbid:
                    nursery.start_soon(self._send, action)
            else:
                began = trio.current_time()
                await self._journal.insist(partial(self._effect, action))
                self._run = self._recovery.run = postpone(self._opened, trio.current_time() - began)
            # Only now: an effect that is cancelled is carried out again by `end`, and all may be repeated.
            self._waiting.pop(0)

    async def _send(self, send: Send) -> None:
        member = self._opened.members[send.member].member
        answer = await self._supervisors.ask(member, send.request, send.timeout_sec)
        self._leave_order(send, answer)
        if isinstance(answer, Observation):
            # Else the end of a run that found all normal would be judged by an older heartbeat, and reopen it.
            entry = self._entry
            self._registry.change(entry, instances.observe(entry.instance, send.member, answer))
        self._recovery.inbox.post(Answered(send.member, send.number, answer))

    def _leave_order(self, send: Send, answer: exchange.Answer) -> None:
        """A farewell that cannot be delivered waits for the member's next heartbeat (one-way partitions)."""
        match send.request:
            case wire.EngineRestartMsg(action=wire.Action.ABORT):
                kind = wire.OrderKind.ABORT
            case wire.StopMsg():
                kind = wire.OrderKind.LEAVE
            case _:
                return
        if isinstance(answer, Unreachable):
            order = wire.Order(
                order=kind,
                term=send.request.term,
                run_id=send.request.run_id,
                boot_id=send.request.boot_id,
                reason=send.reason,
            )
            self._entry.order(send.member, order, trio.current_time())

    async def _effect(self, action: Action) -> None:
        registry, entry, now = self._registry, self._entry, trio.current_time()
        match action:
            case exchange.Journal(kept, reason):
                await self._store.save_run(kept)
                is_bad = kept.step in LOST_STEPS or kept.outcome not in (None, *GOOD_ENDS)
                self._tell("warning" if is_bad else "info", f"{kept.step}: {reason}")
            case exchange.SaveBudget(budget, _):
                await self._store.save_budget(budget)
                registry.budgets.put(budget)
            case exchange.InstanceInactive(reason):
                registry.change(entry, instances.deactivate(entry.instance, reason, now))
            case exchange.EpochBegins(epoch, _):
                registry.change(entry, instances.begin_epoch(entry.instance, epoch))
                await self._journal.keep(entry.instance.key)
            case exchange.ConfigurationTaken(digest, _):
                registry.change(entry, instances.reconfigure(entry.instance, digest))
            case exchange.EpochAbandoned(_):
                registry.change(entry, instances.abandon(entry.instance, now))
                await self._journal.keep(entry.instance.key)
            case exchange.InstanceHeld(held):
                registry.change(entry, instances.hold(entry.instance, held))
                await self._journal.keep(entry.instance.key)
            case exchange.EpochLeft(members, _):
                registry.change(entry, instances.leave_epoch(entry.instance, members))
                await self._journal.keep(entry.instance.key)
            case exchange.InstanceActive(kept, reason):
                await self._store.save_active(kept, instances.activate(entry.instance, reason, now))
                registry.change(entry, instances.activate(entry.instance, reason, now))
            case exchange.Emit(level, message, member):
                self._tell(str(level), message, member)
            case exchange.StepDown(term, reason):
                self._is_outbid = True
                registry.terms.learn(term)
                self._tell("warning", f"stepping down: {reason}")
            case Close():
                self._closed = action

    def _tell(self, level: str, message: str, member: MemberKey | None = None) -> None:
        """One line: which run, in which step, why it was opened, what now."""
        cause = self._opened.cause
        self._registry.notices.tell(
            self._entry,
            "run",
            message,
            level=level,
            reason=f"{cause.reason}: {cause.text}",
            member=member,
        )
