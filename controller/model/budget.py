"""How often an instance may be relaunched in place, and its containers restarted, before it is held.

Keyed by (namespace, job_name, configuration digest), journaled, and blind to boots: a crash-looping container
cannot make itself a new budget (F13), a rollout does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.model.member import InstanceKey
from controller.model.settings import RelaunchSettings


@dataclass(frozen=True, slots=True)
class BudgetKey:
    instance: InstanceKey
    config_digest: str | None


@dataclass(frozen=True, slots=True)
class Budget:
    """`runs` and `phase2s` count since the last stable period, one start never twice, whoever resumes its run."""

    key: BudgetKey
    runs: int = 0
    phase2s: int = 0
    spent_by: str = ""
    """The start that was counted last: of which run, and which of its starts."""
    phase2_by: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """Relaunch in place, the start after `backoff_sec` with all engines stopped."""

    backoff_sec: float


@dataclass(frozen=True, slots=True)
class Spent:
    """No more runs: phase 2."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """No more phase 2 either: nothing is started until an operator resets or a new digest comes."""

    reason: str


def next_run(budget: Budget, settings: RelaunchSettings) -> Granted | Spent:
    """Whether there may be one more run in place: the first at once, then back-off doubles to its maximum."""
    if budget.runs >= settings.engine_relaunch_max_attempts:
        return Spent(
            f"{budget.runs} relaunches without {settings.engine_relaunch_stable_sec:g} s of service"
            " in between: the containers restart"
        )
    return Granted(_backoff(budget.runs + 1, settings))


def spend_run(budget: Budget, start: str) -> Budget:
    """When the first engine is going to be stopped: a run that touched nothing costs nothing."""
    return budget if budget.spent_by == start else replace(budget, runs=budget.runs + 1, spent_by=start)


def spend_phase2(budget: Budget, run_id: str) -> Budget:
    return budget if budget.phase2_by == run_id else replace(budget, phase2s=budget.phase2s + 1, phase2_by=run_id)


def held(budget: Budget, settings: RelaunchSettings) -> Held | None:
    """Whether an assembled instance may not be started."""
    if budget.phase2s < settings.engine_relaunch_max_attempts:
        return None
    return Held(
        f"its containers restarted {budget.phase2s} times without"
        f" {settings.engine_relaunch_stable_sec:g} s of service in between: held until an operator resets it"
        " (POST /v1/instances/ID/reset-failed) or a new configuration comes"
    )


def reset(budget: Budget) -> Budget:
    """After a stable period, or by an operator."""
    return Budget(budget.key)


def stable_at(active_since: float, settings: RelaunchSettings) -> float:
    """When the budget of an instance that is ACTIVE since then becomes whole again."""
    return active_since + settings.engine_relaunch_stable_sec


def _backoff(run: int, settings: RelaunchSettings) -> float:
    if run <= 1:
        return 0.0
    doubled: float = settings.engine_relaunch_backoff_sec * 2.0 ** min(run - 2, 62)
    return min(doubled, settings.engine_relaunch_backoff_max_sec)
