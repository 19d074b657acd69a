"""One relaunch run being carried out: a thin shell around the pure run.

The run decides; here its actions are carried out in their order, the requests of a batch at the same time,
and what comes back is fed to it as events. When it may begin, and how it is cancelled, is `engine_relaunch`'s.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import trio

from controller.entry import Entry
from controller.journal import Journal
from controller.model import instance as instances
from controller.model.member import MemberKey, Observation
from controller.model.outcome import Failed, Outcome
from controller.model.relaunch import exchange, plan
from controller.model.relaunch.dispatch import postpone
from controller.model.relaunch.effects import changed, undelivered
from controller.model.relaunch.ending import cut_off
from controller.model.relaunch.exchange import Action, Answer, Answered, Cancel, Close, Event, Send
from controller.model.relaunch.opening import new_run, recorded_run
from controller.model.relaunch.promise import PROMISED, promise
from controller.model.relaunch.run import GOOD_ENDS, Cause, Run, RunRecord, RunStep
from controller.model.verdict import why_not_ready
from controller.model.wanted import came_of
from controller.recovery import Recovery
from controller.registry import Registry
from controller.store.base import Store
from controller.strategy.turn import Turn
from controller.supervisors import Supervisors
from controller.terms import Incredible, check_credible
from supervisor.wire import ErrorCode

CLEANUP_SEC = 3.0
"""Of a cancelled run: abort goes to all who may be frozen, at once, and nobody is waited for longer."""
KEPT_AT_ONCE = (
    exchange.EpochBegins
    | exchange.EpochAbandoned
    | exchange.EpochLeft
    | exchange.MembersStranded
    | exchange.InstanceHeld
)
"""What follows on them may only be commanded when their instance is written as it is then."""
LOST_STEPS = frozenset({RunStep.REJOIN, RunStep.PHASE2})


class RunExecution:
    """One run being carried out."""

    def __init__(
        self,
        recovery: Recovery,
        turn: Turn,
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

    async def promise(self) -> None:
        """Whoever asked for the run is answered when its row is written, long before its turn comes perhaps."""
        recovery = self._recovery
        if recovery.record is None and recovery.cause.reason in PROMISED:
            row = promise(
                self._entry.instance,
                recovery.cause,
                run_id=recovery.run_id,
                term=self._registry.terms.current,
                now=trio.current_time(),
            )
            await self._journal.insist(partial(self._save_run, row))

    async def begin(self) -> None:
        """Open the run in its turn, if it needs one, on the instance as it is then, whatever came while it waited.

        Cancelled, it is not opened.
        """
        while True:
            opened = self._opening(await self._journal.insist(self._registry.terms.claim))
            if self._turn.is_taken or not plan.has_turn(opened[0]):
                break
            await self._turn.take()
        self._open(*opened)

    def _open(self, run: Run, actions: tuple[Action, ...]) -> None:
        self._recovery.inbox.forget_observations()
        self._adopt(run, actions)

    def _opening(self, term: int) -> tuple[Run, tuple[Action, ...]]:
        record, now = self._recovery.record, trio.current_time()
        run = self._unopened(term, now)
        return plan.open_run(run, now) if record is None else plan.resume_run(run, record, now)

    def _unopened(self, term: int, now: float) -> Run:
        registry, recovery = self._registry, self._recovery
        instance = registry.under_recovery(recovery.instance).instance
        budget, policy = registry.budgets.of(instance), registry.policy
        if recovery.record is not None:
            return recorded_run(
                instance,
                recovery.record,
                term=term,
                budget=budget,
                settings=policy.relaunch,
                instance_settings=policy.instance,
                no_phase_two=self._why_no_phase_two(),
                now=now,
            )
        return new_run(
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
            now, reported = trio.current_time(), self._recovery.inbox.faults()
            self._open(*plan.withdraw(self._unopened(self._registry.terms.current, now), cancel, reported, now))
        elif self._opened.outcome is None:
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
        """Leave what is to follow; what could not be written in time is carried out without that, and written later.

        Synchronous, so that it happens in every case.
        """
        if self._run is not None and self._run.outcome is None:
            self._adopt(*cut_off(self._run, trio.current_time()))
        for action in self._waiting:
            self._leave(action)
        self._waiting.clear()
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
        self._adopt(*plan.step(self._told(self._opened), event, trio.current_time()))

    def _told(self, run: Run) -> Run:
        """What an operator has reset meanwhile is not spent any more."""
        registry, now = self._registry, trio.current_time()
        run = replace(run, budget=registry.budgets.with_key(run.budget.key))
        return registry.fleet.told(run, registry.living, lambda: registry.ahead_of(self._recovery), now)

    def _why_no_phase_two(self) -> str:
        registry = self._registry
        return registry.fleet.why_not(self._recovery.instance, registry.living, trio.current_time())

    def _adopt(self, run: Run, actions: tuple[Action, ...]) -> None:
        self._registry.fleet.note(self._run, run, trio.current_time())
        for action in actions:
            if isinstance(action, exchange.SaveBudget):
                self._registry.budgets.put(action.budget)
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
        member, began = self._opened.members[send.member].member, trio.current_time()
        answer = _believed(
            await self._supervisors.ask(member, send.request, send.timeout_sec), self._registry.terms.current
        )
        entry = self._entry
        if order := undelivered(send, answer):
            entry.order(send.member, order, trio.current_time())
        if isinstance(answer, Observation):
            # Else the end of a run that found all normal would be judged by an older heartbeat, and reopen it.
            self._registry.change(entry, instances.answered(entry.instance, send.member, answer, began))
        self._recovery.inbox.post(Answered(send.member, send.number, answer))

    async def _effect(self, action: Action) -> None:
        match action:
            case exchange.Journal(kept, reason):
                await self._save_run(kept)
                is_bad = kept.step in LOST_STEPS or kept.outcome not in (None, *GOOD_ENDS)
                self._tell("warning" if is_bad else "info", f"{kept.step}: {reason}")
            case exchange.SaveBudget(budget, _):
                await self._journal.keep(budget.key)
            case exchange.InstanceActive():
                await self._activate(action)
            case _:
                self._note(action)
                if isinstance(action, KEPT_AT_ONCE):
                    await self._journal.keep(self._entry.instance.key)

    def _leave(self, action: Action) -> None:
        match action:
            case exchange.Journal(kept, _):
                self._registry.to_be_kept(kept)
            case exchange.SaveBudget(budget, _):
                self._registry.to_be_kept(budget.key)
            case exchange.InstanceActive() | Send():
                """Nothing begins any more, and a success that is not written is another life's to find."""
            case _:
                self._note(action)

    def _note(self, action: Action) -> None:
        registry, entry = self._registry, self._entry
        registry.change(entry, changed(entry.instance, action, trio.current_time()))
        match action:
            case exchange.Emit(level, message, member):
                self._tell(str(level), message, member)
            case exchange.StepDown(term, reason):
                self._is_outbid = True
                registry.terms.learn(term)
                self._tell("warning", f"stepping down: {reason}")
            case Close():
                self._closed = action

    async def _activate(self, action: exchange.InstanceActive) -> None:
        """What has died while it was written is no part of the run any more, and is judged at its end."""
        registry, entry = self._registry, self._entry
        await self._store.save_active(action.record, changed(entry.instance, action, trio.current_time()))
        self._recovery.written(action.record)
        now = trio.current_time()
        if why := why_not_ready(entry.instance, now, registry.policy.instance):
            self._tell("warning", f"it is not put into routing: {why}")
            registry.to_be_kept(entry.instance.key)
        else:
            registry.change(entry, changed(entry.instance, action, now))

    async def _save_run(self, row: RunRecord) -> None:
        await self._journal.save_run(row)
        self._recovery.written(row)

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


def _believed(answer: Answer, term: int) -> Answer:
    """A supervisor that names a term which no controller has ever had has failed: for that nobody steps down."""
    if isinstance(answer, exchange.Refused) and answer.code is ErrorCode.STALE_TERM:
        try:
            check_credible("term", answer.term or 0, term)
        except Incredible as error:
            return replace(answer, code=ErrorCode.FAILED, message=str(error), term=None)
    return answer
