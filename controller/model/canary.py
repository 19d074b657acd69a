"""How soon one more instance of a model may be relaunched because its canary, and nothing else, has failed (design 2).

A cause that they share (a wrong request, a key, a proxy) is likelier than so many engines that hang at the same time,
and relaunching all of them for it would leave nobody who serves. So they come one after the other, who has waited for
longest first. That it is the same instance again says nothing new: its own budget judges it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.model.instance import Instance
from controller.model.member import InstanceKey
from controller.model.relaunch.run import Cause, PutOff, Run, RunRecord, RunStep

ASKING = frozenset({RunStep.OPEN, RunStep.PROBE, RunStep.PUT_OFF})
WORKING = frozenset({RunStep.PREPARE, RunStep.BACKOFF, RunStep.START})


@dataclass(frozen=True, slots=True)
class Begun:
    """A relaunch on a canary alone."""

    instance: InstanceKey
    model: tuple[str, str]
    at: float


Recent = tuple[Begun, ...]
"""The last of each instance."""


def noted(recent: Recent, new: Begun, interval_sec: float) -> Recent:
    """With the new one, without those that put nobody off any more."""
    begins = new.at - interval_sec
    return (*(each for each in recent if each.instance != new.instance and each.at > begins), new)


def put_off(
    recent: Recent, instance: Instance, ahead: Sequence[InstanceKey], now: float, interval_sec: float
) -> PutOff | None:
    """Until when `instance` may not be relaunched on its canary alone; None: it may.

    `ahead`: others of its model that have waited for longer.
    """
    others = [each for each in recent if each.model == instance.model and each.instance != instance.key]
    last = max(others, key=lambda each: each.at, default=None)
    free = now if last is None else max(now, last.at + interval_sec)
    until = free + len(ahead) * interval_sec
    if until <= now:
        return None
    words = [f"{key} goes first" for key in ahead[:1]]
    if last is not None and free > now:
        words.insert(0, f"{last.instance} was relaunched on its canary alone {now - last.at:.0f} s ago")
    words.append(f"of one model only one is in {interval_sec:g} s (canary_min_interval_sec)")
    return PutOff(until, ", ".join(words))


def begun_at(run: Run | RunRecord) -> float | None:
    """When it went to work on its canary alone; None: it has not, or something else had failed too."""
    if not run.cause.canary:
        return None
    first = next((each for each in run.history if each.step not in ASKING), None)
    return first.started_at if first is not None and first.step in WORKING else None


def is_to_begin(cause: Cause, run: Run | RunRecord | None) -> bool:
    """It may be put off, and puts off those that wait for less long. `run`: None while it waits for its turn."""
    if run is None:
        return cause.canary and not cause.follows
    return run.cause.canary and not run.cause.follows and not run.prepare_sent and run.step in ASKING
