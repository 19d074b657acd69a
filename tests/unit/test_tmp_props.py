"""Any order of answers, losses, duplicates, time-outs, cancellations, new boots and epochs: what always holds.

The supervisors here are a small model of design 4's other side; the network loses requests and answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.model.instance import Instance, begin_epoch, unreachable
from controller.model.member import Observation, all_normal
from controller.model.relaunch import plan
from controller.model.relaunch.exchange import (
    Accepted,
    Action,
    Answer,
    Answered,
    CancelKind,
    Close,
    Emit,
    EpochBegins,
    Event,
    Fault,
    Heartbeat,
    InstanceActive,
    Journal,
    Level,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    SaveBudget,
    Send,
    StepDown,
)
from controller.model.relaunch.run import Cause, Outcome, RunReason, RunStep
from controller.model.settings import Phase2Scope, RelaunchSettings
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, Step, StopMsg
from tests.unit.controller_gang import NOBODY, SILENT, Drive, assembled, fresh_budget, serving

MAX_TICKS = 2000
RARELY = st.integers(0, 5).map(lambda n: n == 5)
"""What would otherwise end nearly every run before it got far."""


@dataclass
class Supervisor:
    """One member as it really is."""

    rank: int
    epoch: int
    status: EndpointStatus
    boot: int = 1
    step: Step = Step.IDLE
    frozen: bool = False
    frozen_by_run: bool = False
    prepared_in: int = 0
    started_in: int = 0
    aborted: set[str] = field(default_factory=set)
    slow: bool = False
    """Its stop takes long: prepare answers with the step reached."""
    busy: bool = False
    alive: bool = True
    sequence: int = 0

    @property
    def boot_id(self) -> str:
        return f"boot-{self.rank}-{self.boot}"

    def reboot(self) -> None:
        self.boot += 1
        self.step, self.frozen, self.frozen_by_run = Step.IDLE, False, False
        self.status, self.aborted, self.alive = EndpointStatus.INITIAL, set(), True
        self.prepared_in = self.started_in = 0

    def observation(self, now: float) -> Observation:
        statuses = {self.rank: self.status}
        self.sequence += 1
        return Observation(
            received_at=now,
            epoch=self.epoch,
            boot_id=self.boot_id,
            normal=all_normal(statuses),
            statuses=statuses,
            step=self.step,
            prepared=self.step is Step.PREPARED,
            freeze_remaining_sec=60.0 if self.frozen else 0.0,
            sequence=self.sequence,
        )

    def handle(self, request: object, now: float) -> Answer:
        match request:
            case Probe():
                return replace(self.observation(now), sequence=0)
            case EngineRestartMsg(boot_id=boot) | StopMsg(boot_id=boot) if boot != self.boot_id:
                return self._refused(ErrorCode.WRONG_BOOT)
            case EngineRestartMsg(action="abort"):
                return self._abort(request)
            case StopMsg():
                self.frozen = self.frozen_by_run = False
                self.alive = False
                return self._accepted()
            case EngineRestartMsg():
                return self._command(request)
        raise AssertionError(request)

    def _command(self, request: EngineRestartMsg) -> Answer:
        assert request.epoch is not None
        assert request.run_id is not None
        if request.run_id in self.aborted:
            return self._refused(ErrorCode.ABORTED)
        if self.busy:
            return self._refused(ErrorCode.BUSY)
        if request.epoch < self.epoch:
            return self._refused(ErrorCode.STALE_EPOCH)
        if request.action == "prepare":
            return self._prepare(request.epoch)
        if self.prepared_in != request.epoch:
            return self._refused(ErrorCode.NOT_PREPARED)
        if self.started_in != request.epoch:
            self.started_in, self.step, self.status = request.epoch, Step.LOADING, EndpointStatus.INITIAL
        return self._accepted()

    def _prepare(self, epoch: int) -> Answer:
        self.epoch, self.frozen, self.frozen_by_run = epoch, True, True
        self.status = EndpointStatus.WAIT2START
        self.step = Step.STOPPING if self.slow else Step.PREPARED
        if not self.slow:
            self.prepared_in = epoch
        return self._accepted()

    def _abort(self, request: EngineRestartMsg) -> Answer:
        self.aborted.add(request.run_id or "")
        ends = self.step in (Step.PREPARED, Step.STOPPING) or self.status is EndpointStatus.ABNORMAL
        self.frozen = self.frozen_by_run = False
        return replace(self._accepted(), will_exit=ends)

    def _accepted(self) -> Accepted:
        return Accepted(self.step, self.epoch, self.boot_id)

    def _refused(self, code: ErrorCode) -> Refused:
        return Refused(code, "as modelled", epoch=self.epoch, boot_id=self.boot_id)


class RunMachine(RuleBasedStateMachine):
    @initialize(
        nnodes=st.integers(1, 3),
        cold=st.booleans(),
        runs=st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
        phase2s=st.sampled_from([0, 0, 0, 0, 0, 3]),
        scope=st.sampled_from(Phase2Scope),
        abnormal=st.booleans(),
        lost=RARELY,
    )
    def open(
        self, nnodes: int, cold: bool, runs: int, phase2s: int, scope: Phase2Scope, abnormal: bool, lost: bool
    ) -> None:
        instance = assembled(nnodes) if cold else serving(nnodes)
        if lost and not cold:
            instance = unreachable(instance, instance.members[0].key, -1.0)  # the others were heard since
        status = EndpointStatus.INITIAL if cold else EndpointStatus.NORMAL
        self.supervisors = [Supervisor(rank, instance.epoch, status) for rank in range(nnodes)]
        budget = replace(fresh_budget(instance), runs=runs, phase2s=phase2s)
        reason = RunReason.ASSEMBLE if cold else RunReason.FAULT
        cause = Cause(reason, "for a test", endpoint_abnormal=abnormal)
        self.deposed = False
        self.settings = RelaunchSettings(engine_relaunch_phase2_scope=scope)
        self.kept_instance = instance
        self.kept_budget = budget
        self.journal: Journal | None = None
        self.named: set[object] = set()
        self.answered_sends: list[Answered] = []
        self.on_the_way: dict[int, Observation] = {}
        self.drive = Drive.open(
            instance,
            cause,
            budget=budget,
            settings=self.settings,
            heard=not lost,
        )
        self._look(tuple(self.drive.actions), None)

    # --- what happens ---------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        before = self.drive.run.outcome
        actions = self.drive.step(event)
        if before is not None:
            assert actions == (), "I5: a closed run does nothing"
        self._look(actions, event)

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
        supervisor = self._supervisor(send.member)
        answer: Answer = SILENT
        if not supervisor.alive or fate == "refused":
            answer = NOBODY
        elif fate != "request lost":
            truth = supervisor.handle(send.request, self.drive.now)
            answer = truth if fate == "fine" else SILENT
        event = Answered(send.member, send.number, answer)
        self.answered_sends.append(event)
        self._feed(event)

    @precondition(lambda self: self._running() and self.answered_sends)
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        self._feed(data.draw(st.sampled_from(self.answered_sends)))

    @precondition(lambda self: self._running())
    @rule(rank=st.integers(0, 2))
    def heartbeat(self, rank: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.alive:
            self._feed(Heartbeat(self.drive.key(supervisor.rank), supervisor.observation(self.drive.now)))

    @rule(rank=st.integers(0, 2))
    def a_heartbeat_sets_out(self, rank: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.alive:
            self.on_the_way[rank] = supervisor.observation(self.drive.now)

    @precondition(lambda self: self._running() and self.on_the_way)
    @rule(data=st.data())
    def a_heartbeat_arrives_late(self, data: st.DataObject) -> None:
        rank = data.draw(st.sampled_from(sorted(self.on_the_way)))
        late = replace(self.on_the_way.pop(rank), received_at=self.drive.now)
        self._feed(Heartbeat(self.drive.key(rank), late))

    @rule(seconds=st.floats(0.0, 12.0))
    def time_passes(self, seconds: float) -> None:
        self.drive.now += seconds

    @precondition(lambda self: self._running())
    @rule()
    def everybody_is_fine_for_a_while(self) -> None:
        """So that the machine also gets far; what is asked is answered, loads end, hearts beat."""
        for send in self._pending():
            supervisor = self._supervisor(send.member)
            supervisor.slow = supervisor.busy = False
            if supervisor.alive:
                self.drive.pending.pop(send.member, None)
                answer = supervisor.handle(send.request, self.drive.now)
                self._feed(Answered(send.member, send.number, answer))

    @precondition(lambda self: self._running())
    @rule(ranks=st.sets(st.integers(0, 2), min_size=1))
    def loads_end_and_hearts_beat(self, ranks: set[int]) -> None:
        for rank in ranks:
            self.loaded(rank)
            if self._running():
                self.heartbeat(rank)

    @rule(rank=st.integers(0, 2))
    def loaded(self, rank: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.step is Step.LOADING:
            supervisor.step, supervisor.status, supervisor.frozen = Step.DONE, EndpointStatus.NORMAL, False

    @rule(rank=st.integers(0, 2), slow=st.booleans(), busy=st.booleans())
    def temper(self, rank: int, slow: bool, busy: bool) -> None:
        if supervisor := self._at(rank):
            supervisor.slow, supervisor.busy = slow, busy

    @rule(rank=st.integers(0, 2), epochs=st.integers(1, 3))
    def hears_of_a_higher_epoch(self, rank: int, epochs: int) -> None:
        if (supervisor := self._at(rank)) and supervisor.step is not Step.LOADING:
            supervisor.epoch += epochs

    @precondition(lambda self: self._running())
    @rule(rank=st.integers(0, 2), reported=st.booleans(), now=RARELY)
    def engine_dies(self, rank: int, reported: bool, now: bool) -> None:
        if now and (supervisor := self._at(rank)) and supervisor.alive:
            supervisor.status = EndpointStatus.ABNORMAL
            if reported:
                self._feed(Fault(self.drive.key(supervisor.rank), supervisor.epoch, "killed"))

    @precondition(lambda self: self._running())
    @rule(rank=st.integers(0, 2), registers=st.booleans(), now=RARELY)
    def container_restarts(self, rank: int, registers: bool, now: bool) -> None:
        expected = self.drive.run.step is RunStep.PHASE2
        if (supervisor := self._at(rank)) and (now or expected):
            supervisor.reboot()
            if registers:
                self._keep_registration(supervisor)
                self._feed(Registered(self.drive.key(supervisor.rank), supervisor.boot_id))

    @precondition(lambda self: self._running())
    @rule(rank=st.integers(0, 2), now=RARELY)
    def silent(self, rank: int, now: bool) -> None:
        if now and (supervisor := self._at(rank)):
            self._feed(MemberSilent(self.drive.key(supervisor.rank)))

    @precondition(lambda self: self._running() and self._pending())
    @rule(data=st.data(), now=RARELY)
    def deposed_by_a_supervisor(self, data: st.DataObject, now: bool) -> None:
        send = data.draw(st.sampled_from(self._pending()))
        if isinstance(send.request, Probe) or not now:
            return
        self._feed(Answered(send.member, send.number, Refused(ErrorCode.STALE_TERM, "as modelled", term=9)))
        assert not self._running()

    @precondition(lambda self: self._running())
    @rule(kind=st.sampled_from(CancelKind), now=st.sampled_from([False, True]))
    def cancel(self, kind: CancelKind, now: bool) -> None:
        if not now:
            return
        touched = self.drive.run.prepare_sent
        step = self.drive.run.step
        self._look(self.drive.cancel(kind), None)
        if kind is CancelKind.PREEMPT and touched:
            assert self.drive.run.step is step, "not preemptible"

    @precondition(lambda self: self._running())
    @rule(without_answers=RARELY)
    def tick(self, without_answers: bool) -> None:
        if self._pending() and not without_answers:
            return
        before = self.drive.now
        self._look(self.drive.tick(), None)
        deadline = plan.deadline(self.drive.run)
        assert deadline is None or deadline > before, "a tick in its time is not asked for again at once"

    @precondition(lambda self: self.journal is not None and self.journal.record.is_open)
    @rule(written=st.integers(0, 8), delivered=st.sets(st.integers(0, 2)), away=st.floats(0, 100), now=RARELY)
    def controller_restarts(self, written: int, delivered: set[int], away: float, now: bool) -> None:
        """Killed at any moment: the journal has what was written, some requests still arrive, no answer does."""
        if not now:
            return
        if self._running():
            # What it was about to do: a part is done, in order, and the rest never.
            before = dict(self.drive.pending)
            for action in self.drive.tick()[:written]:
                self._keep(action)
                if isinstance(action, Send):
                    before[action.member] = action
            for send in before.values():
                supervisor = self._supervisor(send.member)
                if supervisor.rank in delivered and supervisor.alive:
                    supervisor.handle(send.request, self.drive.now)
        if self.journal is None or not self.journal.record.is_open:
            return
        record = replace(self.journal.record, remaining_sec=max(0.0, self.journal.record.remaining_sec - away))
        self.deposed = False
        self.answered_sends.clear()
        self.drive = Drive.resume(
            loaded(self.kept_instance, self.drive.now + away),
            record,
            budget=self.kept_budget,
            settings=self.settings,
            now=self.drive.now + away,
        )
        assert self.drive.run.id == record.run_id
        self._look(tuple(self.drive.actions), None)

    # --- what is kept ---------------------------------------------------------------------------------------

    def _keep(self, action: Action) -> None:
        match action:
            case Journal() | InstanceActive():
                self.journal = Journal(action.record, action.reason)
            case SaveBudget(budget=budget):
                self.kept_budget = budget
            case EpochBegins(epoch=epoch):
                self.kept_instance = begin_epoch(self.kept_instance, epoch)

    def _keep_registration(self, supervisor: Supervisor) -> None:
        members = tuple(
            replace(member, boot_id=supervisor.boot_id, in_epoch=False, observation=None)
            if member.node_rank == supervisor.rank
            else member
            for member in self.kept_instance.members
        )
        self.kept_instance = replace(self.kept_instance, members=members)

    # --- what always holds ----------------------------------------------------------------------------------

    def _look(self, actions: tuple[Action, ...], event: Event | None) -> None:
        for action in actions:
            self._keep(action)
            match action:
                case Send():
                    self._look_at_send(action)
                case Emit(level=Level.ERROR, member=member) if member is not None:
                    self.named.add(member)
                case StepDown():
                    self.deposed = True
                case InstanceActive():
                    self._look_at_active()
                case Close():
                    assert actions[-1] is action, "Close is the last word"
                    self._look_at_close(action)

    def _look_at_send(self, send: Send) -> None:
        assert not self.deposed, "a deposed controller sends nothing"
        assert send.reason or isinstance(send.request, Probe)
        if isinstance(send.request, Probe):
            return
        assert self.journal is not None, "C4"
        record = self.journal.record
        assert (record.step, record.epoch) == (self.drive.run.step, self.drive.run.epoch), "C4"
        assert send.request.epoch == self.drive.run.epoch
        if isinstance(send.request, EngineRestartMsg) and send.request.action == "start":
            prepared = [s.prepared_in == self.drive.run.epoch or s.boot > 1 for s in self.supervisors]
            assert all(prepared), "C2: no start before all are prepared in this epoch"

    def _look_at_active(self) -> None:
        run = self.drive.run
        for row in run.rows:
            supervisor = self._supervisor(row.key)
            assert row.heartbeat is not None
            assert self.drive.now - row.heartbeat.received_at <= 9.0, "C6: fresh"
            assert row.heartbeat.epoch == run.epoch, "C6: of this epoch"
            assert row.heartbeat.normal, "C5"
            if row.heartbeat.boot_id == supervisor.boot_id:
                assert supervisor.started_in == run.epoch
                assert supervisor.step is not Step.LOADING, "C5: nothing is loading"

    def _look_at_close(self, close: Close) -> None:
        if close.outcome is Outcome.SUSPENDED:
            return
        for row in self.drive.run.rows:
            supervisor = self._supervisor(row.key)
            same_life = supervisor.boot_id == row.member.boot_id
            started = supervisor.started_in == self.drive.run.epoch
            if same_life and supervisor.frozen_by_run and not started:
                assert row.key in self.named, f"C3: {row.address} is frozen and nobody was told"

    @invariant()
    def ends_by_itself(self) -> None:
        """From any state on, with nobody answering any more, ticks alone end the run."""
        if not hasattr(self, "drive"):
            return
        run, now, ticks = self.drive.run, self.drive.now, 0
        while (deadline := plan.deadline(run)) is not None:
            now = max(now, deadline)
            run, _ = plan.step(run, plan.Tick(), now)
            ticks += 1
            assert ticks < MAX_TICKS, f"{run.step} hangs"

    def _supervisor(self, key: object) -> Supervisor:
        return next(s for s in self.supervisors if self.drive.key(s.rank) == key)

    def _at(self, rank: int) -> Supervisor | None:
        return self.supervisors[rank] if rank < len(self.supervisors) else None


def loaded(instance: Instance, now: float) -> Instance:
    """As it comes out of a journal."""
    members = (
        replace(member, observation=None, unreachable_since=None, registered_at=now) for member in instance.members
    )
    return replace(instance, members=tuple(members))


TestRun = RunMachine.TestCase
TestRun.settings = settings(
    max_examples=3000,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_every_step_can_be_reached_by_the_willing() -> None:
    """The machine above is worth something only if its runs get that far."""
    drive = Drive.open(serving(3))
    for step in (RunStep.PREPARE, RunStep.START, RunStep.AWAIT):
        drive.to(step)
