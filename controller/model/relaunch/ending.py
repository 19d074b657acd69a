"""How a run ends: done, or closed after those it may have frozen were told (C3)."""

from __future__ import annotations

from dataclasses import replace

from controller.model.relaunch.dispatch import close_history, enter, record
from controller.model.relaunch.exchange import (
    Action,
    Close,
    Emit,
    EpochAbandoned,
    InstanceActive,
    Journal,
    Level,
)
from controller.model.relaunch.run import Cause, Farewell, Outcome, Progress, Run, RunStep, Stage


def done(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    message = f"all endpoints are normal in epoch {run.epoch} after {now - run.opened_at:.1f} s"
    run = _closed(run, Outcome.DONE, message, now)
    return run, (
        InstanceActive(record(run, now), message),
        Emit(Level.INFO, message),
        Close(Outcome.DONE, message),
    )


def close(
    run: Run, outcome: Outcome, message: str, now: float, *, follow: Cause | None = None
) -> tuple[Run, tuple[Action, ...]]:
    """Ends the run; whoever it may have frozen and could not tell is named in an error."""
    unresolved = [row for row in run.rows if _owes_a_word(row)]
    errors = tuple(_name(row, row.cannot or "the run ended before it answered") for row in unresolved)
    run = _closed(run, outcome, message, now)
    return run, (*errors, Journal(record(run, now), message), Close(outcome, message, follow))


def cut_off(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Nobody waits for its end any longer: what it wanted to write or to send on its way there has not come about."""
    message = f"{run.message}: cut off before it had cleaned up" if run.closing else "cut off"
    return close(run, run.closing or Outcome.ABORTED, message, now)


def suspend(run: Run, reason: str, journal: bool, now: float) -> tuple[Run, tuple[Action, ...]]:
    """The next leader resumes by the run id, so nobody is told anything; a deposed one may not even write."""
    written = (Journal(record(run, now), reason),) if journal else ()
    run = replace(run, outcome=Outcome.SUSPENDED, message=reason)
    return run, (*written, Close(Outcome.SUSPENDED, reason))


def clean_up(
    run: Run, outcome: Outcome, message: str, now: float, *, abandons: bool = False
) -> tuple[Run, tuple[Action, ...]]:
    """abort to everybody who may be frozen and has not started, so that no freeze delays anybody (S07)."""
    rows = {
        key: row
        if row.farewell in (Farewell.ACKNOWLEDGED, Farewell.NAMED)
        else replace(row, farewell=Farewell.ABORT if _is_owed(row) else Farewell.NONE)
        for key, row in run.members.items()
    }
    run = replace(run, members=rows, closing=outcome, message=message)
    abandoned: tuple[Action, ...] = (EpochAbandoned(message),) if abandons else ()
    if not any(row.farewell is Farewell.ABORT for row in run.rows):
        run, actions = close(run, outcome, message, now)
        return run, (*abandoned, *actions)
    run, actions = enter(
        run,
        RunStep.CLEANUP,
        now,
        lasts=run.settings.farewell_timeout_sec,
        reason=message,
        error=_error(outcome, message),
    )
    return run, (*abandoned, *actions)


def check_clean_up(run: Run, now: float) -> tuple[Run, tuple[Action, ...]] | None:
    pending = any(row.farewell is Farewell.ABORT and not row.left for row in run.rows)
    if pending and now < run.step_deadline:
        return None
    return close(run, run.closing or Outcome.ABORTED, run.message, now)


def name_failed(run: Run) -> tuple[Run, tuple[Action, ...]] | None:
    """Every failed abort or stop is an error that names the supervisor (S05)."""
    failed = [row for row in run.rows if row.farewell is Farewell.FAILED]
    if not failed:
        return None
    members = dict(run.members)
    for row in failed:
        members[row.key] = replace(row, farewell=Farewell.NAMED)
    return replace(run, members=members), tuple(_name(row, row.cannot or "no answer") for row in failed)


def _name(row: Progress, why: str) -> Emit:
    return Emit(Level.ERROR, f"cannot tell {row.address} to give up its freeze or to leave: {why}", row.key)


def _is_owed(row: Progress) -> bool:
    return row.may_be_frozen and not row.left and row.stage not in (Stage.STARTED, Stage.HELD)


def _owes_a_word(row: Progress) -> bool:
    told = row.farewell in (Farewell.ACKNOWLEDGED, Farewell.NAMED)
    asked = row.farewell in (Farewell.ABORT, Farewell.STOP)
    return not (told or row.left) and (asked or _is_owed(row))


def _closed(run: Run, outcome: Outcome, message: str, now: float) -> Run:
    run = close_history(run, now, _error(outcome, message))
    return replace(run, step=RunStep.CLOSED, outcome=outcome, message=message)


def _error(outcome: Outcome, message: str) -> str | None:
    return None if outcome in (Outcome.DONE, Outcome.RECOVERED_ITSELF, Outcome.HELD) else message
