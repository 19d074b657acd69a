"""A member is lost: the others wait for it in place, and who takes its place takes part in the run.

When the waiting is over stands with the other steps, in `phase_one`.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.budget import Spent, next_run, spend_run
from controller.model.member import Member
from controller.model.relaunch.dispatch import enter
from controller.model.relaunch.exchange import Action, SaveBudget
from controller.model.relaunch.phase_two import enter_phase_two
from controller.model.relaunch.run import Progress, Run, RunStep, Stage

STARTED_STEPS = frozenset({RunStep.START, RunStep.AWAIT})


def lose(run: Run, why: str, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Whoever is lost is waited for in place, if that can lead anywhere; else the containers restart.

    It costs one relaunch of the budget for each start to which it leads, whatever the run was opened for: so a
    container that crashes over and over cannot make the others start over and over.
    """
    if not may_rejoin(run):
        return enter_phase_two(run, why, now)
    if run.step in STARTED_STEPS:
        run = replace(run, starts_lost=run.starts_lost + 1)
    if is_paid(run):
        return wait_in_place(run, why, now)
    allowed = next_run(run.budget, run.settings)
    if isinstance(allowed, Spent):
        return enter_phase_two(run, f"{why}; {allowed.reason}", now)
    run = replace(pay(run), backoff_sec=allowed.backoff_sec)
    run, actions = wait_in_place(run, why, now)
    return run, (SaveBudget(run.budget, why), *actions)


def is_paid(run: Run) -> bool:
    """The start to which this leads is on the budget's account."""
    return run.budget.spent_by == _start_of(run)


def pay(run: Run) -> Run:
    """For one start, on the budget's account; `SaveBudget` has to follow."""
    return replace(run, budget=spend_run(run.budget, _start_of(run)))


def may_rejoin(run: Run) -> bool:
    """Not if one refuses, and not with peers that cannot be stopped without being started."""
    return run.settings.rejoins and not run.by_restart and not any(row.cannot for row in run.rows)


def wait_in_place(run: Run, why: str, now: float) -> tuple[Run, tuple[Action, ...]]:
    """All who are there are stopped in an epoch of its own: what comes after it is prepared for all anew.

    A second loss does not make the waiting longer; only a start in between does.
    """
    until = run.rejoin_until if run.rejoin_until is not None else now + run.settings.rejoin_timeout_sec
    rows = {key: replace(row, stage=Stage.NONE, higher_epoch=None, died=None) for key, row in run.members.items()}
    epoch = run.epoch + 1 if run.prepare_sent else run.epoch
    run = replace(run, members=rows, epoch=epoch, rejoin_until=until)
    lasts = max(0.0, until - now)
    reason = f"{why}: the others wait in place, {lasts:g} s at most"
    return enter(run, RunStep.REJOIN, now, lasts=lasts, reason=reason, error=why)


def seat_newcomers(run: Run, now: float) -> Run:
    """They take part from now on, in the places of those whose lives are over."""
    rows = [_newcomer(row.newcomer, now) if row.newcomer else row for row in run.rows]
    instance = replace(run.instance, members=tuple(row.member for row in rows))
    return replace(run, instance=instance, members={row.key: row for row in rows})


def is_back(row: Progress) -> bool:
    """It can be told to start: stopped in this run, or a newcomer whose engine's dependencies are active."""
    if row.gone:
        return False
    if row.new_boot:
        return row.seen is not None and row.seen.prepared
    return row.stage is Stage.PREPARED


def _start_of(run: Run) -> str:
    return f"{run.id}/{run.starts_lost + 1}"


def _newcomer(member: Member, now: float) -> Progress:
    seen = member.observation
    cannot = None if member.knows_prepare else f"{member.address} knows only restart and abort"
    return Progress(member=member, seen=seen, heartbeat=seen, new_boot=True, due=now, cannot=cannot)
