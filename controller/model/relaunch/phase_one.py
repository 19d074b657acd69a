"""PROBE, PREPARE, BACKOFF, START, AWAIT, REJOIN: when each step is over, and what follows.

A check reads the table of members and returns the next state with its actions, or None to stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.model.budget import Budget, BudgetKey, Granted, next_run
from controller.model.relaunch.answers import why_not_ready
from controller.model.relaunch.dispatch import enter
from controller.model.relaunch.ending import clean_up, close, done
from controller.model.relaunch.exchange import (
    Action,
    ConfigurationTaken,
    Emit,
    EpochBegins,
    InstanceInactive,
    Level,
    SaveBudget,
)
from controller.model.relaunch.phase_two import enter_phase_two, spares_dispatched
from controller.model.relaunch.rejoin import is_back, is_paid, lose, may_rejoin, pay, seat_newcomers, wait_in_place
from controller.model.relaunch.run import Cause, Outcome, Progress, PutOff, Run, RunReason, RunStep, Stage
from supervisor.wire import Step

ALL_NORMAL = "all endpoints are normal again"

Moved = tuple[Run, tuple[Action, ...]] | None


def enter_probe(run: Run, reason: str, now: float) -> tuple[Run, tuple[Action, ...]]:
    settings = run.settings
    tries = settings.engine_relaunch_nm_unreachable_threshold
    lasts = tries * settings.status_timeout_sec + (tries - 1) * settings.retry_gap_sec
    rows = {key: replace(row, stage=Stage.NONE, higher_epoch=None, died=None) for key, row in run.members.items()}
    return enter(replace(run, members=rows), RunStep.PROBE, now, lasts=lasts, reason=reason)


def check_probe(run: Run, now: float) -> Moved:
    if why := _hopeless(run):
        return lose(run, why, now)
    unprobed = [row for row in run.rows if row.stage is Stage.NONE]
    if unprobed and now < run.step_deadline:
        return None
    if unprobed:
        return lose(run, f"{_addresses(unprobed)} did not answer in time", now)
    if ended := _without_cause(run, now):
        return ended
    if run.put_off:
        return _enter_put_off(run, run.put_off, now)
    reported = max((row.seen.epoch for row in run.rows if row.seen and row.seen.run_id != run.id), default=0)
    return _enter_prepare(replace(run, epoch=max(run.epoch, reported + 1)), now)


def check_put_off(run: Run, now: float) -> Moved:
    """It goes on when its turn comes, which it wants once it is put off no longer."""
    if why := _hopeless(run):
        return lose(run, why, now)
    return _without_cause(run, now)


def check_prepare(run: Run, now: float) -> Moved:
    if why := _hopeless(run):
        return lose(run, why, now)
    if reread := _reread(run, now):
        return reread
    unprepared = [row for row in run.rows if row.stage is not Stage.PREPARED]
    if not unprepared:
        return _enter_backoff(run, now)
    if now < run.step_deadline:
        return None
    limit = run.settings.engine_relaunch_prepare_timeout_sec
    return enter_phase_two(run, f"{_addresses(unprepared)} is not prepared after {limit:g} s", now)


def check_backoff(run: Run, now: float) -> Moved:
    if why := _hopeless(run):
        return lose(run, why, now)
    return _enter_start(run, now) if now >= run.step_deadline else None


def check_start(run: Run, now: float) -> Moved:
    if why := _hopeless(run):
        # Whom phase 2 spares depends on who has accepted (S05), so it waits for the answers under way.
        if not may_rejoin(run) and spares_dispatched(run) and _is_start_under_way(run) and now < run.step_deadline:
            return None
        return lose(run, why, now)
    if reread := _reread(run, now):
        return reread
    unstarted = [row for row in run.rows if row.stage is not Stage.STARTED]
    if not unstarted:
        lasts = run.settings.start_hard_cap_sec
        return enter(run, RunStep.AWAIT, now, lasts=lasts, reason="all engines are spawned")
    if now < run.step_deadline:
        return None
    return enter_phase_two(run, f"{_addresses(unstarted)} did not accept start in time", now)


def check_await(run: Run, now: float) -> Moved:
    if why := _hopeless(run):
        return lose(run, why, now)
    if died := [row for row in run.rows if row.died]:
        return _again(run, died[0], now)
    waiting = [row for row in run.rows if why_not_ready(run, row, now)]
    if not waiting:
        return done(run, now)
    if run.resumed and (outcome := _needless(run)):
        return clean_up(run, outcome, ALL_NORMAL, now)
    if now >= run.step_deadline:
        cap = run.settings.start_hard_cap_sec
        return enter_phase_two(run, f"{_addresses(waiting)} is not normal after {cap:g} s", now)
    if stalled := [row for row in run.rows if now >= stalls_at(run, row)]:
        limit = run.settings.engine_relaunch_complete_timeout_sec
        return enter_phase_two(run, f"{_addresses(stalled)} shows no progress for {limit:g} s", now)
    return None


def check_rejoin(run: Run, now: float) -> Moved:
    if not may_rejoin(run):
        return enter_phase_two(run, _hopeless(run) or "", now)
    if reread := _reread(run, now):
        return reread
    if any(row.newcomer for row in run.rows):
        return seat_newcomers(run, now), ()
    awaited = [row for row in run.rows if not is_back(row)]
    if not awaited or now < run.step_deadline:
        return None
    limit = run.settings.rejoin_timeout_sec
    return enter_phase_two(run, f"{_addresses(awaited)} is not back after {limit:g} s", now)


def go_on_in_turn(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    if run.step is RunStep.PUT_OFF:
        run, actions = enter_probe(run, f"put off no longer: {run.cause.text}", now)
        return run, (*actions, InstanceInactive(run.cause.text))
    # In an epoch of its own, so that all are prepared anew, with where the newcomers are.
    return enter_probe(replace(run, epoch=run.epoch + 1), "all are here again", now)


def stalls_at(run: Run, row: Progress) -> float:
    """The supervisor's progress_age_sec is the one clock; a member that tells none has the time-out at most.

    Who is NORMAL and waits for a slower member does not stall as long as it is heard of.
    """
    limit = run.settings.engine_relaunch_complete_timeout_sec
    stall = row.stage_since + limit
    for seen in (row.seen, row.heartbeat):
        if seen is None or seen.received_at < row.stage_since:
            continue
        if row.member.tells_epoch and seen.epoch != run.epoch:
            continue
        if seen.normal:
            patience = max(limit, run.instance_settings.heartbeat_timeout_active_sec)
            stall = max(stall, seen.received_at + patience)
        elif seen.progress_age_sec is not None:
            stall = max(stall, seen.received_at - seen.progress_age_sec + limit)
    return stall


def _without_cause(run: Run, now: float) -> Moved:
    """Nobody is left, or nothing, for whom a relaunch that has touched nobody so far would be."""
    if not run.prepare_sent and (leaving := [row for row in run.rows if row.seen and row.seen.leaving]):
        return clean_up(run, Outcome.ABORTED, f"{_addresses(leaving)} is leaving: draining", now)
    if outcome := _needless(run):
        return clean_up(run, outcome, ALL_NORMAL, now)
    return None


def _enter_put_off(run: Run, put_off: PutOff, now: float) -> tuple[Run, tuple[Action, ...]]:
    lasts = put_off.until - now
    reason = f"{run.cause.text}; put off for {lasts:.0f} s: {put_off.why}"
    run, actions = enter(run, RunStep.PUT_OFF, now, lasts=lasts, reason=reason)
    return run, (*actions, InstanceInactive(reason))


def _enter_prepare(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Members that know only `restart` cannot be stopped first: their start does both."""
    reason = f"all answer: stop all for epoch {run.epoch}"
    spent: tuple[Action, ...] = ()
    if run.counts and not is_paid(run):
        run = pay(run)
        spent = (SaveBudget(run.budget, reason),)
    if run.by_restart:
        run, actions = _enter_backoff(run, now)
    else:
        lasts = run.settings.engine_relaunch_prepare_timeout_sec
        run, actions = enter(run, RunStep.PREPARE, now, lasts=lasts, reason=reason)
    return run, (*spent, *actions)


def _enter_backoff(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    if run.backoff_sec <= 0:
        return _enter_start(run, now)
    reason = f"relaunch {run.budget.runs} without stable service: wait {run.backoff_sec:g} s"
    return enter(run, RunStep.BACKOFF, now, lasts=run.backoff_sec, reason=reason)


def _enter_start(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    reason = f"all {len(run.rows)} members are prepared: epoch {run.epoch} begins"
    lasts = run.settings.engine_relaunch_prepare_timeout_sec
    run = replace(run, rejoin_until=None)
    run, journal = enter(run, RunStep.START, now, lasts=lasts, reason=reason)
    digest = run.cause.config_digest
    begins = EpochBegins(run.epoch, {row.key: row.member.boot_id for row in run.rows}, reason)
    if digest is None:
        return run, (*journal, begins)
    # What fails from here on is the new configuration's.
    run = replace(run, budget=Budget(BudgetKey(run.instance.key, digest)))
    return run, (*journal, ConfigurationTaken(digest, run.instance.spec, run.cause.text), begins)


def _hopeless(run: Run) -> str | None:
    """Who refuses ends more than who is lost, and so comes first."""
    refuses = (row.cannot for row in run.rows)
    return next((why for why in (*refuses, *(row.gone for row in run.rows)) if why), None)


def _is_start_under_way(run: Run) -> bool:
    return any(row.outstanding is not None and row.stage is not Stage.STARTED for row in run.rows)


def _needless(run: Run) -> Outcome | None:
    """All are NORMAL in one epoch, which this run has not begun: there is nothing left to repair.

    A run that was opened here saw it happen only if that is the epoch it found. One that is resumed may come from a
    store that was set back: whatever it was opened for, a gang that was relaunched since has its new engines.
    """
    epochs = set()
    for row in run.rows:
        seen = row.seen
        if seen is None or not seen.normal or seen.prepared or seen.step is Step.PREPARED:
            return None
        if row.member.tells_epoch:
            epochs.add(seen.epoch)
    is_anothers = len(epochs) <= 1 and run.epoch not in epochs
    if run.resumed and is_anothers and (run.counts or any(epoch > run.base_epoch for epoch in epochs)):
        return Outcome.OBSOLETE
    if run.cause.endpoint_abnormal and not run.prepare_sent and epochs <= {run.base_epoch}:
        return Outcome.RECOVERED_ITSELF
    return None


def _reread(run: Run, now: float) -> Moved:
    """`stale_epoch`: somebody has seen a higher one; ask all again and take one more, or wait on in it."""
    higher = [row.higher_epoch for row in run.rows if row.higher_epoch is not None]
    if not higher:
        return None
    if run.rereads >= run.settings.max_rereads:
        return enter_phase_two(run, f"epoch {run.epoch} is stale again and again", now)
    run = replace(run, epoch=max(run.epoch, *higher) + 1, rereads=run.rereads + 1)
    why = f"a member knows epoch {max(higher)}"
    if run.step is RunStep.REJOIN:
        return wait_in_place(run, why, now)
    return enter_probe(run, f"{why}: go on with {run.epoch}", now)


def _again(run: Run, row: Progress, now: float) -> tuple[Run, tuple[Action, ...]]:
    """An engine is dead again in this epoch: a new run if the budget has one, else phase 2."""
    died = row.died or ""
    budget = next_run(run.budget, run.settings)
    if not isinstance(budget, Granted):
        return enter_phase_two(run, f"{died}; {budget.reason}", now)
    by_canary = all(row.died_by_canary for row in run.rows if row.died)
    follow = Cause(RunReason.FAULT, died, reporter=row.key, canary=by_canary, follows=True)
    run, actions = close(run, Outcome.ABORTED, f"{died}: a new run follows", now, follow=follow)
    return run, (Emit(Level.WARNING, died, row.key), *actions)


def _addresses(rows: Iterable[Progress]) -> str:
    return ", ".join(row.address for row in rows)
