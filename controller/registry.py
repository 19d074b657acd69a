"""The one owner of all instances: what they are, what they need, which recovery each is under.

Every method is synchronous: without a checkpoint inside, one call is one transaction. What follows from what
was seen is decided by `controller.model`; what must be *done* about it is left in `opened`, `questions` and
`departures` for the strategy centre, which `attention` wakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, islice
from uuid import uuid4

import trio

from controller.agenda import Agenda
from controller.budgets import Budgets
from controller.clock import wall_clock
from controller.entry import Entry
from controller.events import EventLog
from controller.fleet import Fleet
from controller.model import assembly, budget, devices, identity
from controller.model import instance as instances
from controller.model.assembly import Joined, Rejected
from controller.model.budget import BudgetKey
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import Hold, Holder, Instance, InstanceEvent, InstanceStatus
from controller.model.member import InstanceKey, Member, MemberKey, Observation, same_boot
from controller.model.outcome import Ended
from controller.model.relaunch.exchange import Answer, CancelKind, Heartbeat, MemberSilent, Registered
from controller.model.relaunch.run import Outcome, RunReason, RunRecord
from controller.model.relaunch.view import view
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.silence import changes_at, is_no_news
from controller.model.verdict import AskDirectly, judge
from controller.model.wanted import Wanted, ended, follows, follows_no_more, recovery_wanted, wanted_for_a_device
from controller.notices import Notices
from controller.policy import Policy
from controller.recovery import Recovery
from controller.roster import Roster
from controller.run_metrics import RunMetrics
from controller.store.base import CLOSED_RUNS_KEPT, Loaded
from controller.terms import Terms
from supervisor import wire

OUT_OF_ROUTING = frozenset({InstanceEvent.ABNORMAL, InstanceEvent.HEARTBEAT_TIMEOUT})

Unsaved = InstanceKey | BudgetKey | RunRecord
"""An instance or a budget, to be written as it is by then; the last row of a run that was handed back without."""


@dataclass(frozen=True, slots=True)
class Departure:
    """An instance that is DELETED, and who of it must still be told to stop."""

    instance: Instance
    to_stop: tuple[Member, ...]


class Registry(Roster):
    def __init__(
        self,
        policy: Policy,
        events: EventLog,
        terms: Terms,
        loaded: Loaded,
        new_run_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        super().__init__(loaded.instances)
        self.policy = policy
        self.events = events
        self.notices = Notices(events)
        self.terms = terms
        self.opened: deque[Recovery] = deque()
        """Recoveries that wait for a strategy to begin."""
        self.questions: deque[Member] = deque()
        """Members that must be asked directly because they are silent."""
        self.departures: deque[Departure] = deque()
        self.attention = trio.Event()
        """Replaced whenever one of the four gets longer; take it before you look."""
        self.unsaved: dict[Unsaved, None] = {}
        """What has changed since it was written down, in that order."""
        self.closed_runs: deque[wire.RunView] = deque(maxlen=CLOSED_RUNS_KEPT)
        """Newest first."""
        self.run_metrics = RunMetrics()
        for record in islice(loaded.closed_runs, CLOSED_RUNS_KEPT):
            self.closed_runs.append(view(record, wall_clock(trio.current_time())))
        self._agenda = Agenda()
        for entry in self.entries():
            self._agenda.put(entry, 0.0)
        self.next_id = loaded.next_instance_id
        self.budgets = Budgets(loaded.budgets)
        self.fleet = Fleet(policy.fleet)
        self.fleet.recall((*loaded.closed_runs, *loaded.runs.values()), loaded.instances)
        self._choices = policy.choices
        self._new_run_id = new_run_id
        self._numbers = count()
        for key, record in sorted(loaded.runs.items(), key=lambda each: each[1].opened_at):
            self._reopen(key, record)

    # --- members -------------------------------------------------------------------------------------------

    def joined(self, answer: Joined | Rejected, boot_id: str | None, now: float) -> None:
        """A registration was judged; a refused one too may show that an earlier life is over."""
        if answer.instance is None:
            return
        key = answer.instance.key
        entry = self.of_key(key)
        if entry is None:
            entry = self._enter(answer.instance)
            self._agenda.put(entry, now)
        self.next_id = max(self.next_id, answer.instance.id + 1)
        if entry.recovery and answer.instance.spec != entry.instance.spec:
            # It concerns a gang that is no more. First of all, so that none of the newcomers is seated in its run.
            entry.recovery.cancel(CancelKind.OVERTAKEN, f"the gang starts over: {answer.instance.reason}")
        entry.instance = devices.of_the_same_places(entry.instance, answer.instance)
        self.to_be_kept(key)
        if isinstance(answer, Joined):
            entry.refused = ""
            if answer.life is not assembly.Life.SAME:
                self.notices.joined(entry, answer)
                self._life_over(entry, answer.place, boot_id, entry.instance.member(answer.member))
        elif answer.superseded is not None:
            self._life_over(entry, answer.superseded, boot_id, None)
        self.consider(entry, now)

    def observe(self, entry: Entry, member: MemberKey, seen: Observation, now: float) -> None:
        if entry.recovery is None and is_no_news(entry.instance, member, seen, now, self.policy.instance):
            entry.instance = instances.heard_again(entry.instance, member, seen)
            return
        epochs, before = _epochs(entry.instance), entry.instance.member(member)
        entry.instance = instances.observe(entry.instance, member, seen)
        if _epochs(entry.instance) != epochs:
            self.to_be_kept(entry.instance.key)
        if before and before.unreachable_since is not None and same_boot(before.boot_id, seen.boot_id):
            self.notices.heard_again(entry, before)
        if entry.recovery:
            entry.recovery.inbox.post(Heartbeat(member, seen))
        self.consider(entry, now)

    # --- time ----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Once a second: what silence means, who is waited for too long, whose budget is whole again."""
        self.renew_budgets(now)
        for entry in list(self._agenda.due(now)):
            if self.of_key(entry.instance.key) is not entry:
                continue
            self.notices.incomplete(entry, self.policy.assemble_timeout_sec, now)
            self.consider(entry, now)
            self._agenda.put(
                entry, changes_at(entry.instance, now, self.policy.instance, self.policy.assemble_timeout_sec)
            )

    def renew_budgets(self, now: float) -> None:
        """Of those who have served for long enough; nobody waits until that is written down."""
        for spent in self.budgets.spent():
            entry = self.of_key(spent.key.instance)
            if entry is None or entry.instance.spec.config_digest != spent.key.config_digest:
                continue
            is_active = entry.instance.status is InstanceStatus.ACTIVE
            if is_active and now >= budget.stable_at(entry.instance.since, self.policy.relaunch):
                self.budgets.put(budget.reset(spent))
                self.to_be_kept(spent.key)

    def answered_directly(self, member: Member, answer: Answer, now: float) -> None:
        """A silent member was asked for its status. `member` is as it was then."""
        entry = self.of_key(member.key.instance)
        if entry is None:
            return
        entry.asked.discard(member.key)
        here = entry.instance.member(member.key)
        if here is None or here.boot_id != member.boot_id or here.last_heard > member.last_heard:
            # Meanwhile it was heard, or a new life has taken its place.
            return
        # Another boot's answer proves that this life is over, whatever is there now.
        if isinstance(answer, Observation) and same_boot(member.boot_id, answer.boot_id):
            self.observe(entry, member.key, answer, now)
            return
        entry.instance = instances.unreachable(entry.instance, member.key, now)
        self.notices.silent(entry, member, answer, now)
        if entry.recovery:
            entry.recovery.inbox.post(MemberSilent(member.key))
        self.consider(entry, now)

    def doubt(self, entry: Entry, member: MemberKey) -> None:
        """Something else than its silence says that it is gone: it is asked directly, which alone is believed."""
        self._ask(entry, AskDirectly((member,)))

    # --- devices -------------------------------------------------------------------------------------------

    def device_reported(self, entry: Entry, fault: Fault, now: float) -> None:
        """Sick or healthy: what follows from it is begun, or waits for the end of what runs."""
        is_sick = fault.level is not FaultLevel.HEALTHY
        told = devices.present(entry.instance, fault) if is_sick else devices.healthy(entry.instance, fault.identity)
        if told == entry.instance:
            return
        self.change(entry, told)
        level = "warning" if is_sick else "info"
        self.notices.tell(entry, "fault", fault.message, level=level, member=fault.identity.member)
        self.consider(entry, now)

    # --- recoveries ----------------------------------------------------------------------------------------

    def open(self, entry: Entry, wanted: Wanted, now: float) -> Recovery:
        """The recovery of this instance: a new one, unless one is open (C1)."""
        if entry.recovery is None:
            entry.recovery = Recovery(
                entry.instance.key,
                self._new_run_id(),
                wanted.cause,
                now,
                next(self._numbers),
                wanted.strategy,
                wanted.level,
                wanted.fault,
                began_with=entry.instance.faults,
            )
            entry.told_waiting = False
            entry.forget_orders()
            self.opened.append(entry.recovery)
            self._call_attention()
        return entry.recovery

    def wait_sec(self, entry: Entry, now: float) -> float:
        """For how long its relaunch, on its canary alone, will let others go first."""
        recovery = entry.recovery
        if recovery is None or not recovery.is_to_begin_on_canary:
            return 0.0
        waits = self.fleet.put_off(entry.instance, self.ahead_of(recovery), now)
        return waits.until - now if waits else 0.0

    def broke(self, recovery: Recovery, why: str) -> None:
        """Its own code has failed. The instance is held, or the same would break again and again.

        Another run stops its engines then. If that is what broke, their supervisors are told to leave by the answers to
        their heartbeats.
        """
        entry = self.under_recovery(recovery.instance)
        instance = entry.instance
        if recovery.cause.reason is RunReason.HOLD:
            instance = instances.leave_epoch(instance, [member.key for member in instance.members])
        alarm = f"{why}; held until an operator resets it (reset-failed) or releases it"
        self.change(entry, instances.hold(instance, instance.held or Hold(Holder.FLEET, alarm)))
        self.notices.tell(entry, "run", alarm, level="error", reason=recovery.cause.text)
        if recovery.run is not None and recovery.run.outcome is None:
            recovery.run = replace(recovery.run, outcome=Outcome.ABORTED, message=why)

    def close(self, recovery: Recovery, outcome: Ended, closed: wire.RunView, now: float) -> None:
        """The recovery is over: the instance is judged anew by what its members say and what its devices have."""
        entry = self.under_recovery(recovery.instance)
        entry.recovery_closed()
        self.change(entry, instances.epoch_commanded(entry.instance, closed.epoch))
        self.change(entry, ended(entry.instance, recovery.began_with, recovery.strategy, outcome))
        if follows_no_more(recovery.cause, outcome) and recovery.gives_way_to is None:
            self.change(entry, identity.forgotten(entry.instance))
        self.closed_runs.appendleft(closed)
        if recovery.strategy == ENGINE_RELAUNCH:
            self.run_metrics.closed(closed)
        if follow := follows(entry.instance, recovery.strategy, outcome, recovery.follow, self._choices):
            self.open(entry, follow, now)
        self.consider(entry, now)
        if entry.recovery is None:
            entry.let_go(recovery, self.terms.current, now)

    def change(self, entry: Entry, changed: Instance) -> None:
        """Replace the instance; a new status is an event, and that it serves in a new epoch is another."""
        before, entry.instance = entry.instance, changed
        if changed != before and instances.kept(changed) != instances.kept(before):
            self.to_be_kept(changed.key)
        if identity.is_new(changed):
            self._introduce(entry)
        self.notices.changed(entry, before.status)

    def to_be_kept(self, what: Unsaved) -> None:
        """The journal does not have it as it is now; nobody waits for that."""
        self.unsaved[what] = None
        self._call_attention()

    def consider(self, entry: Entry, now: float) -> None:
        """Whatever has happened: what is the instance now, and what does it need?"""
        self._judge(entry, now)
        if entry.recovery is not None:
            self._preempt(entry, entry.recovery)
            return
        if entry.instance.terminating:
            self.change(entry, instances.delete(entry.instance, entry.instance.terminating, now))
        if entry.instance.status is InstanceStatus.DELETED:
            self._drop(entry)
        elif wanted := recovery_wanted(entry.instance, self.policy.relaunch, self._choices):
            self.open(entry, wanted, now)
        else:
            self.notices.waiting(entry)

    # --- inside --------------------------------------------------------------------------------------------

    def _reopen(self, key: InstanceKey, record: RunRecord) -> None:
        """Another life of the controller has opened it. Without its instance nobody is left to be told."""
        entry = self.of_key(key)
        if entry is None:
            return
        number = next(self._numbers)
        entry.recovery = Recovery(key, record.run_id, record.cause, record.opened_at, number, record=record)
        self.opened.append(entry.recovery)
        if entry.instance.terminating:
            entry.recovery.cancel(CancelKind.DELETED, entry.instance.terminating)

    def _introduce(self, entry: Entry) -> None:
        """To whoever follows the events, and to those who must follow it; these are looked at by the next tick."""
        self.notices.introduced(entry)
        living = [other.instance for other in self.entries()]
        for outdated in identity.followers(entry.instance, living, self.policy.relaunch):
            follower = self.entry(outdated.id)
            self.change(follower, outdated)
            self._agenda.put(follower, at=0.0)
        entry.instance = identity.told(entry.instance)
        # After the followers: killed in between, the next life tells it again, and nobody is forgotten.
        self.unsaved.pop(entry.instance.key, None)
        self.to_be_kept(entry.instance.key)

    def _preempt(self, entry: Entry, recovery: Recovery) -> None:
        """What it gives way to is opened at its end, when it has cleaned up."""
        graver = wanted_for_a_device(entry.instance, self._choices)
        if graver is not None and graver.fault is not None and graver.level > recovery.level:
            recovery.give_way(graver.fault)

    def _life_over(self, entry: Entry, place: MemberKey, boot_id: str | None, newcomer: Member | None) -> None:
        entry.forget_orders(place)
        if entry.recovery:
            entry.recovery.inbox.post(Registered(place, boot_id, newcomer))

    def _judge(self, entry: Entry, now: float) -> None:
        recovery = entry.recovery
        verdict = judge(entry.instance, recovery is not None and recovery.run is not None, now, self.policy.instance)
        if isinstance(verdict, AskDirectly):
            self._ask(entry, verdict)
        elif verdict is not None and (recovery is None or verdict.event in OUT_OF_ROUTING):
            # The second while a run waits for its turn: until then nobody else takes the instance out.
            was_active = entry.instance.status is InstanceStatus.ACTIVE
            self.change(entry, instances.transition(entry.instance, verdict, now))
            if entry.instance.status is InstanceStatus.DELETED and entry.recovery:
                entry.recovery.cancel(CancelKind.DELETED, entry.instance.reason)
            elif was_active and verdict.event is InstanceEvent.HEARTBEAT_TIMEOUT:
                # Whom all have left is out of routing and then DELETED, without that any time has to pass.
                self._judge(entry, now)

    def _ask(self, entry: Entry, verdict: AskDirectly) -> None:
        for key in verdict.members:
            member = entry.instance.member(key)
            if member is not None and key not in entry.asked:
                entry.asked.add(key)
                self.questions.append(member)
                self._call_attention()

    def _drop(self, entry: Entry) -> None:
        """DELETED. Who was silent or has left needs no stop; who comes back is told to register anew."""
        deleted = entry.instance
        self._strike(deleted)
        to_stop = deleted.members if deleted.terminating else ()
        self.departures.append(Departure(deleted, to_stop))
        self._call_attention()

    def _call_attention(self) -> None:
        self.attention.set()
        self.attention = trio.Event()


def _epochs(instance: Instance) -> tuple[int, int]:
    """All of an instance that a heartbeat can change and that is kept."""
    return instance.epoch, instance.highest_epoch
