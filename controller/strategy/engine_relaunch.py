"""The two-phase relaunch of a gang (design 4): a thin shell around the pure run.

The run decides; here its actions are carried out in their order, the requests of a batch at the same time,
and what comes back is fed to it as events.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from controller.clock import wall_clock
from controller.entry import Entry
from controller.model import instance as instances
from controller.model.member import MemberKey, Observation
from controller.model.relaunch import exchange, plan
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
from controller.model.relaunch.run import Cause, Run
from controller.model.relaunch.run import Outcome as RunOutcome
from controller.model.relaunch.view import view
from controller.recovery import Recovery
from controller.registry import Registry
from controller.store.base import Store
from controller.strategy.base import Failed, Outcome, Recovered
from controller.supervisors import Supervisors
from supervisor import wire

CLEANUP_SEC = 3.0
"""Of a cancelled run: abort goes to all who may be frozen, at once, and nobody is waited for longer."""
GRACE_SEC = 0.5
"""For the journal rows that close such a run."""
FOLLOWED = frozenset({RunOutcome.DONE, RunOutcome.RECOVERED_ITSELF, RunOutcome.OBSOLETE})


class EngineRelaunch:
    name = "engine_relaunch"

    def __init__(
        self,
        registry: Registry,
        supervisors: Supervisors,
        store: Store,
        max_concurrent_runs: int,
    ) -> None:
        self._registry = registry
        self._supervisors = supervisors
        self._store = store
        self._turns = trio.CapacityLimiter(max_concurrent_runs)

    async def execute(self, recovery: Recovery) -> Outcome:
        """One run, from its journal row to its end.

        Cancelled, it stops at once and then, shielded and for CLEANUP_SEC at most, sends abort to every
        supervisor that may be frozen by it and has not started (S07). With a durable store nothing is sent:
        another life of the controller resumes the run.
        """
        execution = _Execution(recovery, self._registry, self._supervisors, self._store)
        try:
            async with self._turns:
                await execution.begin()
                await execution.drive()
        finally:
            kind = CancelKind.SUSPEND if self._store.durable else CancelKind.ABORT
            with trio.move_on_after(CLEANUP_SEC + GRACE_SEC, shield=True):
                await execution.end(Cancel(kind, "the controller stops"))
            execution.close()
        return execution.outcome()


class _Execution:
    """One run being carried out."""

    def __init__(
        self,
        recovery: Recovery,
        registry: Registry,
        supervisors: Supervisors,
        store: Store,
    ) -> None:
        self._recovery = recovery
        self._registry = registry
        self._supervisors = supervisors
        self._store = store
        self._run: Run | None = None
        self._waiting: list[Action] = []
        """Decided and not yet carried out."""
        self._closed: Close | None = None
        self._is_deposed = False

    async def begin(self) -> None:
        """Open the run on the instance as it is now, after whatever came while it waited for its turn."""
        self._open(await self._registry.terms.claim())

    def _open(self, term: int) -> None:
        registry, recovery = self._registry, self._recovery
        instance = registry.under_recovery(recovery.instance).instance
        run, actions = plan.open_run(
            instance,
            recovery.cause,
            run_id=recovery.run_id,
            term=term,
            budget=registry.budget_of(instance),
            settings=registry.policy.relaunch,
            instance_settings=registry.policy.instance,
            now=trio.current_time(),
        )
        self._adopt(run, actions)

    async def drive(self) -> None:
        """Until the run is closed. Cancelled, requests under way are cut off, perhaps after their effect."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._carry_out(nursery)
                if self._run is None or self._is_over:
                    break
                self._step(await self._recovery.inbox.next(plan.deadline(self._run)))
            nursery.cancel_scope.cancel(reason="the run is closed")

    async def end(self, cancel: Cancel) -> None:
        """Close the run by `cancel` if it is still open, CLEANUP_SEC later whatever was answered."""
        if self._run is None:
            self._open(self._registry.terms.current)
        if self._is_over:
            return
        if self._run is not None and self._run.outcome is None:
            # What was decided and not begun must not begin any more.
            self._waiting.clear()
            self._recovery.inbox.clear()
            self._step(cancel)
        with trio.move_on_after(CLEANUP_SEC):
            await self.drive()
        if not self._is_over:
            self._step(exchange.Tick())
            await self.drive()

    def close(self) -> None:
        """Hand the instance back; synchronous, so that it happens in every case."""
        run = self._run
        if run is None:
            return
        now = trio.current_time()
        self._registry.close(self._recovery, view(run, wall_clock(now)), self._follow(), now)

    def outcome(self) -> Outcome:
        if self._closed is None:
            return Failed("the run was given up before its end")
        if self._closed.outcome in FOLLOWED:
            return Recovered(self._closed.message)
        return Failed(f"{self._closed.outcome}: {self._closed.message}")

    def _follow(self) -> Cause | None:
        """The run to open at once; else the instance itself says when it needs one."""
        if self._is_deposed:
            # Nobody else leads while this process serves: it goes on, with the higher term it then claims.
            return self._cause
        return self._closed.follow if self._closed else None

    # --- inside --------------------------------------------------------------------------------------------

    @property
    def _entry(self) -> Entry:
        return self._registry.under_recovery(self._recovery.instance)

    @property
    def _cause(self) -> Cause:
        """The run may have learnt more than what it was opened for."""
        return self._run.cause if self._run else self._recovery.cause

    @property
    def _is_over(self) -> bool:
        """Decided, recorded and told."""
        return self._run is not None and self._run.outcome is not None and not self._waiting

    def _step(self, event: Event) -> None:
        if self._run is None:
            raise RuntimeError("a run must be opened before its first event")
        run, actions = plan.step(self._run, event, trio.current_time())
        self._adopt(run, actions)

    def _adopt(self, run: Run, actions: Iterable[Action]) -> None:
        self._run = self._recovery.run = run
        self._waiting.extend(actions)

    async def _carry_out(self, nursery: trio.Nursery) -> None:
        while self._waiting:
            action = self._waiting[0]
            if isinstance(action, Send):
                if not self._is_deposed:
                    nursery.start_soon(self._send, action)
            else:
                await self._effect(action)
            # Only now: an effect that is cancelled is carried out again by `end`, and all may be repeated.
            self._waiting.pop(0)

    async def _send(self, send: Send) -> None:
        if self._run is None:
            return
        member = self._run.members[send.member].member
        answer = await self._supervisors.ask(member.address, send.request, send.timeout_sec)
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
            case exchange.Journal(record, reason):
                await self._store.save_run(record)
                self._tell("info", f"{record.step}: {reason}")
            case exchange.SaveBudget(budget, _):
                await self._store.save_budget(budget)
                registry.set_budget(budget)
            case exchange.InstanceInactive(reason):
                registry.change(entry, instances.deactivate(entry.instance, reason, now))
            case exchange.EpochBegins(epoch, _):
                registry.change(entry, instances.begin_epoch(entry.instance, epoch))
                await self._store.save_instance(entry.instance)
            case exchange.EpochAbandoned(_):
                registry.change(entry, instances.abandon(entry.instance))
            case exchange.InstanceHeld(reason):
                registry.change(entry, instances.hold(entry.instance, reason))
            case exchange.InstanceActive(record, reason):
                await self._store.save_active(record, instances.activate(entry.instance, reason, now))
                registry.change(entry, instances.activate(entry.instance, reason, now))
            case exchange.Emit(level, message, member):
                self._tell(str(level), message, member)
            case exchange.StepDown(term, reason):
                self._is_deposed = True
                registry.terms.learn(term)
                self._tell("warning", f"stepping down: {reason}")
            case Close():
                self._closed = action

    def _tell(self, level: str, message: str, member: MemberKey | None = None) -> None:
        """One line: which run, in which step, why it was opened, what now."""
        self._registry.tell(
            self._entry,
            "run",
            message,
            level=level,
            reason=f"{self._cause.reason}: {self._cause.text}",
            member=member,
        )
