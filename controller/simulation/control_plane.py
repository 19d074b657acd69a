"""The controller of a modelled fleet: the real registry, reception and plan, with virtual time for their shell.

What `controller.center` and the strategy's tasks do once a second or when they are woken is done here when it is due:
a look at an instance in which neither time nor news can have changed anything is left out.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from controller.entry import Entry
from controller.events import EventLog
from controller.model import instance as instances
from controller.model.assembly import Joined, Rejected
from controller.model.budget import reset, stable_at
from controller.model.instance import InstanceStatus
from controller.model.member import InstanceKey, Member
from controller.model.relaunch.exchange import Answer, Heartbeat, Probe, TurnCame
from controller.operators import Operators
from controller.reception import Reception
from controller.recovery import Recovery
from controller.registry import Registry
from controller.roster import NoSuchInstance
from controller.simulation.network import Network
from controller.simulation.pod import Pod, job_name, number_of
from controller.simulation.pulse import ROUNDING, Pulse
from controller.simulation.relaunch import Relaunch
from controller.simulation.supervisor import Supervisor
from controller.simulation.surroundings import Life, Surroundings
from controller.simulation.told import Told, What
from controller.store.base import Loaded
from controller.store.memory import MemoryStore
from controller.terms import Terms
from supervisor import wire

TICK_SEC = 1.0
"""Of the strategy centre."""
NAMESPACE = "default"


class ControlPlane:
    """One life of the controller."""

    def __init__(
        self, surroundings: Surroundings, network: Network, pods: Mapping[str, Pod], term: int, first_id: int
    ) -> None:
        self._around = surroundings
        self._network = network
        self._pods = pods
        self._began = surroundings.now
        self._life = Life(surroundings.agenda)
        policy = surroundings.scenario.policy
        events = EventLog(lines=logging.Logger("unheard", level=logging.CRITICAL + 1))
        self._runs = 0
        self._term = term
        self.registry = Registry(
            policy,
            events,
            Terms(MemoryStore(first_id), term),
            Loaded(term=term, next_instance_id=first_id),
            new_run_id=self._new_run_id,
        )
        self._reception = Reception(self.registry)
        self._operators = Operators(self.registry)
        self._turns = policy.max_concurrent_runs
        self._queue: deque[Recovery] = deque()
        self._relaunches: dict[InstanceKey, Relaunch] = {}
        self._has_turn: set[str] = set()
        """By run id."""
        self._looks: dict[InstanceKey, float] = {}
        self._told: dict[InstanceKey, InstanceStatus] = {}
        self._touched: set[InstanceKey] = set()

    @property
    def term(self) -> int:
        return self.registry.terms.current

    @property
    def now(self) -> float:
        return self._around.now

    def die(self) -> None:
        """With everything it knew."""
        self._life.lives = False

    def entry_of(self, number: int) -> Entry | None:
        return self.registry.of_key(_key(job_name(number)))

    # --- from supervisors ----------------------------------------------------------------------------------------

    def register(self, message: wire.RegisterMsg) -> Joined | Rejected:
        with self._news_of(message.job_name):
            return self._reception.register(message, self.now)

    def reregister(self, message: wire.ReregisterMsg) -> Joined | Rejected:
        with self._news_of(message.job_name):
            return self._reception.reregister(message, self.now)

    def heartbeat(self, message: wire.HeartbeatMsg) -> wire.HeartbeatAnswer:
        with self._news_of(message.job_name):
            return self._reception.heartbeat(message, self.now)

    def report(self, message: wire.SoftwareFaultMsg) -> wire.FaultAnswer:
        assert message.job_name is not None, "every modelled supervisor names its job"
        with self._news_of(message.job_name):
            return self._reception.report_software_fault(message, self.now)

    def run_of(self, job_name: str, now: float) -> str | None:
        entry = self.registry.of_key(_key(job_name))
        recovery = entry.recovery if entry is not None else None
        return recovery.run_id if recovery is not None and recovery.since <= now else None

    def look(self, job_name: str) -> None:
        """What the strategy centre does once a second."""
        self.registry.renew_budgets(self.now)
        with self._news_of(job_name):
            if (entry := self.registry.of_key(_key(job_name))) is not None:
                self.registry.consider(entry, self.now)

    def watch(self, job_name: str) -> None:
        """What its members' silence will mean has to be looked at, from now on."""
        with self._news_of(job_name):
            """Nothing but what time will bring."""

    # --- what it has heard meanwhile -----------------------------------------------------------------------------

    def refresh(self, entry: Entry) -> None:
        """Every member was last heard when its rhythm says so, though no heartbeat without news was sent here."""
        for member in entry.instance.members:
            self._refresh(entry, member)

    def _refresh(self, entry: Entry, member: Member) -> None:
        seen, supervisor = member.observation, self._supervisor_of(member)
        if seen is None or supervisor is None:
            return
        heard_at = supervisor.pulse.last_taken(self.now)
        if heard_at <= seen.received_at:
            return
        frozen = supervisor.operation.freeze_remaining(heard_at)
        heard = replace(seen, received_at=heard_at, freeze_remaining_sec=frozen)
        entry.instance = instances.observe(entry.instance, member.key, heard)
        relaunch = self._relaunches.get(entry.instance.key)
        if relaunch is not None:
            relaunch.step(Heartbeat(member.key, heard))

    def _supervisor_of(self, member: Member) -> Supervisor | None:
        """That is in the boot which this member is known in."""
        pod = self._pods.get(member.ip)
        supervisor = pod.supervisor if pod is not None else None
        return supervisor if supervisor is not None and supervisor.boot_id == member.boot_id else None

    # --- what follows from it ------------------------------------------------------------------------------------

    @contextmanager
    def _news_of(self, job_name: str) -> Iterator[None]:
        key = _key(job_name)
        if (entry := self.registry.of_key(key)) is not None:
            self.refresh(entry)
        self._touched.add(key)
        yield
        self._settle()

    def _settle(self) -> None:
        """Until the registry wants nothing more and no run has anything left to read."""
        while self._begin_what_is_wanted() or self._let_runs_read() or self._let_runs_go_on():
            pass
        touched, self._touched = self._touched, set()
        for key in sorted(touched):
            self._tell_status(key)
            self._watch(key)

    def _let_runs_read(self) -> bool:
        took = [relaunch.drain_inbox() for relaunch in list(self._relaunches.values())]
        return any(took)

    def _let_runs_go_on(self) -> bool:
        """Those whose containers are all there again, for whom no turn was free."""
        waiting = [relaunch for relaunch in self._relaunches.values() if relaunch.wants_turn][: self._turns]
        for relaunch in waiting:
            self.wants_turn(relaunch)
        return bool(waiting)

    def _take_turn(self, recovery: Recovery) -> None:
        self._turns -= 1
        self._has_turn.add(recovery.run_id)

    def _begin_what_is_wanted(self) -> bool:
        registry = self.registry
        self._queue.extend(registry.opened)
        registry.opened.clear()
        registry.departures.clear()  # nobody terminates an instance here, so nobody is told to stop
        questions = list(registry.questions)
        registry.questions.clear()
        for member in questions:
            self._ask(member)
        withdrawn = [recovery for recovery in self._queue if recovery.withdrawn is not None]
        begun = withdrawn + [recovery for recovery in self._queue if recovery.withdrawn is None][: self._turns]
        for recovery in begun:
            self._queue.remove(recovery)
            if recovery.withdrawn is None:
                self._take_turn(recovery)
            self._begin(recovery)
        return bool(begun)

    def _begin(self, recovery: Recovery) -> None:
        relaunch = Relaunch(recovery, self.registry, self._network, self._life, lambda: self.now, self)
        self._relaunches[recovery.instance] = relaunch
        self._touched.add(recovery.instance)
        self._tell(What.RUN_OPENED, recovery.instance, recovery.cause.reason, recovery.run_id)
        relaunch.begin()

    def wants_turn(self, relaunch: Relaunch) -> None:
        if self._turns > 0:
            self._take_turn(relaunch.recovery)
            relaunch.step(TurnCame())

    def stepped(self, relaunch: Relaunch) -> None:
        assert relaunch.run is not None
        self._tell(What.RUN_STEP, relaunch.recovery.instance, relaunch.run.step, relaunch.run.id)

    def waits_for_containers(self, relaunch: Relaunch) -> None:
        if relaunch.recovery.run_id in self._has_turn:
            self._has_turn.remove(relaunch.recovery.run_id)
            self._turns += 1

    def closed(self, relaunch: Relaunch) -> None:
        self.waits_for_containers(relaunch)
        key, run = relaunch.recovery.instance, relaunch.run
        assert run is not None
        if self._relaunches.get(key) is relaunch:
            del self._relaunches[key]
        self._touched.add(key)
        self._tell(What.RUN_CLOSED, key, str(run.outcome), run.id)

    def held(self, entry: Entry) -> None:
        key, id_ = entry.instance.key, entry.instance.id
        self._tell(What.HELD, key, str(entry.instance.held))
        if self._around.scenario.times.operator > 0:
            self._life.after(self._around.scenario.times.operator, lambda: self._operator_comes(key, id_))

    def _operator_comes(self, key: InstanceKey, id_: int) -> None:
        with self._news_of(key.job_name):
            try:
                self._operators.reset_failed(id_, self.now)
            except NoSuchInstance:
                """It has been forgotten meanwhile."""

    def _ask(self, member: Member) -> None:
        def answered(answer: Answer) -> None:
            if self._life.lives:
                with self._news_of(member.key.job_name):
                    self.registry.answered_directly(member, answer, self.now)

        self._network.ask(member.address, Probe(run_id=""), self.registry.policy.relaunch.status_timeout_sec, answered)

    # --- what only time changes ----------------------------------------------------------------------------------

    def _watch(self, key: InstanceKey) -> None:
        entry = self.registry.of_key(key)
        moment = min(self._moments(entry), default=None) if entry is not None else None
        if moment is None:
            self._looks.pop(key, None)
        elif self._looks.get(key) != moment:
            self._looks[key] = moment
            self._life.at(moment, lambda: self._due(key, moment))

    def _moments(self, entry: Entry) -> Iterator[float]:
        """When a heartbeat without news or time alone may change what is thought of the instance, seen from now."""
        instance, policy = entry.instance, self.registry.policy
        pulses = {member.key: self._pulse_of(member) for member in instance.members}
        rhythms = [pulse for pulse in pulses.values() if pulse is not None]

        def first_look_after(moment: float) -> float:
            ticks = math.floor((moment - self._began) / TICK_SEC + ROUNDING) + 1
            return min([self._began + ticks * TICK_SEC, *(pulse.next(moment) for pulse in rhythms)])

        if any(member.unreachable_since is not None for member in instance.members):
            # Who is heard after somebody could not be reached proves that it is not us who are cut off.
            yield first_look_after(self.now)
        for member in instance.members:
            if pulses[member.key] is None:
                limits = (policy.instance.heartbeat_timeout_active_sec, policy.instance.heartbeat_timeout_inactive_sec)
                silent = [member.last_heard + limit for limit in limits]
                yield from (first_look_after(moment) for moment in silent if moment >= self.now)
        budget = self.registry.budgets.of(instance)
        if instance.status is InstanceStatus.ACTIVE and budget != reset(budget):
            yield first_look_after(max(self.now, stable_at(instance.since, policy.relaunch)))

    def _pulse_of(self, member: Member) -> Pulse | None:
        """If it is heard."""
        supervisor = self._supervisor_of(member)
        return supervisor.pulse if supervisor is not None and supervisor.pulse.is_heard else None

    def _due(self, key: InstanceKey, moment: float) -> None:
        if self._looks.get(key) == moment:
            del self._looks[key]
            self.look(key.job_name)

    # --- for whoever counts --------------------------------------------------------------------------------------

    def _tell_status(self, key: InstanceKey) -> None:
        newest = self.registry.newest(key)
        if newest is not None and self._told.get(key) is not newest.status:
            self._told[key] = newest.status
            self._tell(What.STATUS, key, newest.status)

    def _tell(self, what: What, key: InstanceKey, words: str, of: str | None = None) -> None:
        newest = self.registry.newest(key)
        epoch = newest.epoch if newest is not None else 0
        self._around.tell(Told(self.now, what, number_of(key.job_name), None, epoch, words, of))

    def _new_run_id(self) -> str:
        self._runs += 1
        return f"run-{self._term}-{self._runs}"


def _key(job_name: str) -> InstanceKey:
    return InstanceKey(NAMESPACE, job_name)
