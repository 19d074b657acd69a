"""How long a kubelet waits before it restarts a container (CrashLoopBackOff)."""

from __future__ import annotations

from dataclasses import dataclass

from controller.simulation.scenario import TimesSection


@dataclass(frozen=True, slots=True)
class BackOff:
    """Of one container; a pod that is created anew begins with a new one."""

    restarts: int = 0
    """Since it last ran for long."""


def restart(back_off: BackOff, ran_sec: float, times: TimesSection) -> tuple[BackOff, float]:
    """After a container ended that had run for `ran_sec`: the first restart comes at once, then the wait doubles."""
    restarts = 0 if ran_sec >= times.backoff_reset else back_off.restarts
    wait = 0.0 if restarts == 0 else min(times.backoff_max, times.backoff_first * 2.0 ** min(restarts - 1, 62))
    return BackOff(restarts + 1), wait
