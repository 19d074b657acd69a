"""Gangs of members, and a hand to drive a run with: plain values, no shell and no network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from msgspec import structs

from controller.model import assembly
from controller.model.assembly import Joined
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Instance, begin_epoch, observe
from controller.model.member import Member, MemberKey, Observation, all_normal
from controller.model.relaunch import plan
from controller.model.relaunch.exchange import (
    Accepted,
    Action,
    Answer,
    Answered,
    Cancel,
    CancelKind,
    Close,
    Emit,
    Event,
    Fault,
    Heartbeat,
    Level,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    Send,
    Silence,
    Tick,
    TurnCame,
    Unreachable,
)
from controller.model.relaunch.opening import new_run, recorded_run
from controller.model.relaunch.run import Cause, Run, RunReason, RunRecord, RunStep
from controller.model.settings import InstanceSettings, OnMemberLost, RelaunchSettings
from supervisor.wire import (
    EndpointStatus,
    EngineRestartMsg,
    ErrorCode,
    ParallelConfig,
    RegisterMsg,
    StartCmdMsg,
    Step,
    StopMsg,
)

NORMAL = EndpointStatus.NORMAL
FEATURES = ("prepare", "epoch", "orders", "hold")
INSTANCE_SETTINGS = InstanceSettings()
REJOIN = RelaunchSettings(on_member_lost=OnMemberLost.REJOIN)
SETTINGS = RelaunchSettings(on_member_lost=OnMemberLost.RESTART_ALL)
"""A lost member ends phase 1, as in the seed; the other way is in `test_controller_rejoin`."""
FAULT = Cause(RunReason.FAULT, "engine 1 on 10.0.0.2 is dead")
ASSEMBLE = Cause(RunReason.ASSEMBLE, "all have registered")
SILENT = Unreachable(Silence.SILENT, "no answer within 2 s")
NOBODY = Unreachable(Silence.REFUSED, "connection refused")


class Told(TypedDict, total=False):
    """What a test may say of an observation."""

    boot_id: str | None
    normal: bool
    step: Step
    run_id: str | None
    prepared: bool
    freeze_remaining_sec: float
    progress_age_sec: float | None
    leaving: bool
    drained: bool
    gone: bool
    sequence: int


class Reborn(TypedDict, total=False):
    """What a test may say of a member that is back."""

    key: MemberKey
    ip: str
    observation: Observation | None
    features: tuple[str, ...]


def registration(index: int, nnodes: int = 2, **changes: object) -> RegisterMsg:
    message = RegisterMsg(
        job_name="llama",
        model_name="llama-70b",
        role="union",
        pod_ip=f"10.0.0.{index + 1}",
        business_port=("10000",),
        mgmt_port=("10001",),
        nm_port="1026",
        nnodes=nnodes,
        parallel_config=ParallelConfig(dp_size=nnodes),
        node_index=index,
        boot_id=f"boot-{index}-1",
        config_digest="sha256:1",
        features=FEATURES,
    )
    return structs.replace(message, **changes)


def joined(instance: Instance | None, message: RegisterMsg, now: float = 0.0) -> Instance:
    answer = assembly.register(instance, message, now=now, new_id=1, settings=INSTANCE_SETTINGS)
    assert isinstance(answer, Joined), answer
    return answer.instance


def assembled(nnodes: int = 2, *, now: float = 0.0, **changes: object) -> Instance:
    """All have registered, nothing was started."""
    instance = None
    for index in range(nnodes):
        instance = joined(instance, registration(index, nnodes, **changes), now)
    assert instance is not None
    return instance


def prepared(instance: Instance, now: float = 0.0) -> Instance:
    """All have said that their engine could be started."""
    for member in instance.members:
        told = Observation(received_at=now, epoch=0, boot_id=member.boot_id, normal=False, statuses={}, prepared=True)
        instance = observe(instance, member.key, told)
    return instance


def begun(instance: Instance, epoch: int) -> Instance:
    """All who are here are started in `epoch`."""
    return begin_epoch(instance, epoch, {member.key: member.boot_id for member in instance.members})


def serving(nnodes: int = 2, *, epoch: int = 4, now: float = 0.0, **changes: object) -> Instance:
    """All are NORMAL in `epoch`."""
    instance = begun(assembled(nnodes, now=now, **changes), epoch)
    for member in instance.members:
        instance = observe(instance, member.key, seen(instance, member.key, now))
    return instance


def seen(
    instance: Instance,
    key: MemberKey,
    now: float,
    *statuses: EndpointStatus,
    epoch: int | None = None,
    **told: Unpack[Told],
) -> Observation:
    """A heartbeat or a status: by default all NORMAL in the instance's epoch."""
    member = instance.member(key)
    assert member is not None
    first = member.node_rank * instance.spec.endpoints_per_node
    by_id = dict(enumerate(statuses or (NORMAL,) * instance.spec.endpoints_per_node, first))
    observation = Observation(
        received_at=now,
        epoch=instance.epoch if epoch is None else epoch,
        boot_id=member.boot_id,
        normal=all_normal(by_id),
        statuses=by_id,
    )
    return replace(observation, **told)


def fresh_budget(instance: Instance) -> Budget:
    return Budget(BudgetKey(instance.key, instance.spec.config_digest))


@dataclass
class Drive:
    """A run with its clock and everything it has asked for so far."""

    run: Run
    now: float
    actions: list[Action] = field(default_factory=list)
    pending: dict[MemberKey, Send] = field(default_factory=dict)
    """The newest request of each member that was not answered."""

    @classmethod
    def open(
        cls,
        instance: Instance,
        cause: Cause = FAULT,
        *,
        budget: Budget | None = None,
        settings: RelaunchSettings = SETTINGS,
        now: float = 100.0,
        heard: bool = True,
        run_id: str = "run-1",
    ) -> Drive:
        """`heard`: every member's heartbeat has just come, as it does in a living gang."""
        for member in instance.members if heard else ():
            if member.observation:
                instance = observe(instance, member.key, replace(member.observation, received_at=now))
        run = new_run(
            instance,
            cause,
            run_id=run_id,
            term=7,
            budget=budget or fresh_budget(instance),
            settings=settings,
            instance_settings=INSTANCE_SETTINGS,
            now=now,
        )
        run, actions = plan.open_run(run, now)
        drive = cls(run, now)
        drive._keep(actions)
        if plan.wants_turn(run):
            drive.step(TurnCame())
        return drive

    @classmethod
    def withdraw(
        cls,
        instance: Instance,
        cause: Cause,
        cancel: Cancel,
        reported: Iterable[Fault] = (),
        *,
        budget: Budget | None = None,
        settings: RelaunchSettings = SETTINGS,
        now: float = 100.0,
        run_id: str = "run-1",
    ) -> Drive:
        """Before its turn has come."""
        run = new_run(
            instance,
            cause,
            run_id=run_id,
            term=7,
            budget=budget or fresh_budget(instance),
            settings=settings,
            instance_settings=INSTANCE_SETTINGS,
            now=now,
        )
        run, actions = plan.withdraw(run, cancel, reported, now)
        drive = cls(run, now)
        drive._keep(actions)
        return drive

    @classmethod
    def resume(
        cls,
        instance: Instance,
        record: RunRecord,
        *,
        budget: Budget | None = None,
        settings: RelaunchSettings = SETTINGS,
        now: float = 100.0,
    ) -> Drive:
        """As another life of the controller does."""
        run = recorded_run(
            instance,
            record,
            term=8,
            budget=budget or fresh_budget(instance),
            settings=settings,
            instance_settings=INSTANCE_SETTINGS,
            now=now,
        )
        run, actions = plan.resume_run(run, record, now)
        drive = cls(run, now)
        drive._keep(actions)
        if plan.wants_turn(run):
            drive.step(TurnCame())
        return drive

    def run_step(self) -> RunStep:
        """The present one. No attribute, which mypy would believe to be what it was last asserted to be."""
        return self.run.step

    def step(self, event: Event) -> tuple[Action, ...]:
        """Whenever the run wants a turn, one is free."""
        self.run, actions = plan.step(self.run, event, self.now)
        self._keep(actions)
        return (*actions, *self.step(TurnCame())) if plan.wants_turn(self.run) else actions

    def answer(self, index: int, answer: Answer) -> tuple[Action, ...]:
        send = self.pending.pop(self.key(index))
        return self.step(Answered(send.member, send.number, answer))

    def answer_all(self, answer: Answer | None = None) -> None:
        """Everybody answers what it is asked: as told, or as a healthy supervisor would."""
        for index in range(len(self.run.rows)):
            if self.key(index) in self.pending:
                request = self.pending[self.key(index)].request
                self.answer(index, answer or self.willing(index, request))

    def willing(self, index: int, request: object) -> Answer:
        boot = self.run.rows[index].member.boot_id
        match request:
            case Probe():
                is_new = self.run.rows[index].new_boot
                return seen(self.run.instance, self.key(index), self.now, EndpointStatus.INITIAL, prepared=is_new)
            case EngineRestartMsg(action="prepare"):
                return Accepted(Step.PREPARED, self.run.epoch, boot)
            case EngineRestartMsg(action="hold"):
                return Accepted(Step.HELD, self.run.epoch, boot)
            case EngineRestartMsg(action="abort"):
                return Accepted(Step.ABORTED, self.run.epoch, boot, will_exit=True)
            case EngineRestartMsg() | StartCmdMsg():
                return Accepted(Step.STARTING, self.run.epoch, boot)
            case StopMsg():
                return Accepted(Step.STOPPING, self.run.epoch, boot)
        raise AssertionError(request)

    def heartbeat(
        self, index: int, *statuses: EndpointStatus, epoch: int | None = None, **told: Unpack[Told]
    ) -> tuple[Action, ...]:
        """Of the run's epoch, if no other is given."""
        epoch = self.run.epoch if epoch is None else epoch
        observation = seen(self.run.instance, self.key(index), self.now, *statuses, epoch=epoch, **told)
        return self.step(Heartbeat(self.key(index), observation))

    def tick(self) -> tuple[Action, ...]:
        """To the run's deadline."""
        deadline = plan.deadline(self.run)
        assert deadline is not None
        self.now = max(self.now, deadline)
        return self.step(Tick())

    def wait(self, seconds: float, *, heard: tuple[int, ...] = ()) -> None:
        """Time passes, whole seconds at a time; `heard` heart-beat as last seen."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            for index in heard:
                row = self.run.rows[index]
                if row.heartbeat:
                    self.step(Heartbeat(row.key, replace(row.heartbeat, received_at=self.now)))
            self.step(Tick())

    def cancel(self, kind: CancelKind) -> tuple[Action, ...]:
        return self.step(Cancel(kind, f"{kind} for a test"))

    def new_boot(self, index: int, boot: int = 2, **changes: Unpack[Reborn]) -> tuple[Action, ...]:
        """Its container is back, and its registration was taken."""
        newcomer = self.newcomer(index, boot, **changes)
        return self.step(Registered(self.key(index), newcomer.boot_id, newcomer))

    def newcomer(self, index: int, boot: int = 2, **changes: Unpack[Reborn]) -> Member:
        """Of a member, as the registry would know it; its engine's dependencies are active at once."""
        reborn = self.reborn(self.run.rows[index].member, f"boot-{index}-{boot}", self.now)
        told = Observation(self.now, 0, reborn.boot_id, normal=False, statuses={}, prepared=True)
        return replace(replace(reborn, observation=told), **changes)

    @staticmethod
    def reborn(member: Member, boot_id: str, now: float) -> Member:
        """Its next life, of which nothing has been heard yet."""
        return replace(
            member,
            boot_id=boot_id,
            registered_at=now,
            observation=None,
            in_epoch=False,
            superseded=False,
            unreachable_since=None,
        )

    def lose(self, how: str) -> None:
        """The second member's container has restarted, or it is away: in each way in which that is noticed."""
        match how:
            case "registered":
                self.new_boot(1, observation=None)
            case "heartbeat":
                self.heartbeat(1, EndpointStatus.INITIAL, boot_id="boot-1-2")
            case "silent":
                if self.run.step is RunStep.AWAIT:  # what loads needs nobody, so it must not be us who are cut off
                    self.wait(10, heard=(0,))
                self.step(MemberSilent(self.key(1)))
            case "answer":
                while not self.asked(1):
                    self.tick()
                self.answer(1, replace(seen(self.run.instance, self.key(1), self.now), boot_id="boot-1-2"))

    def refuse(
        self, index: int, code: ErrorCode, *, epoch: int | None = None, term: int | None = None
    ) -> tuple[Action, ...]:
        return self.answer(index, Refused(code, "for a test", epoch=epoch, term=term))

    def to(self, step: RunStep) -> Drive:
        """Everybody is willing until the run is in `step`."""
        for _ in range(20):
            if self.run.step is step:
                return self
            if self.pending and self.run.step is not RunStep.BACKOFF:
                self.answer_all()
            else:
                self.tick()
        raise AssertionError(f"in {self.run.step}, never in {step}: {self.run.message}")

    def key(self, index: int) -> MemberKey:
        return self.run.rows[index].key

    def asked(self, index: int) -> str:
        """In a word, what a member was asked last and has not answered; "" if nothing."""
        send = self.pending.get(self.key(index))
        return word(send.request) if send else ""

    def sent(self, *words: str) -> list[tuple[str, str]]:
        """(node, word) of all requests so far, or of those with one of `words`."""
        sends = [action for action in self.actions if isinstance(action, Send)]
        return [(s.member.node, word(s.request)) for s in sends if not words or word(s.request) in words]

    def errors(self) -> list[Emit]:
        return [a for a in self.actions if isinstance(a, Emit) and a.level is Level.ERROR]

    def closed(self) -> Close | None:
        return next((action for action in self.actions if isinstance(action, Close)), None)

    def _keep(self, actions: tuple[Action, ...]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, Send):
                self.pending[action.member] = action


def word(request: object) -> str:
    match request:
        case Probe():
            return "probe"
        case EngineRestartMsg(action=action):
            return str(action)
        case StartCmdMsg():
            return "cold start"
        case StopMsg():
            return "stop"
    raise AssertionError(request)
