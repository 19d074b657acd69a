"""What goes into the plan of a run (events) and what comes out of it (actions), as values.

The shell carries actions out in their order and feeds back one `Answered` per `Send`. It may carry the sends
of one batch out at the same time, but only after everything before them is done: the journal is written
before the effect (C4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.model.budget import Budget
from controller.model.instance import GangSpec, Hold
from controller.model.member import Member, MemberKey, Observation
from controller.model.relaunch.run import Cause, Outcome, RunRecord
from supervisor.wire import EngineRestartMsg, ErrorCode, RecoveryState, StartCmdMsg, Step, StopMsg

# --- requests: the wire's own messages, and one without a body ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """`GET /node-manager/status`, naming the run so that it restarts the freeze's silence clock."""

    run_id: str


Request = Probe | EngineRestartMsg | StartCmdMsg | StopMsg
"""By type: status, engine-restart (prepare, start, abort, restart), start (a cold unextended peer), stop."""


# --- answers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """A 200; an unextended peer's carries no fields (step as the client knows it, epoch 0, boot_id None)."""

    step: Step
    epoch: int = 0
    boot_id: str | None = None
    will_exit: bool | None = None
    message: str = ""
    config_digest: str | None = None
    recovery: RecoveryState | None = None
    """How far it is with what `recover` asks for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A 4xx or 5xx; a body that is not an ErrorBody is BUSY for 409 and FAILED otherwise."""

    code: ErrorCode
    message: str
    step: Step | None = None
    epoch: int | None = None
    boot_id: str | None = None
    term: int | None = None


class Silence(StrEnum):
    REFUSED = "refused"
    """Nobody listens there; known at once."""
    SILENT = "silent"
    """The time-out passed, or the connection broke: the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    kind: Silence
    message: str


Answer = Observation | Accepted | Refused | Unreachable
"""An Observation answers a Probe."""


# --- events ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    member: MemberKey
    number: int
    """Of the Send this answers; any but the member's outstanding one is only looked at for its boot id."""
    answer: Answer


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Every heartbeat of a member goes here while its run is open, also one of another epoch or boot."""

    member: MemberKey
    observation: Observation


@dataclass(frozen=True, slots=True)
class Fault:
    """A death report that came in while the run is open."""

    member: MemberKey
    epoch: int | None
    message: str
    """In words, naming the pod and the endpoint."""
    probe_derived: bool = False
    """The process lives, a probe failed."""
    canary: bool = False
    """That probe is the canary."""
    hardware: bool = False
    """A device is gone with it."""


@dataclass(frozen=True, slots=True)
class MemberSilent:
    """Its heartbeats stay away and asking it directly failed."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class Registered:
    """A member's container is back in a new boot (boot_id as told)."""

    member: MemberKey
    """Whose life is over."""
    boot_id: str | None
    newcomer: Member | None
    """Who has taken its place, perhaps under another key; None if the registration was refused."""


class CancelKind(StrEnum):
    ABORT = "abort"
    """An operator, or a shutdown without a durable store."""
    PREEMPT = "preempt"
    """A graver fault; has no effect once prepare was sent."""
    DELETED = "deleted"
    OVERTAKEN = "overtaken"
    """Something else is wanted, and another run sees to it: by an operator, or by a rollout that has begun."""
    SUSPEND = "suspend"
    """A shutdown with a durable store: the next leader resumes."""


@dataclass(frozen=True, slots=True)
class Cancel:
    kind: CancelKind
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """`plan.deadline(run)` has come."""


@dataclass(frozen=True, slots=True)
class TurnCame:
    """`plan.wants_turn`, and it has one: of those who wait for containers, only so many start at a time."""


Event = Answered | Heartbeat | Fault | MemberSilent | Registered | Cancel | TurnCame | Tick


# --- actions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    member: MemberKey
    number: int
    request: Request
    timeout_sec: float
    reason: str


@dataclass(frozen=True, slots=True)
class Journal:
    record: RunRecord
    reason: str


@dataclass(frozen=True, slots=True)
class SaveBudget:
    budget: Budget
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceInactive:
    """Out of routing until InstanceActive."""

    reason: str


@dataclass(frozen=True, slots=True)
class EpochBegins:
    """The first `start` of this epoch follows: `instance.begin_epoch`."""

    epoch: int
    lives: Mapping[MemberKey, str | None]
    """Who is started, in which boot."""
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigurationTaken:
    """`instance.reconfigure`: what all members have in force from now on."""

    config_digest: str
    instead_of: GangSpec
    """With the configuration that the run found."""
    reason: str


@dataclass(frozen=True, slots=True)
class EpochAbandoned:
    """An operator gave this relaunch up: `instance.abandon`, so that the same fault opens no other run."""

    reason: str


@dataclass(frozen=True, slots=True)
class InstanceHeld:
    """`instance.hold`: it may be assembled but not started."""

    held: Hold


@dataclass(frozen=True, slots=True)
class EpochLeft:
    """`instance.leave_epoch`: what these members may still run is nobody's."""

    members: frozenset[MemberKey]
    reason: str


@dataclass(frozen=True, slots=True)
class MembersStranded:
    """`instance.strand`: their containers did not restart in phase 2. Who can do more than we ask may do it now."""

    members: frozenset[MemberKey]
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceActive:
    """DONE, ACTIVE and this journal row are one transition (C6): one transaction, no await between."""

    record: RunRecord
    reason: str


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Emit:
    """For people: the event stream and the log."""

    level: Level
    message: str
    member: MemberKey | None = None
    """Whom an error is about."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """A supervisor has seen a higher term: another controller leads. Send nothing more, to anybody."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """The last action of a run. SUSPENDED is not an end: the journal keeps the run open."""

    outcome: Outcome
    message: str
    follow: Cause | None = None
    """The run to open at once. Phase 2 names none: `need.run_needed` says when all are there to be assembled."""


Action = (
    Send
    | Journal
    | SaveBudget
    | InstanceInactive
    | EpochBegins
    | ConfigurationTaken
    | EpochAbandoned
    | InstanceHeld
    | EpochLeft
    | MembersStranded
    | InstanceActive
    | Emit
    | StepDown
    | Close
)
