"""The pure machine of one relaunch run: the door that shells use.

    run, actions = open_run(new_run(...), now)
    while run.outcome is None:
        run, actions = step(run, event, now)     # and Tick when deadline(run) has come

An event writes facts into the table of members (`answers`); then the check of the present step reads the
table until nothing moves any more (`phase_one`, `phase_two`, `ending`); then what is due is sent (`dispatch`).
Each action carries its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.model.assembly import missing
from controller.model.budget import Granted, held, next_run
from controller.model.instance import Hold, Holder
from controller.model.need import lost_members
from controller.model.relaunch import phase_one
from controller.model.relaunch.answers import (
    compare_boot,
    take_answer,
    take_fault,
    take_heartbeat,
    take_registration,
    take_silence,
    told_boot,
)
from controller.model.relaunch.dispatch import asked_once_more, put, record, send_due
from controller.model.relaunch.ending import check_clean_up, clean_up, close, suspend
from controller.model.relaunch.exchange import (
    Action,
    Answered,
    Cancel,
    CancelKind,
    Emit,
    Event,
    Fault,
    Heartbeat,
    InstanceHeld,
    InstanceInactive,
    Journal,
    Level,
    MemberSilent,
    Refused,
    Registered,
    StepDown,
    Tick,
    TurnCame,
)
from controller.model.relaunch.holding import check_hold, enter_hold
from controller.model.relaunch.phase_one import Moved, enter_probe, stalls_at
from controller.model.relaunch.phase_two import check_phase_two, enter_phase_two
from controller.model.relaunch.rejoin import is_back, lose
from controller.model.relaunch.resume import go_on
from controller.model.relaunch.run import Outcome, Progress, Run, RunReason, RunRecord, RunStep
from supervisor.wire import ErrorCode

CHECKS: dict[RunStep, Callable[[Run, float], Moved]] = {
    RunStep.PROBE: phase_one.check_probe,
    RunStep.HOLD: check_hold,
    RunStep.PUT_OFF: phase_one.check_put_off,
    RunStep.PREPARE: phase_one.check_prepare,
    RunStep.BACKOFF: phase_one.check_backoff,
    RunStep.START: phase_one.check_start,
    RunStep.AWAIT: phase_one.check_await,
    RunStep.REJOIN: phase_one.check_rejoin,
    RunStep.PHASE2: check_phase_two,
    RunStep.CLEANUP: check_clean_up,
}


WAITING = frozenset({RunStep.PUT_OFF, RunStep.AWAIT, RunStep.REJOIN, RunStep.PHASE2})
TURNLESS = WAITING | {RunStep.HOLD, RunStep.CLEANUP, RunStep.CLOSED}
ASKED_FOR = frozenset({RunReason.ASSEMBLE, RunReason.HOLD})
ASK_ALL = "can every member be reached?"


def open_run(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Opens the one run of an instance; that there is at most one (C1) is the caller's to keep.

    An instance that is not complete any more, because the run had to wait for its turn, is not started in part:
    the run ends at once, unless a member is lost.
    """
    cause = run.cause
    text = f"run {run.id} opened: {cause.text}"
    opened = Emit(Level.INFO if cause.reason in ASKED_FOR else Level.WARNING, text, cause.reporter)
    if cause.reason is RunReason.ASSEMBLE and (spent := held(run.budget, run.settings)):
        run, closed = close(run, Outcome.HELD, spent.reason, now)
        return run, (InstanceHeld(Hold(Holder.BUDGET, spent.reason)), Emit(Level.ERROR, spent.reason), *closed)
    run, actions = _first_step(run, now)
    run, more = _settle(run, now)
    return run, (opened, *_out_of_routing(run), *actions, *more)


def resume_run(run: Run, record: RunRecord, now: float) -> tuple[Run, tuple[Action, ...]]:
    """Goes on with a run that another life of the controller has opened; one that it only promised is opened."""
    if record.step is RunStep.OPEN:
        return open_run(run, now)
    resumed = Emit(Level.WARNING, f"run {run.id} is resumed in step {record.step}: {run.cause.text}")
    run, actions = go_on(run, record, now)
    run, more = _settle(run, now)
    return run, (resumed, *_out_of_routing(run), *actions, *more)


def withdraw(run: Run, cancel: Cancel, reported: Iterable[Fault], now: float) -> tuple[Run, tuple[Action, ...]]:
    """Ends one that was neither opened nor resumed, because its turn has not come: nothing of it is begun any more.

    Who may have frozen itself for its sake, by a report or in another life of the controller, is told.
    """
    for fault in reported:
        if row := run.members.get(fault.member):
            run = put(run, replace(row, may_be_frozen=True))
    if cancel.kind is CancelKind.SUSPEND:
        return suspend(run, cancel.reason, journal=not run.resumed, now=now)
    run, actions = clean_up(run, Outcome.ABORTED, cancel.reason, now, abandons=cancel.kind is CancelKind.ABORT)
    run, more = _settle(run, now)
    return run, (*actions, *more)


def step(run: Run, event: Event, now: float) -> tuple[Run, tuple[Action, ...]]:
    """A closed run answers every event with nothing, and so does an event of somebody who is no member."""
    if run.outcome is not None:
        return run, ()
    if isinstance(event, Cancel):
        return _cancel(run, event, now)
    if isinstance(event, TurnCame):
        if not wants_turn(run):
            return run, ()
        run, actions = phase_one.go_on_in_turn(run, now)
        run, more = _settle(run, now)
        return run, (*actions, *more)
    if not isinstance(event, Tick):
        row = run.members.get(event.member)
        if row is None:
            return run, ()
        if (term := _deposed(event)) is not None:
            run, actions = suspend(run, f"{row.address} obeys term {term}", journal=False, now=now)
            return run, (StepDown(term, f"{row.address} obeys term {term}, ours is {run.term}"), *actions)
        run = put(run, _taken(run, row, event, now))
        if isinstance(event, Fault) and _explains(run, event):
            return _explained(run, event, now)
    return _settle(run, now)


def deadline(run: Run) -> float | None:
    """When a Tick is due at the latest; None once the run is closed."""
    if run.outcome is not None:
        return None
    times = [] if wants_turn(run) else [run.step_deadline]
    if run.step is RunStep.PUT_OFF and run.put_off:
        times = [run.put_off.until]
    times += [row.due for row in run.rows if row.due is not None and row.outstanding is None]
    if run.step is RunStep.AWAIT:
        times += [stalls_at(run, row) for row in run.rows]
    return min(times, default=None)


def has_turn(run: Run) -> bool:
    """One of the fleet's. Who only stops engines, or waits for loads, containers or others, starts nothing and leaves
    it to another: a load may last longer than the freeze of who waits for its turn."""
    return run.step not in TURNLESS


def wants_turn(run: Run) -> bool:
    """What it waited for has come: now it waits for `TurnCame`, however long that takes."""
    if run.step is RunStep.PUT_OFF:
        return run.put_off is None
    return run.step is RunStep.REJOIN and all(is_back(row) for row in run.rows)


def preemptible(run: Run) -> bool:
    """Until the first prepare was sent; from then on a graver fault waits for the end (F20)."""
    return run.outcome is None and not run.prepare_sent and run.phase == 1


def _settle(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    actions: list[Action] = []
    while run.outcome is None and (moved := CHECKS[run.step](run, now)):
        run, more = moved
        actions += more
    if run.outcome is None:
        run, sends = send_due(run, now)
        actions += sends
    return run, tuple(actions)


def _taken(run: Run, row: Progress, event: Event, now: float) -> Progress:
    match event:
        case Answered(number=number, answer=answer):
            row = compare_boot(row, told_boot(answer))
            return take_answer(run, row, answer, now) if number == row.outstanding else row
        case Heartbeat(observation=seen):
            return take_heartbeat(run, row, seen)
        case Fault():
            return take_fault(run, row, event)
        case MemberSilent():
            return take_silence(run, row)
        case Registered():
            return take_registration(row, event)
        case _:
            return row


def _explains(run: Run, fault: Fault) -> bool:
    """A heartbeat that shows the endpoint ABNORMAL may overtake the report that says why; and a canary is not alone any
    more when something else fails too."""
    if run.step not in (RunStep.PROBE, RunStep.PUT_OFF) or fault.epoch not in (None, run.base_epoch):
        return False
    is_unexplained = run.cause.endpoint_abnormal and run.cause.reporter is None
    return is_unexplained or (run.cause.canary and not fault.canary)


def _explained(run: Run, fault: Fault, now: float) -> tuple[Run, tuple[Action, ...]]:
    cause = replace(
        run.cause,
        text=fault.message,
        endpoint_abnormal=fault.probe_derived,
        reporter=fault.member,
        canary=fault.canary,
    )
    run = replace(run, cause=cause, put_off=run.put_off if cause.canary else None)
    run, actions = _settle(run, now)
    # Nobody reports it again: another life of the controller must not put off what is more than a canary.
    kept = (Journal(record(run, now), cause.text),) if run.step is RunStep.PUT_OFF else ()
    return run, (*kept, InstanceInactive(cause.text), *actions)


def _out_of_routing(run: Run) -> tuple[Action, ...]:
    """Before the first row, which may not be written for long: it commands nothing."""
    return () if run.cause.reason is RunReason.ASSEMBLE else (InstanceInactive(run.cause.text),)


def _deposed(event: Event) -> int | None:
    if isinstance(event, Answered) and isinstance(event.answer, Refused):
        refused = event.answer
        return (refused.term or 0) if refused.code is ErrorCode.STALE_TERM else None
    return None


def _cancel(run: Run, event: Cancel, now: float) -> tuple[Run, tuple[Action, ...]]:
    match event.kind:
        case CancelKind.SUSPEND:
            return suspend(run, event.reason, journal=True, now=now)
        case _ if run.step is RunStep.CLEANUP:
            return _settle(asked_once_more(run, now), now)
        case CancelKind.PREEMPT if not preemptible(run):
            return run, (Emit(Level.INFO, f"{event.reason}: waits for the end of run {run.id}"),)
        case _:
            abandons = event.kind is CancelKind.ABORT
            run, actions = clean_up(run, Outcome.ABORTED, event.reason, now, abandons=abandons)
            run, more = _settle(run, now)
            return run, (*actions, *more)


def _first_step(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    if run.cause.reason is RunReason.HOLD:
        return enter_hold(run, now)
    if lost := lost_members(run.instance):
        return lose(run, lost, now)
    if run.cause.hardware:
        return enter_phase_two(run, run.cause.text, now)
    if not run.instance.complete:
        return clean_up(run, Outcome.ABORTED, missing(run.instance), now)
    if not run.counts:
        return enter_probe(run, ASK_ALL, now)
    allowed = next_run(run.budget, run.settings)
    if not isinstance(allowed, Granted):
        return enter_phase_two(run, allowed.reason, now)
    return enter_probe(replace(run, backoff_sec=allowed.backoff_sec), ASK_ALL, now)
