"""PHASE 2: the containers restart. Whom abort, whom stop, who keeps its freeze, and when it is over."""

from __future__ import annotations

from dataclasses import replace

from controller.model.budget import spend_phase2
from controller.model.instance import Hold, Holder
from controller.model.relaunch.dispatch import enter
from controller.model.relaunch.ending import clean_up, close, name_failed
from controller.model.relaunch.exchange import Action, Emit, InstanceHeld, Level, MembersStranded, SaveBudget
from controller.model.relaunch.run import (
    Farewell,
    Outcome,
    Progress,
    Run,
    RunStep,
    Stage,
)
from controller.model.settings import Phase2Scope


def enter_phase_two(run: Run, why: str, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Or, where that may not be, hold the instance: the level of what is needed then stops what still runs."""
    if run.no_phase_two:
        alarm = f"{why}; {run.no_phase_two}; held until an operator resets it (reset-failed) or releases it"
        run, actions = clean_up(run, Outcome.HELD, alarm, now)
        return run, (InstanceHeld(Hold(Holder.FLEET, alarm)), Emit(Level.ERROR, alarm), *actions)
    spare = spares_dispatched(run)
    rows = {key: _leaving(row, spare) for key, row in run.members.items()}
    run = replace(run, members=rows, phase=2, message=f"phase 2: {why}", budget=spend_phase2(run.budget, run.id))
    run, journal = enter(
        run,
        RunStep.PHASE2,
        now,
        lasts=run.settings.phase2_timeout_sec,
        reason=why,
        error=why,
    )
    # The budget first: who resumes the run counts it no second time, and would not count it at all after the step.
    return run, (SaveBudget(run.budget, why), *journal)


def check_phase_two(run: Run, now: float) -> tuple[Run, tuple[Action, ...]] | None:
    if named := name_failed(run):
        return named
    if released := _release_kept(run, now):
        return released, ()
    absent = [row for row in run.rows if not row.new_boot]
    if not absent:
        message = f"{run.message}; all containers restarted, a run assemble follows"
        return close(run, Outcome.PHASE2, message, now)
    if now < run.step_deadline:
        return None
    who = ", ".join(row.address for row in absent)
    alarm = f"{who} did not register again within {run.settings.phase2_timeout_sec:g} s of phase 2"
    run, actions = close(run, Outcome.PHASE2, f"{run.message}; {alarm}", now)
    stranded = MembersStranded(frozenset(row.key for row in absent), alarm)
    return run, (stranded, Emit(Level.ERROR, alarm), *actions)


def spares_dispatched(run: Run) -> bool:
    """The seed's letter (S05): from START with all members reachable, or always by the setting."""
    if run.settings.engine_relaunch_phase2_scope is Phase2Scope.UNDISPATCHED:
        return True
    return run.step is RunStep.START and not any(row.gone for row in run.rows)


def _leaving(row: Progress, spare: bool) -> Progress:
    """A newcomer that nobody has touched is what the others become by restarting."""
    if row.left or (row.new_boot and not row.may_be_frozen):
        return replace(row, farewell=Farewell.NONE)
    return replace(row, farewell=_farewell(row, spare), new_boot=False)


def _farewell(row: Progress, spare: bool) -> Farewell:
    if spare:
        return Farewell.KEPT if row.stage is Stage.STARTED and not row.died else Farewell.ABORT
    if row.may_be_frozen and (row.died or row.stage is not Stage.STARTED):
        return Farewell.ABORT
    return Farewell.STOP


def _release_kept(run: Run, now: float) -> Run | None:
    """The first new boot of another: what the kept ones are loading cannot come up any more."""
    kept = [row for row in run.rows if row.farewell is Farewell.KEPT and not row.left]
    if not kept or not any(row.left for row in run.rows):
        return None
    members = dict(run.members)
    for row in kept:
        members[row.key] = replace(row, farewell=Farewell.STOP, outstanding=None, tries=0, due=now)
    return replace(run, members=members)
