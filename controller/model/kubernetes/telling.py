"""What is worth an Event on an instance's pods: the difference between two looks at it.

So nothing is told of what did not happen, whatever woke the one who looks, and nothing twice. Where it is told, and how
repeated Events become one, is `series`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from controller.model.instance import Hold, Instance
from controller.model.member import MemberKey
from controller.model.relaunch.run import GOOD_ENDS, Outcome, Run, RunReason, RunStep

ASKED_FOR = frozenset({RunReason.ASSEMBLE, RunReason.OPERATOR, RunReason.HOLD, RunReason.RELOAD, RunReason.PEER})
"""Nothing is broken that these answer."""


class Reason(StrEnum):
    """An interface: `kubectl get events --field-selector reason=…`."""

    ASSEMBLE_BEGUN = "AssembleBegun"
    ASSEMBLE_DONE = "AssembleDone"
    RELAUNCH_BEGUN = "RelaunchBegun"
    RELAUNCH_DONE = "RelaunchDone"
    RUN_ENDED = "RunEnded"
    """Otherwise than it was to."""
    MEMBER_LOST = "MemberLost"
    """The others wait for it in place."""
    REJOIN_TIMED_OUT = "RejoinTimedOut"
    """They have waited in vain: the containers restart."""
    CONTAINERS_RESTART = "ContainersRestart"
    """Phase 2."""
    STRANDED = "ContainerDidNotRestart"
    POD_DELETED = "PodDeleted"
    HELD = "InstanceHeld"
    RELEASED = "InstanceReleased"


@dataclass(frozen=True, slots=True)
class News:
    reason: Reason
    message: str
    is_warning: bool
    member: MemberKey | None = None
    """Whose pod it is about; None: it is about all of the instance's."""


@dataclass(frozen=True, slots=True)
class RunLook:
    id: str
    reason: RunReason
    text: str
    epoch: int
    step: RunStep
    phase: int
    attempt: str
    """`attempt 2 of 3`; empty if it does not count."""
    error: str
    """What its last step failed of."""
    is_rejoin_over: bool
    """Its phase 2 follows a wait for lost members."""
    outcome: Outcome | None
    message: str


@dataclass(frozen=True, slots=True)
class Look:
    """All of an instance that is told."""

    run: RunLook | None = None
    held: Hold | None = None
    stranded: tuple[tuple[MemberKey, str], ...] = ()
    """With their addresses."""


def look(instance: Instance, run: Run | None) -> Look:
    stranded = tuple((member.key, member.address) for member in instance.members if member.stranded)
    return Look(_run(run) if run else None, instance.held, stranded)


def news(before: Look, now: Look, ended: RunLook | None) -> tuple[News, ...]:
    """`ended` is the last of a run that `now` shows no more."""
    return (*_of_run(before.run, ended), *_of_run(before.run, now.run), *_of_state(before, now))


def _run(run: Run) -> RunLook:
    steps = [record.step for record in run.history]
    counted = run.counts and run.budget.runs
    attempts = run.settings.engine_relaunch_max_attempts
    return RunLook(
        id=run.id,
        reason=run.cause.reason,
        text=run.cause.text,
        epoch=run.epoch,
        step=run.step,
        phase=run.phase,
        attempt=f"attempt {run.budget.runs} of {attempts}" if counted else "",
        error=next((record.error for record in reversed(run.history) if record.error), ""),
        is_rejoin_over=(RunStep.REJOIN, RunStep.PHASE2) in pairwise(steps),
        outcome=run.outcome,
        message=run.message,
    )


def _of_run(before: RunLook | None, now: RunLook | None) -> Iterator[News]:
    """Of one run, from the look before, if that showed it, to this one."""
    if now is None:
        return
    known = before if before is not None and before.id == now.id else None
    is_assembly = now.reason is RunReason.ASSEMBLE
    if known is None:
        begun = Reason.ASSEMBLE_BEGUN if is_assembly else Reason.RELAUNCH_BEGUN
        yield News(begun, _sentence(f"{now.reason}: {now.text}", now), is_warning=now.reason not in ASKED_FOR)
    was_waiting = known is not None and (known.step, known.epoch) == (RunStep.REJOIN, now.epoch)
    if now.step is RunStep.REJOIN and not was_waiting:
        yield News(Reason.MEMBER_LOST, f"{now.error}; the others wait in place", is_warning=True)
    if now.phase == 2 and (known is None or known.phase == 1):
        reason = Reason.REJOIN_TIMED_OUT if now.is_rejoin_over else Reason.CONTAINERS_RESTART
        yield News(reason, f"the containers restart: {now.message}", is_warning=True)
    if now.outcome is None or now.outcome is Outcome.SUSPENDED or (known is not None and known.outcome is not None):
        return
    if now.outcome is Outcome.DONE:
        done = Reason.ASSEMBLE_DONE if is_assembly else Reason.RELAUNCH_DONE
        yield News(done, _sentence(now.message, now), is_warning=False)
    else:
        yield News(Reason.RUN_ENDED, f"{now.outcome}: {now.message}", is_warning=now.outcome not in GOOD_ENDS)


def _of_state(before: Look, now: Look) -> Iterator[News]:
    if now.held and now.held != before.held:
        yield News(Reason.HELD, f"held by {now.held.by}: {now.held}", is_warning=True)
    if before.held and not now.held:
        yield News(Reason.RELEASED, "it may be started again", is_warning=False)
    known = {key for key, _ in before.stranded}
    for key, address in now.stranded:
        if key not in known:
            yield News(Reason.STRANDED, f"the container of {address} did not restart in phase 2", True, member=key)


def _sentence(message: str, run: RunLook) -> str:
    return f"{message} ({run.attempt})" if run.attempt else message
