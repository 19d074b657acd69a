"""A run that ends with all engines stopped: what an operator, or the care for the whole fleet, asks for.

No barrier is needed, since each engine is stopped for itself, and no phase 2: whoever cannot be told is named, and
leaves as soon as it is heard of with an engine (`reception`).
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.need import holdable
from controller.model.relaunch.dispatch import enter
from controller.model.relaunch.ending import close
from controller.model.relaunch.exchange import Action, EpochLeft
from controller.model.relaunch.run import Outcome, Progress, Run, RunStep, Stage


def enter_hold(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    """A pod that is lost or restarts has nothing to be stopped: it is not started when it is back."""
    keys = {member.key for member in holdable(run.instance)}
    run = replace(run, members={key: row for key, row in run.members.items() if key in keys})
    return _stop_all(run, f"stop all engines: {run.cause.text}", now)


def check_hold(run: Run, now: float) -> tuple[Run, tuple[Action, ...]] | None:
    higher = [row.higher_epoch for row in run.rows if row.higher_epoch is not None]
    if higher and run.rereads < run.settings.max_rereads:
        return _stop_all(
            replace(run, epoch=max(run.epoch, *higher) + 1, rereads=run.rereads + 1),
            f"a member knows epoch {max(higher)}: once more",
            now,
        )
    if any(_is_awaited(row) for row in run.rows) and now < run.step_deadline:
        return None
    untold = [row for row in run.rows if row.stage is not Stage.HELD and not row.left]
    message = "all engines are stopped"
    if untold:
        message = f"stopped, but for {', '.join(row.address for row in untold)}"
    left = EpochLeft(frozenset(run.members), message)
    run, actions = close(run, Outcome.HELD, f"{run.cause.text}; {message}", now)
    return run, (left, *actions)


def _stop_all(run: Run, reason: str, now: float) -> tuple[Run, tuple[Action, ...]]:
    rows = {key: replace(row, higher_epoch=None) for key, row in run.members.items()}
    lasts = run.settings.engine_relaunch_prepare_timeout_sec
    return enter(replace(run, members=rows), RunStep.HOLD, now, lasts=lasts, reason=reason)


def _is_awaited(row: Progress) -> bool:
    return row.stage is not Stage.HELD and row.gone is None and row.cannot is None
