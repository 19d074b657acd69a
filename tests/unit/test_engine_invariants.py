"""Any order of commands, effects, deaths, answers and ticks: what must always hold (design 4, I1, I2, I4, I5, C2).

Beside the operation runs a tiny model of the pod: which epochs have living processes. Only the operation's actions
move it. What the pod does is then fed back, promptly, late, or after another operation has begun.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from supervisor.engine.model import progress
from supervisor.engine.model.commands import Accepted, Command, decide
from supervisor.engine.model.fencing import Refused
from supervisor.engine.model.operation import (
    OUT_OF_SERVICE_STEPS,
    Action,
    EndSupervisor,
    HoldEngines,
    Operation,
    PrepareEngines,
    StartEngines,
)
from supervisor.engine.model.status import EngineFacts, Judgement, judge
from supervisor.wire import Action as Verb
from supervisor.wire import EndpointStatus, EngineRestartMsg, Recovery, StartCmdMsg, Step, StopMsg
from tests.support.operations import BOOT, INSTANCE, SETTINGS, SWITCHED_OFF, placement

RUNS = st.sampled_from([None, "a", "b", "c"])
TERMS = st.integers(0, 3)
BOOTS = st.sampled_from([None, BOOT, BOOT, BOOT, "another boot"])
EPOCHS = st.integers(-2, 3)
"""Against the operation's own epoch."""


@dataclass
class Work:
    """Effects of one operation, as the operator's nursery runs them: one at a time, the newer one cancels."""

    serial: int
    starts: int | None
    """The epoch to be spawned; None: stop and clean."""
    cancelled: bool = False


class Life(RuleBasedStateMachine):
    """One boot of one supervisor."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.settings = SETTINGS
        self.state = Operation(boot_id=BOOT, booted_at=self.now)
        self.work: list[Work] = []
        """Newest last. What an overtaken one says is late news."""
        self.alive: set[int] = set()
        """Epochs that have processes."""
        self.banners = 0
        self.prepared: set[tuple[str | None, int]] = set()
        """(run, epoch) whose engines were stopped and found clean."""
        self.barrier: set[tuple[str | None, int]] = set()
        """(run, epoch) that began by `prepare`: only `start` may start them."""
        self.taken_back: set[int] = set()
        """Epochs whose operation was aborted before it started anything."""
        self.froze_at = self.now
        self.ended = 0

    @initialize(enabled=st.sampled_from([True, True, True, False]), cold=st.sampled_from([False, False, False, True]))
    def boot(self, enabled: bool, cold: bool) -> None:
        self.settings = SETTINGS if enabled else SWITCHED_OFF
        if not cold:
            self.send(placement(epoch=1))
            self.the_pod_goes_on(4)

    # --- commands -----------------------------------------------------------------------------------------------

    @rule(
        verb=st.sampled_from(list(Verb)),
        run_id=RUNS,
        above=EPOCHS,
        term=TERMS,
        boot_id=BOOTS,
        unnumbered=st.booleans(),
        instance_id=st.sampled_from([None, INSTANCE, 8]),
        moved=st.sampled_from([None, placement(), placement(instance_id=8)]),
    )
    def command(
        self,
        verb: Verb,
        run_id: str | None,
        above: int,
        term: int,
        boot_id: str | None,
        unnumbered: bool,
        instance_id: int | None,
        moved: StartCmdMsg | None,
    ) -> None:
        epoch = None if unnumbered else self.state.epoch + above
        self.send(
            EngineRestartMsg(
                action=verb,
                run_id=run_id,
                epoch=epoch,
                term=term,
                boot_id=boot_id,
                instance_id=instance_id,
                start=moved,
            )
        )

    # The well-behaved controller, so that long ways through the protocol are found.

    @rule(verb=st.sampled_from([Verb.PREPARE, Verb.RESTART, Verb.HOLD]), far=st.integers(0, 4))
    def leader_begins_a_run(self, verb: Verb, far: int) -> None:
        epoch, term = self.state.epoch + 1, self.state.term
        start = placement(epoch=epoch)
        self.send(EngineRestartMsg(action=verb, run_id=f"run-{epoch}", epoch=epoch, term=term, start=start))
        for _ in range(far):
            if self.state.step is Step.PREPARED:
                self.leader_goes_on(Verb.START)
            self.the_pod_goes_on(1)

    @rule(verb=st.sampled_from([Verb.PREPARE, Verb.START, Verb.RESTART]))
    def leader_goes_on(self, verb: Verb) -> None:
        state = self.state
        self.send(EngineRestartMsg(action=verb, run_id=state.run_id, epoch=state.epoch, term=state.term))

    @rule(named=st.booleans())
    def leader_aborts(self, named: bool) -> None:
        run_id = self.state.run_id if named else None
        self.send(EngineRestartMsg(action=Verb.ABORT, run_id=run_id, term=self.state.term))

    @rule(epoch=st.sampled_from([None, 0, 1]), run_id=RUNS, term=TERMS, instance_id=st.sampled_from([INSTANCE, 8]))
    def start_with_placement(self, epoch: int | None, run_id: str | None, term: int, instance_id: int) -> None:
        numbered = None if epoch is None else self.state.epoch + epoch
        self.send(placement(epoch=numbered, run_id=run_id, term=term, instance_id=instance_id))

    @precondition(lambda self: self.state.leaving is None)
    @rule(boot_id=BOOTS, term=TERMS, above=EPOCHS)
    def stop_command(self, boot_id: str | None, term: int, above: int) -> None:
        if boot_id in (None, BOOT) and term >= self.state.term and above >= 0:
            return  # it would end this life, and most of the search with it: see test_engine_commands
        self.send(StopMsg(boot_id=boot_id, term=term, epoch=self.state.epoch + above))

    def send(self, command: Command) -> None:
        before = self.state
        self.state, actions, decision = decide(before, command, self.settings, self.now)
        if isinstance(decision, Refused):
            # I5: refused is without effect, but what was learned of terms and aborted runs.
            assert not actions
            learned = {"term": self.state.term, "aborted_runs": self.state.aborted_runs}
            assert self.state == replace(before, **learned)
        if is_stale(before, command):
            assert isinstance(decision, Refused), (command, decision)
        if is_unlearnable(before, command):
            assert self.state == before
        if isinstance(decision, Accepted):
            assert decision.epoch == self.state.epoch
        if isinstance(command, EngineRestartMsg) and self.state.serial != before.serial:
            key = (self.state.run_id, self.state.epoch)
            if command.action is Verb.PREPARE:
                self.barrier.add(key)
            elif command.action is Verb.START:
                assert key in self.prepared, "C2"
        if aborts(command) and isinstance(decision, Accepted) and decision.will_exit is True:
            assert not self.state.frozen(self.now), "I4: a promised exit is not held up"
            if before.step in OUT_OF_SERVICE_STEPS:
                self.taken_back.add(before.epoch)
        self.note_freeze(before)
        self.carry_out(actions)

    # --- what the pod does ----------------------------------------------------------------------------------------

    def current(self, starts: bool) -> Work | None:
        if self.work and (self.work[-1].starts is not None) is starts and not self.work[-1].cancelled:
            return self.work[-1]
        return None

    @rule(steps=st.integers(1, 4))
    def the_pod_goes_on(self, steps: int) -> None:
        for _ in range(steps):
            next_thing = {
                Step.STOPPING: self.stop_finishes,
                Step.CLEANING: self.gate_passes,
                Step.STARTING: self.engine_is_spawned,
                Step.LOADING: self.engine_is_ready,
            }.get(self.state.step)
            if next_thing is not None:
                next_thing()

    def stop_finishes(self) -> None:
        work = self.current(starts=False)
        if work is not None:
            self.alive.clear()
            holding = self.state.holding
            self.feed(progress.Stopped(work.serial))
            if holding:
                self.finish(work)

    def gate_passes(self) -> None:
        work = self.current(starts=False)
        if work is None:
            return
        assert not self.alive
        self.prepared.add((self.state.run_id, self.state.epoch))
        self.feed(progress.Clean(work.serial))
        self.finish(work)

    def engine_is_spawned(self) -> None:
        work = self.current(starts=True)
        if work is not None:
            assert work.starts is not None
            self.alive.add(work.starts)
            self.feed(progress.Spawned(work.serial))

    def engine_is_ready(self) -> None:
        work = self.current(starts=True)
        if work is not None:
            self.feed(progress.Loaded(work.serial))
            self.finish(work)

    def finish(self, work: Work) -> None:
        """Left in any way, the scope of an effect says so."""
        before = self.state
        work.cancelled = True
        self.feed(progress.Broke(work.serial, "left"))
        if self.state.step is Step.FAILED and before.step is not Step.FAILED:
            assert self.state.freeze is None, "I4"

    @precondition(lambda self: len(self.work) > 1)
    @rule(event=st.sampled_from([progress.Stopped, progress.Clean, progress.Spawned, progress.Loaded]), data=st.data())
    def an_overtaken_operation_speaks(self, event: type, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.work[:-1]))
        before = self.state
        self.feed(event(old.serial))
        self.feed(progress.Broke(old.serial, "cancelled"))
        assert self.state == before

    @precondition(lambda self: bool(self.alive))
    @rule()
    def engine_dies(self) -> None:
        self.feed(progress.EngineDied("killed by SIGKILL"))

    # --- the controller's other voices, operators, the clock ------------------------------------------------------

    @rule(recovery=st.sampled_from(list(Recovery)), run_id=RUNS, old=st.booleans())
    def report_is_answered(self, recovery: Recovery, run_id: str | None, old: bool) -> None:
        before = self.state
        self.feed(progress.ReportAccepted(self.state.epoch - old, recovery, run_id))
        if old or recovery is Recovery.NONE or not self.settings.enabled:
            assert self.state == before, "S12, S13"

    @rule(run_id=RUNS, term=TERMS)
    def controller_is_heard(self, run_id: str | None, term: int) -> None:
        before = self.state.freeze
        self.feed(progress.ControllerHeard(run_id, term))
        after = self.state.freeze
        assert (before is None) is (after is None)
        if before is not None and after is not None:
            assert after.deadline == before.deadline, "I2: talk does not move the deadline"

    @rule(run_id=RUNS, recovery=st.sampled_from([Recovery.PENDING, Recovery.ENGINE_RELAUNCH]))
    def controller_talks_on_and_on(self, run_id: str | None, recovery: Recovery) -> None:
        """Polls, heartbeat answers and repeated answers to one report, but no command: I2."""
        for _ in range(75):
            self.feed(progress.ReportAccepted(self.state.epoch, recovery, run_id))
            self.feed(progress.ControllerHeard(run_id, 0))
            self.now += 20.0
            self.feed(progress.Tick())
        assert self.state.freeze is None

    @rule()
    def report_is_not_delivered(self) -> None:
        before = self.state
        self.feed(progress.ReportUndelivered(self.state.epoch))
        if self.state != before:
            assert before.dead, "only a death is answered here"
            assert self.state.epoch == before.epoch + 1
            assert self.settings.enabled, "S20"

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 61.0, 721.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.feed(progress.Tick())

    @rule()
    def time_passes_unseen(self) -> None:
        """SIGSTOP: nobody looks at the clock meanwhile (F10)."""
        self.now += 1000.0

    @rule(what=st.sampled_from(["hold", "release", "give up", "break"]))
    def something_rare_happens(self, what: str) -> None:
        """One rule, so that most of the search is spent where operations go on."""
        match what:
            case "hold":
                self.feed(progress.Held("an operator"))
                assert self.state.freeze is None
            case "release":
                self.feed(progress.Released())
            case "give up":
                if self.work:
                    self.work[-1].cancelled = True
                self.feed(progress.Abandoned("deleted"))
            case "break" if self.work:
                self.finish(self.work[-1])

    def feed(self, event: progress.Event) -> None:
        before = self.state
        self.state, actions = progress.advance(before, event, self.settings, self.now)
        assert self.state.epoch == before.epoch or isinstance(event, progress.ReportUndelivered)
        self.note_freeze(before)
        self.carry_out(actions)

    # --- actions --------------------------------------------------------------------------------------------------

    def carry_out(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case PrepareEngines(serial, asked):
                    assert asked.epoch == self.state.epoch
                    self.begin(Work(serial, starts=None))
                case HoldEngines(serial, _):
                    self.begin(Work(serial, starts=None))
                case StartEngines(serial, asked, relaunch, _):
                    self.check_start(asked.epoch, relaunch)
                    self.begin(Work(serial, starts=asked.epoch))
                case EndSupervisor():
                    self.ended += 1

    def check_start(self, epoch: int | None, relaunch: int | None) -> None:
        assert epoch == self.state.epoch
        assert not self.alive, f"I1: epoch {epoch} starts while {self.alive} live"
        key = (self.state.run_id, self.state.epoch)
        assert key in self.prepared, "nothing starts that was not stopped and clean in its own operation"
        assert epoch not in self.taken_back, "I5: it was aborted"
        assert self.state.held_by is None
        if relaunch is not None:
            self.banners += 1
            assert relaunch == self.banners, "S21"

    def begin(self, work: Work) -> None:
        assert work.serial == self.state.serial
        if self.work:
            assert work.serial > self.work[-1].serial
            self.work[-1].cancelled = True
        self.work.append(work)

    def note_freeze(self, before: Operation) -> None:
        if self.state.freeze is not None and (
            before.freeze is None or before.freeze.deadline != self.state.freeze.deadline
        ):
            self.froze_at = self.now

    # --- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def one_epoch_at_a_time(self) -> None:
        assert len(self.alive) <= 1, "I1"
        if self.state.step in (Step.CLEANING, Step.PREPARED, Step.ABORTED, Step.HELD):
            assert not self.alive, "these steps mean that the old engine is gone"

    @invariant()
    def a_freeze_ends_by_itself(self) -> None:
        """I2: time alone is enough, whatever else gets lost, and nothing but the freeze changes."""
        end = self.froze_at + self.settings.freeze.duration_sec
        if self.state.freeze is not None:
            assert self.state.freeze.ends_at() <= end
        assert not self.state.frozen(end)
        thawed, _ = progress.advance(self.state, progress.Tick(), self.settings, end)
        assert thawed == replace(self.state, freeze=None)

    @invariant()
    def out_of_protection_when_it_cannot_work(self) -> None:
        """I4, and the container fallback: a failed or aborted operation is counted, or frozen by a new report."""
        judgement = judge(self.state, EngineFacts(ready=False), self.now)
        if self.state.step in (Step.FAILED, Step.ABORTED) and self.state.held_by is None:
            assert judgement.status is EndpointStatus.ABNORMAL
            assert judgement.counted is not None
        if self.state.step is Step.PREPARED and self.state.held_by is None:
            assert self.state.frozen(self.now) is (judgement.counted is None)

    @invariant()
    def what_is_held_is_no_failure(self) -> None:
        """Nobody ends a container for a gang that an operator holds, however long."""
        if self.state.step is Step.HELD:
            assert self.state.freeze is None
            assert judge(self.state, EngineFacts(ready=True, unhealthy="old"), self.now) == Judgement(
                EndpointStatus.PAUSED
            )

    @invariant()
    def normal_only_with_an_engine_of_this_epoch(self) -> None:
        """F1: whatever the old engine's probes still say."""
        judgement = judge(self.state, EngineFacts(ready=True), self.now)
        if judgement.status is EndpointStatus.NORMAL:
            assert self.state.step is Step.DONE
            assert self.alive <= {self.state.epoch}

    @invariant()
    def a_barrier_is_only_passed_by_start(self) -> None:
        """C2: `prepare` never starts anything by itself."""
        if (self.state.run_id, self.state.epoch) in self.barrier and self.state.run_id is not None:
            assert not self.state.start_when_prepared

    @invariant()
    def an_abort_is_not_forgotten(self) -> None:
        """I4: before the start it leads to an end with a name, by way of the stop that is under way."""
        if self.state.epoch in self.taken_back:
            stopping = self.state.step in (Step.STOPPING, Step.CLEANING) and self.state.aborting
            assert stopping or self.state.step in (Step.ABORTED, Step.FAILED, Step.IDLE)

    @invariant()
    def relaunches_are_what_was_announced(self) -> None:
        assert self.state.relaunch_count == self.banners

    @invariant()
    def nobody_ends_the_supervisor_here(self) -> None:
        assert self.ended == 0


def aborts(command: Command) -> bool:
    return isinstance(command, EngineRestartMsg) and command.action is Verb.ABORT


def is_unlearnable(state: Operation, command: Command) -> bool:
    """Not even its term or its aborted run is remembered."""
    boot_id = None if isinstance(command, StartCmdMsg) else command.boot_id
    return command.term < state.term or boot_id not in (None, state.boot_id)


def is_stale(state: Operation, command: Command) -> bool:
    """Older term, another boot, older epoch, or an aborted run (but abort itself is for aborted runs)."""
    if is_unlearnable(state, command):
        return True
    if command.epoch is not None and command.epoch < state.epoch:
        return True
    return not isinstance(command, StopMsg) and not aborts(command) and command.run_id in state.aborted_runs


Life.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLife = Life.TestCase
