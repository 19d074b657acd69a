"""The one owner of all instances: what they are, what they need, which recovery each is under.

Every method is synchronous: without a checkpoint inside, one call is one transaction. What follows from what
was seen is decided by `controller.model`; what must be *done* about it is left in `opened`, `questions` and
`departures` for the strategy centre, which `attention` wakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import trio

from controller.agenda import Agenda
from controller.budgets import Budgets
from controller.clock import wall_clock
from controller.entry import Entry
from controller.events import EventLog
from controller.fleet import Fleet
from controller.model import assembly, budget, devices
from controller.model import instance as instances
from controller.model.assembly import Joined, Rejected
from controller.model.budget import Budget
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import AskDirectly, Instance, InstanceEvent, InstanceStatus
from controller.model.member import InstanceKey, Member, MemberKey, Observation, same_boot
from controller.model.need import not_prepared, waits_for
from controller.model.outcome import Ended, Failed
from controller.model.relaunch.exchange import (
    Answer,
    CancelKind,
    Heartbeat,
    MemberSilent,
    Refused,
    Registered,
    Unreachable,
)
from controller.model.relaunch.run import RunRecord
from controller.model.relaunch.view import view
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.silence import changes_at, is_no_news
from controller.model.wanted import Wanted, ended, escalated, recovery_wanted, wanted_for_a_device
from controller.policy import Policy
from controller.recovery import Recovery
from controller.run_metrics import RunMetrics
from controller.store.base import CLOSED_RUNS_KEPT, PAST_INSTANCES_KEPT, Loaded
from controller.terms import Terms
from supervisor import wire

OUT_OF_ROUTING = frozenset({InstanceEvent.ABNORMAL, InstanceEvent.HEARTBEAT_TIMEOUT})


class NoSuchInstance(Exception):
    """None that lives has this id."""


@dataclass(frozen=True, slots=True)
class Departure:
    """An instance that is DELETED, and who of it must still be told to stop."""

    instance: Instance
    to_stop: tuple[Member, ...]


class Registry:
    def __init__(
        self,
        policy: Policy,
        events: EventLog,
        terms: Terms,
        loaded: Loaded,
        new_run_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.policy = policy
        self.events = events
        self.terms = terms
        self.opened: deque[Recovery] = deque()
        """Recoveries that wait for a strategy to begin."""
        self.questions: deque[Member] = deque()
        """Members that must be asked directly because they are silent."""
        self.departures: deque[Departure] = deque()
        self.attention = trio.Event()
        """Replaced whenever one of the four gets longer; take it before you look."""
        self.unsaved: dict[InstanceKey, None] = {}
        """Instances that have changed since they were written down, in that order."""
        self.closed_runs: deque[wire.RunView] = deque(maxlen=CLOSED_RUNS_KEPT)
        """Newest first."""
        self.run_metrics = RunMetrics()
        for record in loaded.closed_runs:
            self.closed_runs.append(view(record, wall_clock(trio.current_time())))
        self._entries: dict[InstanceKey, Entry] = {}
        self._by_id: dict[int, Entry] = {}
        self._agenda = Agenda()
        self._past: dict[InstanceKey, Instance] = {}
        """The last of each key that is not living: its epoch goes on."""
        for key, instance in loaded.instances.items():
            if instance.status is InstanceStatus.DELETED:
                self._past[key] = instance
            else:
                self._add(Entry(instance), now=0.0)
        self.next_id = loaded.next_instance_id
        self.budgets = Budgets(loaded.budgets)
        self.fleet = Fleet(policy.fleet)
        self._choices = policy.choices
        self._new_run_id = new_run_id
        for key, record in loaded.runs.items():
            self._reopen(key, record)

    # --- what is known -------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """By id."""
        return sorted(self._entries.values(), key=lambda entry: entry.instance.id)

    @property
    def living(self) -> int:
        """How many instances."""
        return len(self._entries)

    def entry(self, instance_id: int) -> Entry:
        """Raises NoSuchInstance."""
        if (entry := self._by_id.get(instance_id)) is None:
            raise NoSuchInstance(f"no living instance has the id {instance_id}")
        return entry

    def has(self, instance_id: int) -> bool:
        return instance_id in self._by_id

    def of_key(self, key: InstanceKey) -> Entry | None:
        return self._entries.get(key)

    def newest(self, key: InstanceKey) -> Instance | None:
        """The living one, else the last that was deleted, so that the epoch of the key goes on."""
        entry = self._entries.get(key)
        return entry.instance if entry else self._past.get(key)

    def under_recovery(self, key: InstanceKey) -> Entry:
        """While a recovery is open its entry stays."""
        return self._entries[key]

    def recoveries(self) -> list[Recovery]:
        """Open ones, newest first."""
        found = [entry.recovery for entry in self._entries.values() if entry.recovery]
        return sorted(found, key=lambda recovery: recovery.since, reverse=True)

    # --- members -------------------------------------------------------------------------------------------

    def joined(self, answer: Joined | Rejected, boot_id: str | None, now: float) -> None:
        """A registration was judged; a refused one too may show that an earlier life is over."""
        if answer.instance is None:
            return
        key = answer.instance.key
        entry = self._entries.get(key)
        if entry is None:
            entry = self._add(Entry(answer.instance), now)
            self._past.pop(key, None)
        self.next_id = max(self.next_id, answer.instance.id + 1)
        entry.instance = devices.of_the_same_places(entry.instance, answer.instance)
        self._to_be_kept(key)
        if isinstance(answer, Joined):
            entry.refused = ""
            if answer.life is not assembly.Life.SAME:
                self.tell(entry, "member", _welcome(answer), member=answer.member)
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
            self._to_be_kept(entry.instance.key)
        if before and before.unreachable_since is not None and same_boot(before.boot_id, seen.boot_id):
            self.tell(entry, "member", f"{before.address} is heard again", member=member)
        if entry.recovery:
            entry.recovery.inbox.post(Heartbeat(member, seen))
        self.consider(entry, now)

    # --- time ----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Once a second: what silence means, and who is waited for too long."""
        for entry in list(self._agenda.due(now)):
            if self.of_key(entry.instance.key) is not entry:
                continue
            self._tell_if_incomplete(entry, now)
            self.consider(entry, now)
            self._agenda.put(
                entry, changes_at(entry.instance, now, self.policy.instance, self.policy.assemble_timeout_sec)
            )

    def stable(self, now: float) -> Iterator[Budget]:
        """Budgets that became whole again; the caller writes them down and then puts them back."""
        for spent in self.budgets.spent():
            entry = self.of_key(spent.key.instance)
            if entry is None or entry.instance.spec.config_digest != spent.key.config_digest:
                continue
            is_active = entry.instance.status is InstanceStatus.ACTIVE
            if is_active and now >= budget.stable_at(entry.instance.since, self.policy.relaunch):
                yield budget.reset(spent)

    def answered_directly(self, member: Member, answer: Answer, now: float) -> None:
        """A silent member was asked for its status. `member` is as it was then."""
        entry = self._entries.get(member.key.instance)
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
        silent = f"no heartbeat of {member.address} for {now - member.last_heard:.0f} s"
        self.tell(entry, "member", f"{silent}; asked directly: {_words(answer)}", level="warning", member=member.key)
        if entry.recovery:
            entry.recovery.inbox.post(MemberSilent(member.key))
        self.consider(entry, now)

    # --- devices -------------------------------------------------------------------------------------------

    def device_reported(self, entry: Entry, fault: Fault, now: float) -> None:
        """Sick or healthy: what follows from it is begun, or waits for the end of what runs."""
        is_sick = fault.level is not FaultLevel.HEALTHY
        told = devices.present(entry.instance, fault) if is_sick else devices.healthy(entry.instance, fault.identity)
        if told == entry.instance:
            return
        self.change(entry, told)
        self.tell(entry, "fault", fault.message, level="warning" if is_sick else "info", member=fault.identity.member)
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

    def close(self, recovery: Recovery, outcome: Ended, closed: wire.RunView, now: float) -> None:
        """The recovery is over: the instance is judged anew by what its members say and what its devices have."""
        entry = self._entries[recovery.instance]
        entry.recovery_closed()
        self.change(entry, instances.epoch_commanded(entry.instance, closed.epoch))
        self.change(entry, ended(entry.instance, recovery.began_with, recovery.strategy, outcome))
        self.closed_runs.appendleft(closed)
        if recovery.strategy == ENGINE_RELAUNCH:
            self.run_metrics.closed(closed)
        if follow := self._follow(entry, recovery, outcome):
            self.open(entry, follow, now)
        self.consider(entry, now)
        if entry.recovery is None:
            self._let_go(entry, recovery, now)

    def _follow(self, entry: Entry, recovery: Recovery, outcome: Ended) -> Wanted | None:
        """What is to be opened at once, whatever the instance looks like, but for what is graver."""
        if entry.instance.terminating or entry.instance.held:
            return None
        follow = Wanted(ENGINE_RELAUNCH, recovery.follow) if recovery.follow is not None else None
        if isinstance(outcome, Failed) and recovery.strategy != ENGINE_RELAUNCH:
            follow = escalated(entry.instance, self._choices)
        graver = wanted_for_a_device(entry.instance, self._choices)
        return None if follow and graver and graver.level > follow.level else follow

    def _let_go(self, entry: Entry, recovery: Recovery, now: float) -> None:
        """Whoever was told to wait for the end of a strategy need not wait for the end of its freeze (S07)."""
        for key in entry.waiting if recovery.strategy != ENGINE_RELAUNCH else ():
            if member := entry.instance.member(key):
                order = wire.Order(
                    order=wire.OrderKind.ABORT,
                    term=self.terms.current,
                    run_id=recovery.run_id,
                    boot_id=member.boot_id,
                    reason=f"{recovery.strategy} is over and nothing follows",
                )
                entry.order(key, order, now)
        entry.waiting.clear()

    def change(self, entry: Entry, changed: Instance) -> None:
        """Replace the instance; a new status is an event."""
        before, entry.instance = entry.instance, changed
        if changed != before and instances.kept(changed) != instances.kept(before):
            self._to_be_kept(changed.key)
        if changed.status is not before.status:
            self.tell(
                entry,
                "instance",
                f"{before.status} -> {changed.status}: {changed.reason}",
                level="warning" if _is_alarming(changed) else "info",
                reason=changed.reason,
            )

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
            self._tell_if_waiting(entry)

    def tell(
        self,
        entry: Entry,
        kind: str,
        message: str,
        *,
        level: str = "info",
        reason: str | None = None,
        member: MemberKey | None = None,
    ) -> None:
        """An event about this instance."""
        instance = entry.instance
        run = entry.recovery.run if entry.recovery else None
        self.events.append(
            kind,
            message,
            level=level,
            namespace=instance.key.namespace,
            job_name=instance.key.job_name,
            instance_id=instance.id,
            status=str(instance.status),
            run_id=entry.recovery.run_id if entry.recovery else None,
            step=entry.recovery.step if entry.recovery else None,
            epoch=run.epoch if run else instance.epoch,
            reason=reason,
            member=str(member) if member else None,
        )

    # --- inside --------------------------------------------------------------------------------------------

    def _add(self, entry: Entry, now: float) -> Entry:
        self._entries[entry.instance.key] = self._by_id[entry.instance.id] = entry
        self._agenda.put(entry, now)
        return entry

    def _reopen(self, key: InstanceKey, record: RunRecord) -> None:
        """Another life of the controller has opened it. Without its instance nobody is left to be told."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.recovery = Recovery(key, record.run_id, record.cause, record.opened_at, record=record)
        self.opened.append(entry.recovery)
        if entry.instance.terminating:
            entry.recovery.cancel(CancelKind.DELETED, entry.instance.terminating)

    def _to_be_kept(self, key: InstanceKey) -> None:
        self.unsaved[key] = None
        self._call_attention()

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
        verdict = instances.judge(
            entry.instance, recovery is not None and recovery.run is not None, now, self.policy.instance
        )
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
        del self._entries[deleted.key]
        del self._by_id[deleted.id]
        self._past[deleted.key] = deleted
        if len(self._past) > PAST_INSTANCES_KEPT:
            del self._past[next(iter(self._past))]
        to_stop = deleted.members if deleted.terminating else ()
        self.departures.append(Departure(deleted, to_stop))
        self._call_attention()

    def _tell_if_waiting(self, entry: Entry) -> None:
        """Once, what keeps a complete gang from being started; who is missing is told by registrations."""
        instance = entry.instance
        if entry.told_waiting or not instance.complete or instance.held or not not_prepared(instance):
            return
        if waiting := waits_for(instance):
            entry.told_waiting = True
            self.tell(entry, "member", waiting)

    def _tell_if_incomplete(self, entry: Entry, now: float) -> None:
        instance = entry.instance
        is_overdue = now - instance.last_registration_at > self.policy.assemble_timeout_sec
        if instance.complete or not is_overdue or entry.told_incomplete_at == instance.last_registration_at:
            return
        entry.told_incomplete_at = instance.last_registration_at
        self.tell(entry, "instance", f"not assembled: {assembly.missing(instance)}", level="warning")

    def _call_attention(self) -> None:
        self.attention.set()
        self.attention = trio.Event()


def _epochs(instance: Instance) -> tuple[int, int]:
    """All of an instance that a heartbeat can change and that is kept."""
    return instance.epoch, instance.highest_epoch


def _is_alarming(instance: Instance) -> bool:
    """Who leaves was asked to: that is no alarm."""
    bad = instance.status in (InstanceStatus.INACTIVE, InstanceStatus.DELETED)
    return bad and not any(member.leaving for member in instance.members)


def _welcome(joined: Joined) -> str:
    """Who came, in which life, and who is still missing."""
    member = joined.instance.member(joined.member)
    who = f"{member.address} registered as node {member.node_rank}" if member else str(joined.member)
    if joined.life is assembly.Life.NEW_BOOT:
        who += ", its container restarted" if joined.place == joined.member else f", in place of {joined.place.node}"
    if member and member.previous_container:
        who += f" (the one before was {member.previous_container})"
    return f"{who}: {assembly.missing(joined.instance) or 'all are here'}"


def _words(answer: Answer) -> str:
    """Why a direct question was not answered by the life that was asked."""
    if isinstance(answer, Observation):
        return "another boot answers, its container restarted"
    return answer.message if isinstance(answer, Unreachable | Refused) else str(answer)
