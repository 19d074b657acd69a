"""The freeze: until when the supervisor will not end itself over abnormal engines (seed S11).

It is plain data with two deadlines, so it ends by itself whatever gets lost: an absolute one, and silence, so
that a controller that died costs a minute and not twelve. Who begins and ends one is decided in `operation.py`;
who reads it is `arbiter.py`. Times are seconds of the supervisor's monotonic clock.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class FreezeLimits(msgspec.Struct, frozen=True):
    duration_sec: float
    """`engine_restart_freeze_sec`."""
    silence_sec: float
    """`engine_restart_freeze_silence_sec`."""


class Freeze(msgspec.Struct, frozen=True):
    run_id: str | None
    """The run it belongs to; None when the controller did not name one."""
    deadline: float
    silent_at: float
    silence_sec: float

    def ends_at(self) -> float:
        return min(self.deadline, self.silent_at)

    def remaining(self, now: float) -> float:
        return max(0.0, self.ends_at() - now)

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at()

    def why_over(self, now: float) -> str:
        if now >= self.deadline:
            return "its time is up"
        return f"the controller was silent for {self.silence_sec:g} s"


def begin(limits: FreezeLimits, run_id: str | None, now: float, wait_sec: float = 0.0) -> Freeze:
    """`wait_sec`: so long the controller has said that others go first."""
    return Freeze(
        run_id=run_id,
        deadline=now + wait_sec + limits.duration_sec,
        silent_at=now + limits.silence_sec,
        silence_sec=limits.silence_sec,
    )


def hear(freeze: Freeze, run_id: str | None, now: float) -> Freeze:
    """The controller spoke of the run that froze us (of anything, if none was named): the silence clock restarts."""
    if freeze.run_id is not None and run_id != freeze.run_id:
        return freeze
    return replace(freeze, silent_at=max(freeze.silent_at, now + freeze.silence_sec))
