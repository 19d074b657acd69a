"""The one decision that the supervisor ends itself, so that the container restarts (seed S15).

Counts consecutive ticks in which an endpoint is abnormal. Whether the controller can be reached has no influence:
the container fallback must survive everything else. A unit's StartLimitAction is an input here, never a second
path: it is not counted, but a freeze holds it back as well. Which endpoint states count is the last column of
`status.py`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class ArbiterSettings(msgspec.Struct, frozen=True):
    interval_sec: float
    """`heartbeat_interval_seconds`: one tick."""
    threshold: int
    """`suicide_threshold`: consecutive abnormal ticks until the end."""


class GivenUp(msgspec.Struct, frozen=True):
    """A unit is at its start limit, and its StartLimitAction says that the supervisor ends."""

    reason: str
    success: bool
    """`exit-success`: the container's work is done; else the container restarts."""


class Situation(msgspec.Struct, frozen=True):
    """What one tick sees."""

    counted: tuple[str, ...] = ()
    """Why endpoints count as abnormal, in words; empty when all is well."""
    generation: int = 0
    """Changes at each spawn: what was counted for the old engine does not burden the new."""
    frozen: bool = False
    given_up: tuple[GivenUp, ...] = ()


class Arbiter(msgspec.Struct, frozen=True):
    count: int = 0
    generation: int = 0
    last_tick: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    end_supervisor: bool
    reason: str
    success: bool = False
    """With exit code 0, not for a restart of the container."""


GO_ON = Verdict(end_supervisor=False, reason="")


def at_once(situation: Situation) -> Verdict:
    """What need not be counted. A reason to restart the container outweighs work that is done."""
    if situation.frozen or not situation.given_up:
        return GO_ON
    gravest = min(situation.given_up, key=lambda each: each.success)
    return Verdict(end_supervisor=True, reason=gravest.reason, success=gravest.success)


def tick(arbiter: Arbiter, situation: Situation, settings: ArbiterSettings, now: float) -> tuple[Arbiter, Verdict]:
    """One tick of the arbiter; the reason says what was counted."""
    verdict = at_once(situation)
    if verdict.end_supervisor:
        return arbiter, verdict
    late = arbiter.last_tick is not None and now - arbiter.last_tick > 2 * settings.interval_sec
    changed = situation.generation != arbiter.generation
    ticked = replace(arbiter, generation=situation.generation, last_tick=now)
    # After a SIGSTOP or a paused machine everything looks overdue at once: re-arm, do not judge.
    if late or changed or situation.frozen or not situation.counted:
        return replace(ticked, count=0), GO_ON
    counted = replace(ticked, count=arbiter.count + 1)
    if counted.count < settings.threshold:
        return counted, GO_ON
    reason = f"abnormal for {counted.count} x {settings.interval_sec:g} s: {'; '.join(situation.counted)}"
    return counted, Verdict(end_supervisor=True, reason=reason)
