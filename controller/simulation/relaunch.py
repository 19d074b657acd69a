"""One run of the real plan in virtual time: what `controller.strategy.engine_relaunch` does, without tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from controller.entry import Entry
from controller.model import instance as instances
from controller.model.member import Observation
from controller.model.relaunch import dispatch, exchange, plan
from controller.model.relaunch.effects import changed, undelivered
from controller.model.relaunch.exchange import Action, Answer, Answered, Close, Event, Send
from controller.model.relaunch.opening import new_run
from controller.model.relaunch.run import Cause, Run
from controller.model.relaunch.view import view
from controller.model.wanted import came_of
from controller.recovery import Recovery
from controller.registry import Registry
from controller.simulation.network import Network
from controller.simulation.surroundings import Life
from supervisor import wire

DAY_ONE = datetime(2026, 1, 1, tzinfo=UTC)


class Watcher(Protocol):
    """Who lets runs be carried out."""

    def held(self, entry: Entry) -> None: ...

    def refresh(self, entry: Entry) -> None:
        """The run is about to be told something: let it know what it has heard meanwhile."""

    def waits_for_containers(self, relaunch: Relaunch) -> None:
        """Its turn is another's."""

    def wants_turn(self, relaunch: Relaunch) -> None:
        """Its containers are all there again."""

    def stepped(self, relaunch: Relaunch) -> None:
        """Its run is in another step."""

    def closed(self, relaunch: Relaunch) -> None: ...


class Relaunch:
    def __init__(
        self, recovery: Recovery, registry: Registry, network: Network, life: Life, now: Callable[[], float],
        watcher: Watcher,
    ) -> None:  # fmt: skip
        self.recovery = recovery
        self._registry = registry
        self._network = network
        self._life = life
        self._now = now
        self._watcher = watcher
        self._run: Run | None = None
        self._due: float | None = None

    def begin(self) -> None:
        registry, recovery = self._registry, self.recovery
        recovery.inbox.forget_observations()
        instance = registry.under_recovery(recovery.instance).instance
        now = self._now()
        run = new_run(
            instance,
            recovery.cause,
            run_id=recovery.run_id,
            term=registry.terms.current,
            budget=registry.budgets.of(instance),
            settings=registry.policy.relaunch,
            instance_settings=registry.policy.instance,
            no_phase_two=self._why_no_phase_two(),
            now=now,
        )
        self._adopt(*plan.open_run(run, now))

    def drain_inbox(self) -> bool:
        """False if nothing was there."""
        took = False
        while self.recovery.run is not None and (event := self.recovery.inbox.take()) is not None:
            took = True
            self.step(event)
        return took

    def step(self, event: Event) -> None:
        if self._run is not None and self._run.outcome is None:
            self._adopt(*plan.step(self._told(self._run), event, self._now()))

    @property
    def wants_turn(self) -> bool:
        return self._run is not None and plan.wants_turn(self._run)

    @property
    def run(self) -> Run | None:
        return self._run

    # --- inside ------------------------------------------------------------------------------------------------

    @property
    def _entry(self) -> Entry:
        return self._registry.under_recovery(self.recovery.instance)

    def _told(self, run: Run) -> Run:
        registry = self._registry
        return registry.fleet.told(run, registry.living, lambda: registry.ahead_of(self.recovery), self._now())

    def _why_no_phase_two(self) -> str:
        """Of the fleet as it is at this moment."""
        registry = self._registry
        return registry.fleet.why_not(self.recovery.instance, registry.living, self._now())

    def _adopt(self, run: Run, actions: Iterable[Action]) -> None:
        before, self._run = self._run, run
        self._registry.fleet.note(before, run, self._now())
        self.recovery.run = run
        if before is None or run.step is not before.step:
            self._watcher.stepped(self)
        for action in actions:
            self._carry_out(action)
        if not plan.has_turn(run):
            self._watcher.waits_for_containers(self)
        self._watch_deadline()
        if plan.wants_turn(run):
            self._watcher.wants_turn(self)

    def _watch_deadline(self) -> None:
        assert self._run is not None
        due = plan.deadline(self._run)
        if due == self._due:
            return
        self._due = due
        if due is not None:
            self._life.at(due, lambda: self._deadline(due))

    def _deadline(self, due: float) -> None:
        if due == self._due and self._run is not None and self._run.outcome is None:
            self._due = None
            self._watcher.refresh(self._entry)
            self.step(exchange.Tick())

    def _send(self, send: Send) -> None:
        assert self._run is not None
        member, asked_at = self._run.members[send.member].member, self._now()

        def answered(answer: Answer) -> None:
            self._answered(send, answer, asked_at)

        self._network.ask(member.address, send.request, send.timeout_sec, answered)

    def _answered(self, send: Send, answer: Answer, asked_at: float) -> None:
        if not self._life.lives or self._run is None or self._run.outcome is not None:
            return
        entry = self._entry
        if order := undelivered(send, answer):
            entry.order(send.member, order, self._now())
        if isinstance(answer, Observation):
            self._registry.change(entry, instances.answered(entry.instance, send.member, answer, asked_at))
        else:
            self._watcher.refresh(entry)
        self.recovery.inbox.post(Answered(send.member, send.number, answer))
        self.drain_inbox()

    def _carry_out(self, action: Action) -> None:
        """Nothing here outlives a controller, nobody reads what is emitted, and there is one controller."""
        entry = self._entry
        self._registry.change(entry, changed(entry.instance, action, self._now()))
        match action:
            case Send():
                self._send(action)
            case exchange.SaveBudget(budget, _):
                self._registry.budgets.put(budget)
            case exchange.InstanceHeld():
                self._watcher.held(entry)
            case Close(_, _, follow):
                self._close(follow)

    def _close(self, follow: Cause | None) -> None:
        assert self._run is not None
        self._due = None
        self.recovery.follow = follow
        seen = view(dispatch.record(self._run, self._now()), _wall)
        self._registry.close(self.recovery, came_of(self._run), seen, self._now())
        self._watcher.closed(self)


def _wall(moment: float) -> str:
    """Whatever the day of a simulation is: a view has wall times."""
    return wire.timestamp(DAY_ONE + timedelta(seconds=moment))
