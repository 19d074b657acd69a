"""The pure machine of one relaunch run: the door that shells use.

    run, actions = open_run(...)
    while run.outcome is None:
        run, actions = step(run, event, now)     # and Tick when deadline(run) has come

Each action carries its reason. What a step decides stands in the module named after it.
"""

from __future__ import annotations

from controller.model.budget import Budget
from controller.model.instance import Instance
from controller.model.relaunch.exchange import Action, Event
from controller.model.relaunch.run import Cause, Run
from controller.model.settings import InstanceSettings, RelaunchSettings


def open_run(
    instance: Instance,
    cause: Cause,
    *,
    run_id: str,
    term: int,
    budget: Budget,
    settings: RelaunchSettings,
    instance_settings: InstanceSettings,
    now: float,
) -> tuple[Run, tuple[Action, ...]]:
    """Opens the one run of a complete instance; C1 (at most one) is the caller's to keep."""
    raise NotImplementedError


def step(run: Run, event: Event, now: float) -> tuple[Run, tuple[Action, ...]]:
    """A closed run answers every event with nothing."""
    raise NotImplementedError


def deadline(run: Run) -> float | None:
    """When a Tick is due at the latest; None once it is closed."""
    raise NotImplementedError


def preemptible(run: Run) -> bool:
    """Until the first prepare was sent (design 4, Not preemptible)."""
    raise NotImplementedError
