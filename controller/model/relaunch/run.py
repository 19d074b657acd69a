"""The state of one relaunch run (design 4), frozen: every step of the plan returns a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.model.budget import Budget
from controller.model.instance import Instance
from controller.model.member import InstanceKey, Member, MemberKey, Observation
from controller.model.settings import InstanceSettings, RelaunchSettings


class RunReason(StrEnum):
    """Why a run was opened; the mechanism is the same for all."""

    FAULT = "fault"
    ASSEMBLE = "assemble"
    REJOIN = "rejoin"
    OPERATOR = "operator"
    HOLD = "hold"
    """It ends with all engines stopped."""
    RELOAD = "reload"
    """All start with the configuration that their files have now."""
    ESCALATION = "escalation"
    """A strategy that was to do without new engines has failed (S08)."""
    PEER = "peer"
    """Its own engines are well, but remember a prefill that is another by now."""


class RunStep(StrEnum):
    OPEN = "open"
    PROBE = "probe"
    HOLD = "hold"
    """Of a run that ends so: all engines are stopped, and stay so."""
    PREPARE = "prepare"
    PUT_OFF = "put_off"
    """Only its canary has failed, and another instance of the model was relaunched for that just now."""
    BACKOFF = "backoff"
    START = "start"
    AWAIT = "await"
    REJOIN = "rejoin"
    """A member is lost: the others are stopped in place and wait for it."""
    PHASE2 = "phase2"
    CLEANUP = "cleanup"
    """Of an aborted run: abort goes out to whoever may be frozen (S07)."""
    CLOSED = "closed"


class Outcome(StrEnum):
    """wire.RunView.outcome, and SUSPENDED, which a view shows as still running."""

    DONE = "done"
    PHASE2 = "phase2"
    ABORTED = "aborted"
    RECOVERED_ITSELF = "recovered_itself"
    OBSOLETE = "obsolete"
    """Another life of the controller opened it; when this one asked, all served without it."""
    HELD = "held"
    SUSPENDED = "suspended"


GOOD_ENDS = frozenset({Outcome.DONE, Outcome.RECOVERED_ITSELF, Outcome.OBSOLETE, Outcome.HELD})
"""Nothing is broken after these."""


@dataclass(frozen=True, slots=True)
class Cause:
    reason: RunReason
    text: str
    """In words, naming the pod and the endpoint."""
    endpoint_abnormal: bool = False
    """A probe failed, no process died: if all are NORMAL when asked, nothing is touched."""
    reporter: MemberKey | None = None
    """It was told that a recovery follows, and so froze itself."""
    config_digest: str | None = None
    """Of the configuration to be taken; None: engines keep what they had."""
    hardware: bool = False
    """A device is gone: phase 2 at once, because nothing in place can help."""
    canary: bool = False
    """Nothing but a canary has failed: instances of one model are relaunched one after the other."""
    follows: bool = False
    """The run before it has failed: it is put off for nobody, and its budget ends it."""


@dataclass(frozen=True, slots=True)
class PutOff:
    """For the sake of the whole fleet."""

    until: float
    """At the earliest, as things are."""
    why: str


class Stage(StrEnum):
    """How far one member has come in the current epoch of the run."""

    NONE = "none"
    PROBED = "probed"
    PREPARED = "prepared"
    HELD = "held"
    """Stopped in this epoch, and to stay so."""
    STARTED = "started"
    """`start` (or `restart`) was accepted in this epoch."""


class Farewell(StrEnum):
    """What phase 2 or the clean-up wants of a member."""

    NONE = "none"
    ABORT = "abort"
    STOP = "stop"
    KEPT = "kept"
    """It accepted `start` and keeps its freeze until the first new boot of another (S05)."""
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    NAMED = "named"
    """Failed, and an error names it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One member's row in the run's table. Events only write facts here; the checks of the steps decide."""

    member: Member
    """As it was when it took its place in the run; its boot_id is the one every answer is compared with."""
    stage: Stage = Stage.NONE
    stage_since: float = 0.0
    outstanding: int | None = None
    """Number of the request that is being answered."""
    sent_at: float = 0.0
    due: float | None = None
    """When the next request is to be sent: first try, retry or poll."""
    tries: int = 0
    """Unanswered requests in a row in this step."""
    unanswered_since: float = 0.0
    """When the first of them went out."""
    polls: int = 0
    timed_out: bool = False
    """A request of this step may have been carried out without our knowing."""
    may_be_frozen: bool = False
    seen: Observation | None = None
    """The newest of heartbeat and status."""
    heartbeat: Observation | None = None
    cannot: str | None = None
    """It refused for good: in words."""
    gone: str | None = None
    """It is lost or unreachable: in words."""
    left: bool = False
    """Its boot is over, which was proved; nothing more is sent to it."""
    new_boot: bool = False
    """It has registered since; if it has not `left`, `member` is this new life, which nobody has started yet."""
    newcomer: Member | None = None
    """Who has registered in its place and may join."""
    higher_epoch: int | None = None
    """It refused the run's epoch as stale."""
    died: str | None = None
    """An engine of it is dead again in this epoch: in words."""
    died_by_canary: bool = False
    """Nothing but the canary says so."""
    farewell: Farewell = Farewell.NONE

    @property
    def key(self) -> MemberKey:
        return self.member.key

    @property
    def address(self) -> str:
        return self.member.address


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One line of the run's history; times are monotonic."""

    step: RunStep
    started_at: float
    ended_at: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What the journal keeps of one member's row."""

    node: str
    """MemberKey.node"""
    address: str
    boot_id: str | None
    started: bool
    """It accepted `start`, or may have."""
    farewell: Farewell


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the journal keeps of a run: enough to resume it, and to show it when it is over. Times are monotonic."""

    run_id: str
    instance: InstanceKey
    instance_id: int
    term: int
    epoch: int
    base_epoch: int
    cause: Cause
    opened_at: float
    step: RunStep
    remaining_sec: float
    """Until the step's deadline, when this was written."""
    backoff_sec: float
    prepare_sent: bool
    phase: int
    members: tuple[MemberRecord, ...]
    history: tuple[StepRecord, ...]
    closing: Outcome | None
    outcome: Outcome | None
    """None while it is open; SUSPENDED is open too."""
    message: str
    starts_lost: int = 0

    @property
    def is_open(self) -> bool:
        return self.outcome in (None, Outcome.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    instance: Instance
    """As it was when the run opened, with those who have joined since: placement and members."""
    cause: Cause
    term: int
    epoch: int
    base_epoch: int
    budget: Budget
    settings: RelaunchSettings
    instance_settings: InstanceSettings
    members: Mapping[MemberKey, Progress]
    opened_at: float = 0.0
    step: RunStep = RunStep.OPEN
    step_deadline: float = 0.0
    backoff_sec: float = 0.0
    prepare_sent: bool = False
    no_phase_two: str = ""
    """Why the containers may not be restarted now, for the sake of the whole fleet; told before each event."""
    put_off: PutOff | None = None
    """Whether it may begin on its canary alone; told before each event."""
    resumed: bool = False
    """Another life of the controller opened it."""
    starts_lost: int = 0
    """Starts of this run that came to nothing because a member was lost."""
    rejoin_until: float | None = None
    """How long lost members are waited for before the next start, however many are lost meanwhile."""
    rereads: int = 0
    next_number: int = 1
    phase: int = 1
    history: tuple[StepRecord, ...] = ()
    closing: Outcome | None = None
    """What the run ends as after its clean-up."""
    outcome: Outcome | None = None
    message: str = ""

    @property
    def rows(self) -> tuple[Progress, ...]:
        return tuple(self.members.values())

    @property
    def counts(self) -> bool:
        """It uses the budget up; what a person, an assembly or a peer asks for is no sign of a broken model."""
        return self.cause.reason in (RunReason.FAULT, RunReason.REJOIN, RunReason.ESCALATION)

    @property
    def by_restart(self) -> bool:
        """A gang is driven by what all its members know (design 8, Skew)."""
        return not all(row.member.knows_prepare for row in self.rows)
