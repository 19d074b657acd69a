"""Any order of answers, losses, duplicates, time-outs, cancellations, new boots and epochs, over several runs of one
instance: what always holds (design 4, C1 to C6, and the controller's part of I2, I4, I5).

The supervisors' own part (I1 to I5) is in `test_engine_invariants`, both together are in `virtual/test_gang_walk`.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.model.instance import Instance, InstanceStatus, activate, begin_epoch, deactivate, observe, unreachable
from controller.model.member import Member, Observation
from controller.model.need import run_needed
from controller.model.relaunch import plan
from controller.model.relaunch.exchange import (
    Action,
    Answer,
    Answered,
    Cancel,
    CancelKind,
    Close,
    Emit,
    EpochBegins,
    Event,
    Fault,
    Heartbeat,
    InstanceActive,
    InstanceInactive,
    Journal,
    Level,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    SaveBudget,
    Send,
    StepDown,
    Tick,
    TurnCame,
)
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunStep
from controller.model.settings import OnMemberLost, Phase2Scope, RelaunchSettings
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, Step
from tests.unit.controller_gang import (
    NOBODY,
    REJOIN,
    SILENT,
    Drive,
    assembled,
    fresh_budget,
    joined,
    registration,
    serving,
)
from tests.unit.modelled_supervisor import ModelledSupervisor

MAX_TICKS = 2000
RARELY = st.integers(0, 7).map(lambda n: n == 7)
"""What would otherwise end nearly every run before it got far."""
RANKS = st.integers(0, 2)


class RunMachine(RuleBasedStateMachine):
    @initialize(
        nnodes=st.integers(1, 3),
        cold=st.booleans(),
        runs=st.sampled_from([0, 0, 0, 1, 2, 3]),
        phase2s=st.sampled_from([0, 0, 0, 0, 3]),
        policy=st.tuples(st.sampled_from(Phase2Scope), st.sampled_from(OnMemberLost)),
        abnormal=st.booleans(),
        lost=RARELY,
    )
    def a_run_opens(
        self,
        nnodes: int,
        cold: bool,
        runs: int,
        phase2s: int,
        policy: tuple[Phase2Scope, OnMemberLost],
        abnormal: bool,
        lost: bool,
    ) -> None:
        instance = assembled(nnodes) if cold else serving(nnodes)
        if lost and not cold:
            instance = unreachable(instance, instance.members[0].key, -1.0)  # the others were heard since
        status = EndpointStatus.INITIAL if cold else EndpointStatus.NORMAL
        self.supervisors = [ModelledSupervisor(rank, instance.epoch, status) for rank in range(nnodes)]
        self.configurations = self.seated = 1
        self.settings = RelaunchSettings(engine_relaunch_phase2_scope=policy[0], on_member_lost=policy[1])
        self.instance = instance
        self.budget = replace(fresh_budget(instance), runs=runs, phase2s=phase2s)
        self.now = 100.0
        self.runs = 0
        self.named: set[object] = set()
        cause = Cause(RunReason.ASSEMBLE if cold else RunReason.FAULT, "for a test", endpoint_abnormal=abnormal)
        self._open(cause, heard=not lost)

    def _open(self, cause: Cause, *, heard: bool = False) -> None:
        self._another_run()
        self.drive = Drive.open(
            self.instance,
            cause,
            budget=self.budget,
            settings=self.settings,
            now=self.now,
            heard=heard,
            run_id=f"run-{self.runs}",
        )
        self._look(tuple(self.drive.actions))

    def _another_run(self) -> None:
        self.runs += 1
        self.gang = self.supervisors[: len(self.instance.members)]
        self.deposed = False
        self.journal: Journal | None = None
        self.answered_sends: list[Answered] = []
        self.on_the_way: dict[int, Observation] = {}
        self.follow: Cause | None = None

    @precondition(lambda self: not self._running())
    @rule(kind=st.sampled_from(CancelKind), ranks=st.sets(RANKS))
    def a_run_is_withdrawn_before_its_turn(self, kind: CancelKind, ranks: set[int]) -> None:
        """It was wanted, and some reported a death meanwhile and froze themselves for it."""
        needed = self.follow or run_needed(self.instance, self.settings)
        if needed is None:
            return
        self._another_run()
        reported = []
        for rank in ranks:
            supervisor = self._at(rank)
            if supervisor and supervisor.alive and self._is_registered(supervisor) and self._takes_part(rank):
                supervisor.status = EndpointStatus.ABNORMAL
                supervisor.frozen, supervisor.frozen_by = True, f"run-{self.runs}"
                reported.append(Fault(self.instance.members[rank].key, supervisor.epoch, "killed"))
        self.drive = Drive.withdraw(
            self.instance,
            needed,
            Cancel(kind, f"{kind} for a test"),
            reported,
            budget=self.budget,
            settings=self.settings,
            now=self.now,
            run_id=f"run-{self.runs}",
        )
        assert not self._running() or self.drive.run_step() is RunStep.CLEANUP
        self._look(tuple(self.drive.actions))

    @precondition(lambda self: not self._running())
    @rule(data=st.data())
    def the_next_run_opens(self, data: st.DataObject) -> None:
        """As the registry would; a person may want one whenever all are there."""
        needed = self.follow or run_needed(self.instance, self.settings)
        if needed is None and self.instance.complete:
            needed = Cause(RunReason.OPERATOR, "asked by an operator")
        if needed is not None:
            self._open(needed)

    # --- what happens ---------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        before = self.drive.run.outcome
        self.drive.now = self.now
        actions = self.drive.step(event)
        if before is not None:
            assert actions == (), "I5: a closed run does nothing"
        self._look(actions)

    def _running(self) -> bool:
        return self.drive.run.outcome is None

    def _pending(self) -> list[Send]:
        return list(self.drive.pending.values())

    @precondition(lambda self: self._running() and self._pending())
    @rule(
        data=st.data(),
        fate=st.sampled_from(["fine", "fine", "fine", "answer lost", "request lost", "refused"]),
    )
    def deliver(self, data: st.DataObject, fate: str) -> None:
        send = data.draw(st.sampled_from(self._pending()))
        del self.drive.pending[send.member]
        supervisor = self._supervisor(send)
        answer: Answer = SILENT
        if not supervisor.alive or fate == "refused":
            answer = NOBODY
        elif fate != "request lost":
            truth = supervisor.handle(send.request, self.now)
            answer = truth if fate == "fine" else SILENT
        event = Answered(send.member, send.number, answer)
        self.answered_sends.append(event)
        self._feed(event)

    @precondition(lambda self: self._running() and self.answered_sends)
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        self._feed(data.draw(st.sampled_from(self.answered_sends)))

    @rule(rank=RANKS)
    def heartbeat(self, rank: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.alive and self._is_registered(supervisor):
            self._heard(rank, supervisor.observation(self.now))

    def _heard(self, rank: int, seen: Observation) -> None:
        key = self.instance.members[rank].key
        self.instance = observe(self.instance, key, seen)
        if self._running():
            self._feed(Heartbeat(key, seen))

    @rule(rank=RANKS)
    def a_heartbeat_sets_out(self, rank: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.alive:
            self.on_the_way[rank] = supervisor.observation(self.now)

    @precondition(lambda self: self._running() and self.on_the_way)
    @rule(data=st.data())
    def a_heartbeat_arrives_late(self, data: st.DataObject) -> None:
        rank = data.draw(st.sampled_from(sorted(self.on_the_way)))
        late = replace(self.on_the_way.pop(rank), received_at=self.now)
        if late.boot_id == self.instance.members[rank].boot_id:
            self._heard(rank, late)

    @rule(seconds=st.floats(0.0, 12.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def everybody_is_fine_for_a_while(self) -> None:
        """So that the machine also gets far; what is asked is answered, who is back registers, hearts beat."""
        for supervisor in self.supervisors[: len(self.instance.members)]:
            supervisor.slow = supervisor.busy = False
            supervisor.dependencies = True
            if not self._is_registered(supervisor):
                self._registers(supervisor, accepted=True)
            self.heartbeat(supervisor.rank)
        for send in self._pending() if self._running() else ():
            supervisor = self._supervisor(send)
            if supervisor.alive and self.drive.pending.pop(send.member, None) is not None:
                self._feed(Answered(send.member, send.number, supervisor.handle(send.request, self.now)))

    @rule()
    def everybody_stays_fine(self) -> None:
        self.everybody_is_fine_for_a_while()

    @rule(ranks=st.sets(RANKS, min_size=1))
    def loads_end_and_hearts_beat(self, ranks: set[int]) -> None:
        for rank in ranks:
            if supervisor := self._at(rank):
                supervisor.engine_loaded()
            self.heartbeat(rank)

    @rule(rank=RANKS, slow=st.booleans(), busy=st.booleans())
    def temper(self, rank: int, slow: bool, busy: bool) -> None:
        if supervisor := self._at(rank):
            supervisor.slow, supervisor.busy = slow, busy

    @rule(rank=RANKS, epochs=st.integers(1, 3))
    def hears_of_a_higher_epoch(self, rank: int, epochs: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.step is Step.IDLE:
            supervisor.epoch += epochs

    @rule(rank=RANKS, reported=st.booleans(), now=RARELY)
    def engine_dies(self, rank: int, reported: bool, now: bool) -> None:
        if now and (supervisor := self._at(rank)) and supervisor.alive:
            supervisor.status = EndpointStatus.ABNORMAL
            if reported and self._running():
                self._feed(Fault(self.instance.members[rank].key, supervisor.epoch, "killed"))

    @rule(rank=RANKS, now=RARELY)
    def container_restarts(self, rank: int, now: bool) -> None:
        if (supervisor := self._at(rank)) and (now or not supervisor.alive):
            supervisor.reboot()

    @rule(rank=RANKS, accepted=st.sampled_from([True, True, True, False]))
    def a_new_boot_registers(self, rank: int, accepted: bool) -> None:
        if (supervisor := self._at(rank)) and supervisor.alive and not self._is_registered(supervisor):
            self._registers(supervisor, accepted)

    @rule(nnodes=st.integers(1, 3), dead=st.sets(RANKS), reported=st.booleans(), now=RARELY)
    def a_new_configuration_begins(self, nnodes: int, dead: set[int], reported: bool, now: bool) -> None:
        """Nobody of the old one is heard, and a pod of the new one registers: the registry overtakes the run."""
        if not now:
            return
        for old in self.supervisors:
            if old.rank in {0, *dead}:
                old.alive = old.frozen = False
                old.frozen_by = None
        self.configurations += 1
        self.on_the_way.clear()
        self.now += 11.0
        first = self.configurations * 1000
        self.supervisors = [
            ModelledSupervisor(rank, 0, EndpointStatus.INITIAL, boot=first + rank) for rank in range(nnodes)
        ]
        self._one_more_of_the_new_registers()
        assert not self.instance.members[1:]
        if self._running():
            self._feed(Cancel(CancelKind.OVERTAKEN, "the gang starts over"))
            key = self.instance.members[0].key
            if reported and self._running():
                self._feed(Registered(key, self.supervisors[0].boot_id, self.instance.members[0]))

    @precondition(lambda self: len(self.instance.members) < len(self.supervisors))
    @rule()
    def one_more_of_the_new_registers(self) -> None:
        self._one_more_of_the_new_registers()

    def _one_more_of_the_new_registers(self) -> None:
        rank = 0 if self.configurations != self.seated else len(self.instance.members)
        self.seated = self.configurations
        supervisor = self.supervisors[rank]
        nnodes, digest = len(self.supervisors), f"sha256:{self.configurations}"
        message = registration(rank, nnodes, boot_id=supervisor.boot_id, config_digest=digest)
        self.instance = joined(self.instance, message, self.now)

    @precondition(lambda self: self._running())
    @rule(rank=RANKS, now=RARELY)
    def silent(self, rank: int, now: bool) -> None:
        if now and self._at(rank):
            self._feed(MemberSilent(self.instance.members[rank].key))

    @precondition(lambda self: self._running() and self._pending())
    @rule(data=st.data(), now=RARELY)
    def deposed_by_a_supervisor(self, data: st.DataObject, now: bool) -> None:
        send = data.draw(st.sampled_from(self._pending()))
        if isinstance(send.request, Probe) or not now:
            return
        self._feed(Answered(send.member, send.number, Refused(ErrorCode.STALE_TERM, "as modelled", term=9)))
        assert not self._running()

    @precondition(lambda self: self._running())
    @rule(kind=st.sampled_from(CancelKind), now=RARELY)
    def cancel(self, kind: CancelKind, now: bool) -> None:
        if not now:
            return
        touched = self.drive.run.prepare_sent
        step = self.drive.run.step
        self._feed(Cancel(kind, f"{kind} for a test"))
        assert kind is not CancelKind.SUSPEND or not self._running(), "a controller that stops waits for no answer"
        if kind is CancelKind.PREEMPT and touched:
            assert self.drive.run.step is step, "not preemptible"

    @precondition(lambda self: self.journal is not None and self.journal.record.is_open)
    @rule(written=st.integers(0, 8), delivered=st.sets(RANKS), away=st.floats(0, 100), now=RARELY)
    def controller_restarts(self, written: int, delivered: set[int], away: float, now: bool) -> None:
        """Killed at any moment: the journal has what was written, some requests still arrive, no answer does."""
        if not now:
            return
        if self._running():
            # What it was about to do: a part is done, in order, and the rest never.
            self.drive.now = self.now
            sent = dict(self.drive.pending)
            for action in self.drive.tick()[:written]:
                self._keep(action)
                if isinstance(action, Send):
                    sent[action.member] = action
            self.now = self.drive.now
            for send in sent.values():
                supervisor = self._supervisor(send)
                if supervisor.rank in delivered and supervisor.alive:
                    supervisor.handle(send.request, self.now)
        if self.journal is None or not self.journal.record.is_open:
            return
        record = replace(self.journal.record, remaining_sec=max(0.0, self.journal.record.remaining_sec - away))
        self.now += away
        self.instance = loaded(self.instance, self.now)
        self.deposed = False
        self.answered_sends.clear()
        self.gang = self.supervisors[: len(self.instance.members)]
        self.drive = Drive.resume(self.instance, record, budget=self.budget, settings=self.settings, now=self.now)
        assert self.drive.run.id == record.run_id
        self._look(tuple(self.drive.actions))

    @precondition(lambda self: self._running())
    @rule(without_answers=RARELY)
    def tick(self, without_answers: bool) -> None:
        if self._pending() and not without_answers:
            return
        before = self.drive.now = self.now
        actions = self.drive.tick()
        self.now = self.drive.now
        self._look(actions)
        deadline = plan.deadline(self.drive.run)
        assert deadline is None or deadline > before, "a tick in its time is not asked for again at once"

    # --- what always holds ----------------------------------------------------------------------------------

    def _keep(self, action: Action) -> None:
        match action:
            case Journal():
                self.journal = action
            case SaveBudget(budget, _):
                self.budget = budget
            case EpochBegins(epoch, lives, _):
                self.instance = begin_epoch(self.instance, epoch, lives)
                meant = [row.member.boot_id for row in self.drive.run.rows]
                assert all(member.boot_id in meant for member in self.instance.members if member.in_epoch)
            case InstanceInactive(reason):
                self.instance = deactivate(self.instance, reason, self.now)
            case InstanceActive(record, reason):
                self.journal = Journal(record, reason)
                self.instance = activate(self.instance, reason, self.now)

    def _look(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            was = self.instance.status
            self._keep(action)
            match action:
                case Send():
                    self._look_at_send(action)
                case Emit(level=Level.ERROR, member=member) if member is not None:
                    self.named.add(member)
                case StepDown():
                    self.deposed = True
                case InstanceActive():
                    assert was is not InstanceStatus.ACTIVE, "C6: no run leaves it ACTIVE"
                    assert self.instance.complete, "C6: no part of a gang serves"
                    self.C5_C6_nothing_loads_and_all_are_fresh()
                case Close():
                    assert actions[-1] is action, "Close is the last word"
                    self.follow = action.follow
                    self.C3_whoever_is_frozen_was_told_or_is_named(action)

    def _look_at_send(self, send: Send) -> None:
        assert not self.deposed, "a deposed controller sends nothing"
        assert send.reason or isinstance(send.request, Probe)
        assert not self.drive.run.members[send.member].left, "nothing is sent to a life that is over"
        if isinstance(send.request, Probe):
            return
        self.C4_the_journal_has_it_before_it_is_sent()
        assert send.request.epoch == self.drive.run.epoch
        if isinstance(send.request, EngineRestartMsg) and send.request.action == "start":
            self.C2_nobody_starts_before_all_are_prepared()
            assert len(self.drive.run.rows) == self.drive.run.instance.spec.nnodes, "C2: no part of a gang starts"

    def C4_the_journal_has_it_before_it_is_sent(self) -> None:
        assert self.journal is not None
        record = self.journal.record
        assert (record.step, record.epoch) == (self.drive.run.step, self.drive.run.epoch)

    def C2_nobody_starts_before_all_are_prepared(self) -> None:
        """In this very run and epoch; a life of which the run cannot know yet will refuse."""
        meant = (self.drive.run.id, self.drive.run.epoch)
        assert all(s.prepared_in == meant or not self._is_meant(s) for s in self.gang)

    def C5_C6_nothing_loads_and_all_are_fresh(self) -> None:
        run = self.drive.run
        for row, supervisor in zip(run.rows, self.gang, strict=True):
            assert row.heartbeat is not None
            assert self.now - row.heartbeat.received_at <= 9.0, "fresh"
            assert row.heartbeat.epoch == run.epoch, "of this epoch"
            assert row.heartbeat.normal
            if self._is_meant(supervisor):
                assert supervisor.started_in == (run.id, run.epoch)
                assert supervisor.step is not Step.LOADING

    def C3_whoever_is_frozen_was_told_or_is_named(self, close: Close) -> None:
        if close.outcome is Outcome.SUSPENDED:
            return
        run = self.drive.run
        for row, supervisor in zip(run.rows, self.gang, strict=True):
            started = supervisor.started_in == (run.id, run.epoch)
            if self._is_meant(supervisor) and supervisor.frozen_by == run.id and not started:
                assert row.key in self.named, f"{row.address} is frozen and nobody was told"

    @invariant()
    def I2_I4_every_run_ends_by_itself(self) -> None:
        """From any state on, with nobody answering any more, ticks alone end it; polls, and so freezes, end with it."""
        if not hasattr(self, "drive"):
            return
        run, now, ticks = self.drive.run, self.now, 0
        while run.outcome is None:
            now = max(now, plan.deadline(run) or now)
            run, _ = plan.step(run, TurnCame() if plan.wants_turn(run) else Tick(), now)
            ticks += 1
            assert ticks < MAX_TICKS, f"{run.step} hangs"

    # --- who is who -----------------------------------------------------------------------------------------

    def _supervisor(self, send: Send) -> ModelledSupervisor:
        return self.gang[[row.key for row in self.drive.run.rows].index(send.member)]

    def _at(self, rank: int) -> ModelledSupervisor | None:
        """Of those who have a place."""
        return self.supervisors[rank] if rank < len(self.instance.members) else None

    def _is_registered(self, supervisor: ModelledSupervisor) -> bool:
        member = self.instance.members[supervisor.rank]
        return member.boot_id == supervisor.boot_id and not member.superseded

    def _takes_part(self, rank: int) -> bool:
        return self.instance.members[rank].in_epoch

    def _is_meant(self, supervisor: ModelledSupervisor) -> bool:
        """The run means this life of it."""
        return supervisor.boot_id == self.drive.run.rows[supervisor.rank].member.boot_id

    def _registers(self, supervisor: ModelledSupervisor, accepted: bool) -> None:
        old = self.instance.members[supervisor.rank]
        newcomer = Drive.reborn(old, supervisor.boot_id, self.now) if accepted else None
        self._seat(newcomer or replace(old, superseded=True))
        if self._running():
            self._feed(Registered(old.key, supervisor.boot_id, newcomer))

    def _seat(self, new: Member) -> None:
        members = tuple(new if old.key == new.key else old for old in self.instance.members)
        self.instance = deactivate(replace(self.instance, members=members), "a container restarted", self.now)


def loaded(instance: Instance, now: float) -> Instance:
    """As it comes out of a journal."""
    members = (
        replace(member, observation=None, unreachable_since=None, registered_at=now) for member in instance.members
    )
    return replace(instance, members=tuple(members))


TestRun = RunMachine.TestCase
TestRun.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    phases=tuple(phase for phase in Phase if phase is not Phase.explain),  # takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_every_step_can_be_reached_by_the_willing() -> None:
    """The machine above is worth something only if its runs get that far."""
    drive = Drive.open(serving(3), settings=REJOIN)
    for step in (RunStep.PREPARE, RunStep.START, RunStep.AWAIT):
        drive.to(step)
    drive.new_boot(1)
    for step in (RunStep.REJOIN, RunStep.PREPARE, RunStep.START, RunStep.AWAIT):
        drive.to(step)
